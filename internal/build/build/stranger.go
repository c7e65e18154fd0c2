package build

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// A build's files are untrusted, and it may have replaced any of them: the checkout by a link to a directory of the
// host, or a file by a pipe that blocks when it is opened. All its processes are dead when its files are opened.

// errNoCheckout means that the build replaced the checkout.
var errNoCheckout = errors.New("the build has put something else in the place of the repository")

// checkout opens the build's repository directory.
func (b *build) checkout() (*os.Root, error) {
	if !plainDir(b.work, RepoDir) {
		return nil, errNoCheckout
	}
	root, err := os.OpenRoot(b.work)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return root.OpenRoot(RepoDir)
}

// openRegular opens a regular file; links inside root are followed.
func openRegular(root *os.Root, name string) (*os.File, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		_ = f.Close()
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	return f, nil
}

// names returns up to most entries of a directory, unsorted.
func names(root *os.Root, dir string, most int) []string {
	f, err := root.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil
	}
	defer f.Close()
	list, _ := f.Readdirnames(most)
	return list
}
