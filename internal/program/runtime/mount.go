package runtime

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"slipway/internal/platform/fault"
	"slipway/internal/platform/sandbox"
)

// place is something that a program sees at a path of its files.
type place struct {
	at     string // clean, relative to the bundle
	source string // of the host
	root   *os.Root
	stored bool // the program may write to it
	kept   bool // it outlives the program
}

// mount shows a program what lies in its bundle's tree: other bundles, storage, files.
// Each is put over what is there, the outer before the inner.
func (p *Processes) mount(ctx context.Context, s *Spec, x *process, cmd *sandbox.Command, tree, dir string) (err error) {
	if x.files.tree, err = os.OpenRoot(tree); err != nil {
		return fmt.Errorf("open program: %w", err)
	}
	type wanted struct {
		at   string
		open func(at string, under *os.Root, rest string) (place, error)
	}
	var all []wanted
	for _, t := range s.Trees {
		all = append(all, wanted{t.Path, func(at string, _ *os.Root, _ string) (place, error) {
			dir, done, err := p.c.Bundles.Open(ctx, s.Owner, t.Bundle)
			if err != nil {
				return place{}, err
			}
			x.files.done = append(x.files.done, done)
			if dir, err = folderOf(dir, t.From); err != nil {
				return place{}, fmt.Errorf("mount %s: %w", at, err)
			}
			return place{at: at, source: dir}, nil
		}})
	}
	for i, st := range s.Storage {
		all = append(all, wanted{st.Path, func(at string, under *os.Root, rest string) (place, error) {
			if st.Temporary || s.Isolated {
				own := filepath.Join(dir, "temporary", strconv.Itoa(i))
				return place{at: at, source: own, stored: true}, fresh(own, under, rest, cmd.UID)
			}
			_, name, err := st.Clean()
			if err != nil {
				return place{}, err
			}
			own, err := p.storage(s.store(), name, under, rest, cmd.UID)
			return place{at: at, source: own, stored: true, kept: true}, err
		}})
	}
	for i, want := range all {
		if all[i].at, err = cleanPath(want.at); err != nil {
			return err
		}
	}
	slices.SortStableFunc(all, func(a, b wanted) int { return strings.Count(a.at, "/") - strings.Count(b.at, "/") })
	for _, want := range all {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		under, rest := x.files.in(want.at)
		if rest == "." {
			return fmt.Errorf("mount %s: twice", want.at)
		}
		if err := mountPoint(under.root, rest); err != nil {
			return fault.New(fault.Invalid, "invalid_storage", fmt.Sprintf("The folder %s can't be storage", want.at),
				"a file or link already has this path")
		}
		pl, err := want.open(want.at, under.root, rest)
		if err != nil {
			return err
		}
		if pl.root, err = os.OpenRoot(pl.source); err != nil {
			return fmt.Errorf("mount %s: %w", want.at, err)
		}
		x.files.places = slices.Insert(x.files.places, 0, pl) // the inner first
		cmd.Binds = append(cmd.Binds, sandbox.Bind{Source: pl.source, Target: path.Join(AppDir, pl.at), Write: pl.stored, Stored: pl.kept})
	}
	return p.layFiles(s.Files, x, cmd, dir)
}

// folderOf returns a folder of a tree, to which no link leads.
func folderOf(tree, from string) (string, error) {
	if from == "" {
		return tree, nil
	}
	from, err := cleanPath(from)
	if err != nil {
		return "", err
	}
	for part := range strings.SplitSeq(from, "/") {
		tree = filepath.Join(tree, part)
		if info, err := os.Lstat(tree); err != nil {
			return "", err
		} else if !info.IsDir() {
			return "", fmt.Errorf("%s is not a folder", from)
		}
	}
	return tree, nil
}

// layFiles shows single files of the specification.
func (p *Processes) layFiles(files []File, x *process, cmd *sandbox.Command, dir string) error {
	for i, f := range files {
		at, err := cleanPath(f.Path)
		if err != nil {
			return err
		}
		under, rest := x.files.in(at)
		if under.stored {
			return fmt.Errorf("lay %s: it lies in storage", at)
		}
		if err := filePoint(under.root, rest); err != nil {
			return fmt.Errorf("lay %s: %w", at, err)
		}
		own := filepath.Join(dir, "files", strconv.Itoa(i))
		if err := os.MkdirAll(filepath.Dir(own), 0o711); err != nil {
			return fmt.Errorf("lay %s: %w", at, err)
		}
		// The program's user alone may read it: it may hold a password.
		// unsynced: each start of the program writes it
		if err := os.WriteFile(own, f.Text, 0o400); err != nil {
			return fmt.Errorf("lay %s: %w", at, err)
		}
		if os.Geteuid() == 0 {
			if err := os.Lchown(own, cmd.UID, cmd.UID); err != nil {
				return fmt.Errorf("lay %s: %w", at, err)
			}
		}
		cmd.Binds = append(cmd.Binds, sandbox.Bind{Source: own, Target: path.Join(AppDir, at)})
	}
	return nil
}

// Clean returns a folder's path relative to the bundle and which of the site's folders it is, both in canonical form.
func (s Storage) Clean() (at, name string, err error) {
	if at, err = cleanPath(s.Path); err != nil {
		return "", "", err
	}
	if name = at; s.Name != "" {
		name, err = cleanPath(s.Name)
	}
	return at, name, err
}

// cleanPath returns a path in a bundle in its canonical form.
func cleanPath(name string) (string, error) {
	clean := strings.TrimPrefix(path.Clean("/"+name), "/")
	if clean == "" || clean[0] == '@' || len(clean) > 200 ||
		strings.ContainsFunc(clean, func(r rune) bool { return r < ' ' || r == '\\' || r == 0x7f }) {
		return "", fault.New(fault.Invalid, "invalid_storage", "Invalid storage folder",
			"a folder of the project, such as storage or public/uploads").Got(name)
	}
	return clean, nil
}

// mountPoint makes sure that a folder is there to be covered. An empty folder more in a tree
// changes nothing for others that share it.
func mountPoint(root *os.Root, name string) error {
	if err := root.MkdirAll(name, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	at := ""
	for part := range strings.SplitSeq(name, "/") {
		at = path.Join(at, part)
		if info, err := root.Lstat(at); err != nil || !info.IsDir() {
			return errors.New("not a folder")
		}
	}
	return nil
}

// filePoint makes sure that a file is there to be covered.
func filePoint(root *os.Root, name string) error {
	if dir := path.Dir(name); dir != "." {
		if err := mountPoint(root, dir); err != nil {
			return err
		}
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o444)
	if err == nil {
		return f.Close()
	}
	if info, e := root.Lstat(name); e != nil || !info.Mode().IsRegular() {
		return errors.New("not a file")
	}
	return nil
}
