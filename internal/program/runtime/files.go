package runtime

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// files holds what a program sees: its tree, and what is put over it.
type files struct {
	tree   *os.Root
	places []place  // the inner ones first
	done   []func() // releases the trees of places
}

func (f *files) close() {
	if f.tree != nil {
		_ = f.tree.Close()
	}
	for _, p := range f.places {
		if p.root != nil { // of a View
			_ = p.root.Close()
		}
	}
	for _, done := range f.done {
		done()
	}
}

// in returns the place that a clean path lies in, and the path there.
func (f *files) in(name string) (place, string) {
	for _, p := range f.places {
		if name == p.at {
			return p, "."
		}
		if rest, ok := strings.CutPrefix(name, p.at+"/"); ok {
			return p, rest
		}
	}
	return place{root: f.tree}, name
}

// maxLinks is how many links a path may lead over.
const maxLinks = 16

// open opens a path. Links in storage, which the program has made, never leave it.
func (f *files) open(name string) (file *os.File, stored bool, err error) {
	in, rest, err := f.find(name)
	if err != nil {
		return nil, false, err
	}
	file, err = in.open(rest)
	return file, in.stored, err
}

// find returns the place that a path leads to, and the path there. Links of the tree are followed one at a time, so that one
// which leads into storage does so.
func (f *files) find(name string) (place, string, error) {
	if name = strings.TrimPrefix(path.Clean("/"+name), "/"); name == "" {
		name = "."
	}
	for range maxLinks {
		in, rest := f.in(name)
		if in.stored {
			return in, rest, nil
		}
		to, err := step(in.root, rest)
		if err != nil {
			return place{}, "", err
		}
		if to == "" {
			return in, rest, nil
		}
		// Relative to the whole: a link of a tree may lead into another or into storage.
		if name = path.Join(in.at, to); name == ".." || strings.HasPrefix(name, "../") {
			return place{}, "", errOutside
		}
	}
	return place{}, "", &fs.PathError{Op: "open", Path: name, Err: syscall.ELOOP}
}

// open opens what is at a path of a place. Nothing waits there, whatever it is.
func (p place) open(name string) (*os.File, error) {
	return p.root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
}

var errOutside = errors.New("a link points outside")

// step returns where a path of a tree leads by the first link in it, relative to the tree,
// perhaps above it; "" where it has none.
func step(root *os.Root, name string) (string, error) {
	at := ""
	parts := strings.Split(name, "/")
	for i, part := range parts {
		at = path.Join(at, part)
		info, err := root.Lstat(at)
		if err != nil {
			return "", err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			continue
		}
		to, err := root.Readlink(at)
		if err != nil {
			return "", err
		}
		if path.IsAbs(to) {
			return "", errOutside
		}
		return path.Join(append([]string{path.Dir(at), to}, parts[i+1:]...)...), nil
	}
	return "", nil
}

func owner(info fs.FileInfo) int {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid)
	}
	return -1
}

// Open opens a file or a folder as the program sees it.
func (x *process) Open(name string) (*os.File, bool, error) { return x.files.open(name) }
