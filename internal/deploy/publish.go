package deploy

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"slipway/internal/fault"
	"slipway/internal/framework"
	"slipway/internal/release"
	"slipway/internal/site"
	"slipway/internal/source"
)

// publishCommit makes a release of a folder of a commit, straight out of Git: nothing is
// checked out, and files that the live release already has are not even read.
func (d *Deployments) publishCommit(ctx context.Context, s site.Site, tree *source.Tree, plan framework.Plan, p *progress) (release.Sealed, error) {
	p.enter("publish", Deploying)
	folder := path.Join(plan.Root, plan.Output)
	all, err := tree.Files(ctx)
	if err != nil {
		return release.Sealed{}, fmt.Errorf("list commit: %w", err)
	}
	files, err := resolveLinks(ctx, tree, all, p)
	if err != nil {
		return release.Sealed{}, err
	}
	rel, err := d.publish(ctx, s, func(w *release.Writer) error {
		if err := d.serving(ctx, w, s, tree, plan); err != nil {
			return err
		}
		var unread []source.File
		for _, f := range files {
			name, ok := inside(folder, f.Path)
			if !ok || name == "slipway.toml" || w.Reuse(name, f.OID) {
				continue
			}
			unread = append(unread, f)
		}
		err := tree.Read(ctx, unread, func(f source.File, r io.Reader) error {
			name, _ := inside(folder, f.Path)
			return w.Add(ctx, name, f.OID, r)
		})
		if err != nil {
			return fmt.Errorf("publish: %w", err)
		}
		return nil
	})
	return d.published(rel, err, folder, p)
}

// published says in the log what became of a release, and refuses an empty one.
func (d *Deployments) published(rel release.Sealed, err error, folder string, p *progress) (release.Sealed, error) {
	if err != nil {
		return release.Sealed{}, err
	}
	if rel.Files == 0 {
		return release.Sealed{}, &fault.Error{Kind: fault.Invalid, Message: "There is nothing to publish",
			Details: fmt.Sprintf("%s holds no file that may be served", folderName(folder))}
	}
	files := "files"
	if rel.Files == 1 {
		files = "file"
	}
	for _, problem := range rel.Problems {
		p.Printf("warn", "%s", problem)
	}
	p.Printf("info", "Published %d %s, %s; %d unchanged", rel.Files, files, size(rel.Bytes), rel.Reused)
	return rel, nil
}

// inside returns the path relative to the folder, when it is below it.
func inside(folder, name string) (string, bool) {
	if folder == "" {
		return name, true
	}
	return strings.CutPrefix(name, folder+"/")
}

func folderName(folder string) string {
	if folder == "" {
		return "the repository"
	}
	return "the folder " + folder
}

// resolveLinks replaces symbolic links that lead to a file of the same commit by that
// file's content, and leaves out the others, and submodules, with a warning.
func resolveLinks(ctx context.Context, tree *source.Tree, all []source.File, p *progress) ([]source.File, error) {
	var links, files []source.File
	byPath := map[string]source.File{}
	for _, f := range all {
		switch {
		case f.Mode&fs.ModeSymlink != 0:
			links = append(links, f)
		case f.Mode.IsRegular():
			files = append(files, f)
			byPath[f.Path] = f
		default:
			p.Printf("warn", "Left out %q: it is a submodule that .gitmodules does not declare", f.Path)
		}
	}
	if len(links) == 0 {
		return files, nil
	}
	targets := map[string]string{}
	err := tree.Read(ctx, links, func(f source.File, r io.Reader) error {
		b, err := io.ReadAll(io.LimitReader(r, 4096))
		targets[f.Path] = string(b)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read links: %w", err)
	}
	for _, l := range links {
		f, ok := followLink(l.Path, targets, byPath)
		if !ok {
			p.Printf("warn", "Left out %q: the link leads outside, to a folder, or to nothing", l.Path)
			continue
		}
		f.Path = l.Path
		files = append(files, f)
	}
	return files, nil
}

// followLink finds the file that a link leads to, through at most 10 others.
func followLink(name string, targets map[string]string, files map[string]source.File) (source.File, bool) {
	for range 10 {
		to, link := targets[name]
		if !link {
			f, ok := files[name]
			return f, ok
		}
		if path.IsAbs(to) {
			return source.File{}, false
		}
		name = path.Join(path.Dir(name), to)
	}
	return source.File{}, false
}

// size is a number of bytes as people say it.
func size(n int64) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d bytes", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	case n < 1<<30:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}
