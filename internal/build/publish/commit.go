// Package publish owns how files of a commit or of a build's output become a release or a bundle: which files, under
// which names, with which rules, and with which warnings.
//
// Files are untrusted: links that lead outside are skipped, and pipes aren't opened. It stores files with packages
// release and bundle, and knows neither sites nor deployments.
package publish

import (
	"context"
	"fmt"
	"io"
	"path"
	"strings"

	"slipway/internal/build/framework"
	"slipway/internal/build/release"
	"slipway/internal/git/fetch"
	"slipway/internal/platform/fault"
)

// Log adds a line to a deployment's log.
type Log func(level, format string, args ...any)

// Tree is the source of the files: a commit or an upload.
type Tree interface {
	Files(ctx context.Context) ([]fetch.File, error)
	// Read streams the contents of files in order.
	Read(ctx context.Context, files []fetch.File, fn func(fetch.File, io.Reader) error) error
	// ReadFile returns the content of one file, at most max bytes.
	ReadFile(ctx context.Context, name string, max int64) ([]byte, error)
}

// Commit is a folder of a commit that is published directly from Git, without a checkout. Files that the live release
// already has aren't even read.
type Commit struct {
	tree   Tree
	files  []fetch.File
	folder string
}

// Open returns the folder that a plan publishes, with links followed.
func Open(ctx context.Context, tree Tree, plan framework.Plan, say Log) (Commit, error) {
	all, err := tree.Files(ctx)
	if err != nil {
		return Commit{}, fmt.Errorf("list commit: %w", err)
	}
	folder := path.Join(plan.Root, plan.Output)
	files, err := resolveLinks(ctx, tree, all, folder, say)
	return Commit{tree, files, folder}, err
}

// Folder returns the folder's path; empty for the whole commit.
func (c Commit) Folder() string { return c.folder }

// Fill adds the files to a release.
func (c Commit) Fill(ctx context.Context, w *release.Writer) error {
	var unread []fetch.File
	for _, f := range c.files {
		name, ok := inside(c.folder, f.Path)
		if !ok || name == "slipway.toml" || w.Skips(name) || w.Reuse(name, f.OID) {
			continue
		}
		unread = append(unread, f)
	}
	err := c.tree.Read(ctx, unread, func(f fetch.File, r io.Reader) error {
		name, _ := inside(c.folder, f.Path)
		return w.Add(ctx, name, f.OID, r)
	})
	if err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	return nil
}

// Report logs the result of making a release, and refuses an empty one.
func Report(rel release.Sealed, err error, folder string, say Log) (release.Sealed, error) {
	if err != nil {
		return release.Sealed{}, err
	}
	if rel.Files == 0 {
		return release.Sealed{}, fault.New(fault.Invalid, "", "There is nothing to publish",
			fmt.Sprintf("%s contains no file that may be served", folderName(folder)))
	}
	files := "files"
	if rel.Files == 1 {
		files = "file"
	}
	for _, skipped := range rel.Skipped {
		say("warn", "%s", skipped)
	}
	for _, problem := range rel.Problems {
		say("warn", "%s", problem)
	}
	say("info", "Published %d %s, %s; %d unchanged", rel.Files, files, Size(rel.Bytes), rel.Reused)
	return rel, nil
}

// inside returns the path relative to the folder, and whether it is below it.
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

// Size formats a number of bytes for people.
func Size(n int64) string {
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
