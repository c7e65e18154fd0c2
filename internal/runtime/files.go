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

// files is what a program sees: its tree, and storage in it.
type files struct {
	tree   *os.Root
	mounts []mounted // the longest path first
}

type mounted struct {
	at   string
	root *os.Root
}

func (f *files) close() {
	if f.tree != nil {
		_ = f.tree.Close()
	}
	for _, m := range f.mounts {
		_ = m.root.Close()
	}
}

// in returns the storage that a clean path lies in, and the path there.
func (f *files) in(name string) (root *os.Root, rest string) {
	for _, m := range f.mounts {
		if name == m.at {
			return m.root, "."
		}
		if rest, ok := strings.CutPrefix(name, m.at+"/"); ok {
			return m.root, rest
		}
	}
	return nil, ""
}

// maxLinks is how many links a path may lead over.
const maxLinks = 16

// open opens a path. Links of the tree are followed one at a time, so that one which leads
// into storage does so; those in storage, which the program has made, never leave it.
func (f *files) open(name string) (*os.File, bool, error) {
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	if name == "" {
		name = "."
	}
	for range maxLinks {
		if root, rest := f.in(name); root != nil {
			file, err := root.OpenFile(rest, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
			return file, true, err
		}
		to, err := f.step(name)
		if err != nil {
			return nil, false, err
		}
		if to == "" {
			file, err := f.tree.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
			return file, false, err
		}
		name = to
	}
	return nil, false, &fs.PathError{Op: "open", Path: name, Err: syscall.ELOOP}
}

// step returns where a path leads by the first link in it; "" where it has none.
func (f *files) step(name string) (string, error) {
	at := ""
	parts := strings.Split(name, "/")
	for i, part := range parts {
		at = path.Join(at, part)
		info, err := f.tree.Lstat(at)
		if err != nil {
			return "", err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			continue
		}
		to, err := f.tree.Readlink(at)
		if err != nil {
			return "", err
		}
		to = path.Join(path.Dir(at), to)
		if path.IsAbs(to) || to == ".." || strings.HasPrefix(to, "../") {
			return "", errors.New("a link leads outside")
		}
		return path.Join(append([]string{to}, parts[i+1:]...)...), nil
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
