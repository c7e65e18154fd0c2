package framework

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"slipway/internal/build/worktree"
)

// FromFS lists fsys, starting with folders near the top, and reads from it. Symbolic links aren't followed. `.git` and
// `node_modules` are skipped, and the listing ends at 100,000 files. Use it with os.Root.FS(), which can't leave its
// folder, rather than os.DirFS.
func FromFS(fsys fs.FS) (worktree.Files, error) {
	d := &dirFiles{fsys: fsys}
	queue := []string{"."}
	for depth := 0; len(queue) > 0 && depth < worktree.MaxDepth; depth++ {
		var next []string
		for _, dir := range queue {
			entries, err := list(fsys, dir, worktree.MaxPaths)
			if err != nil && dir == "." {
				return nil, fmt.Errorf("list repository: %w", err)
			}
			for _, e := range entries {
				name := path.Join(dir, e.Name())
				switch {
				case len(name) > worktree.MaxPathLen || !worktree.Clean(name):
				case e.IsDir() && e.Name() != ".git" && e.Name() != "node_modules":
					next = append(next, name)
				case e.Type()&fs.ModeSymlink != 0:
					d.links = append(d.links, name)
				case e.Type().IsRegular():
					d.paths = append(d.paths, name)
				}
			}
			if len(d.paths) > worktree.MaxPaths || len(next) > worktree.MaxPaths {
				return d, nil
			}
		}
		queue = next
	}
	return d, nil
}

// list reads a folder in parts, so that a huge folder costs no more than max entries.
func list(fsys fs.FS, dir string, max int) ([]fs.DirEntry, error) {
	f, err := fsys.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r, ok := f.(fs.ReadDirFile)
	if !ok {
		return fs.ReadDir(fsys, dir)
	}
	var all []fs.DirEntry
	for len(all) <= max {
		some, err := r.ReadDir(1024)
		all = append(all, some...)
		if errors.Is(err, io.EOF) || len(some) == 0 {
			break
		}
		if err != nil {
			return all, err
		}
	}
	slices.SortFunc(all, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return all, nil
}

type dirFiles struct {
	fsys  fs.FS
	paths []string
	links []string
}

func (d *dirFiles) Paths() []string { return d.paths }

func (d *dirFiles) Dangling() []string { return d.links }

func (d *dirFiles) ReadFile(name string, max int64) ([]byte, error) {
	f, err := d.fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, max+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > max {
		return b[:max], fmt.Errorf("read %s: %w", name, worktree.ErrTooLarge)
	}
	return b, nil
}
