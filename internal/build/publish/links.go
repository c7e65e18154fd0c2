package publish

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"path"

	"slipway/internal/git/fetch"
)

// resolveLinks replaces symbolic links that lead to a file of the same commit by that
// file's content, and leaves out the others, and submodules, with a warning.
func resolveLinks(ctx context.Context, tree Tree, all []fetch.File, say Log) ([]fetch.File, error) {
	var links, files []fetch.File
	byPath := map[string]fetch.File{}
	for _, f := range all {
		switch {
		case f.Mode&fs.ModeSymlink != 0:
			links = append(links, f)
		case f.Mode.IsRegular():
			files = append(files, f)
			byPath[f.Path] = f
		default:
			say("warn", "Skipped %q: it is a submodule that .gitmodules does not declare", f.Path)
		}
	}
	if len(links) == 0 {
		return files, nil
	}
	targets := map[string]string{}
	err := tree.Read(ctx, links, func(f fetch.File, r io.Reader) error {
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
			say("warn", "Skipped %q: the link points outside, to a folder, or to nothing", l.Path)
			continue
		}
		f.Path = l.Path
		files = append(files, f)
	}
	return files, nil
}

// followLink finds the file that a link leads to, through at most 10 others.
func followLink(name string, targets map[string]string, files map[string]fetch.File) (fetch.File, bool) {
	for range 10 {
		to, link := targets[name]
		if !link {
			f, ok := files[name]
			return f, ok
		}
		if path.IsAbs(to) {
			return fetch.File{}, false
		}
		name = path.Join(path.Dir(name), to)
	}
	return fetch.File{}, false
}
