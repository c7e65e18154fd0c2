// Package inside owns reading and writing files in untrusted folders, such as a cloned repository.
//
// It follows no link below such a folder, since a link could redirect a write to any of the user's files. It writes a
// file under a new temporary name and then renames it.
package inside

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// File is a file being written. Commit gives it its name; Close without Commit leaves the existing file unchanged.
type File struct {
	*os.File
	root       *os.Root
	temp, name string
	done       bool
}

// Create starts writing the file at a path, which is below dir or was named by the user. It creates missing folders
// below dir.
func Create(dir, path string, mode fs.FileMode) (*File, error) {
	root, name, err := open(dir, path, true)
	if err != nil {
		return nil, err
	}
	temp := ".slipway-" + rand.Text()
	f, err := root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return &File{File: f, root: root, temp: temp, name: name}, nil
}

// Commit replaces the existing file.
func (f *File) Commit() error {
	if err := errors.Join(f.Sync(), f.File.Close()); err != nil {
		return err
	}
	err := f.root.Rename(f.temp, f.name)
	f.done = err == nil
	return err
}

// Close ends writing and removes an uncommitted file.
func (f *File) Close() error {
	_ = f.File.Close()
	var err error
	if !f.done {
		err = f.root.Remove(f.temp)
	}
	return errors.Join(err, f.root.Close())
}

// Write replaces the file at a path, with Create and Commit.
func Write(dir, path string, text []byte, mode fs.FileMode) error {
	f, err := Create(dir, path, mode)
	if err != nil {
		return err
	}
	if _, err = f.Write(text); err == nil {
		err = f.Commit()
	}
	return errors.Join(err, f.Close())
}

// Read returns the content and mode of a file of at most most bytes. It returns ErrLink if the path contains a link.
func Read(dir, path string, most int64) (text []byte, mode fs.FileMode, err error) {
	root, name, err := open(dir, path, false)
	if err != nil {
		return nil, 0, err
	}
	defer root.Close()
	info, err := root.Lstat(name)
	if err != nil {
		return nil, 0, err
	}
	if !info.Mode().IsRegular() {
		return nil, 0, fmt.Errorf("%s: %w", filepath.Join(root.Name(), name), ErrLink)
	}
	f, err := root.Open(name)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	text, err = io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("%s is larger than %d bytes", filepath.Join(root.Name(), name), most)
	}
	return text, info.Mode().Perm(), err
}

// Remove removes a file or link.
func Remove(dir, path string) error {
	root, name, err := open(dir, path, false)
	if err != nil {
		return err
	}
	return errors.Join(root.Remove(name), root.Close())
}

// ErrLink is returned for a link or device in place of a file or folder.
var ErrLink = errors.New("it is a link or no regular file: remove it")

// open opens the folder of a path. If the path leads out of dir, the user named it, so links are followed.
func open(dir, path string, missing bool) (root *os.Root, name string, err error) {
	if filepath.IsAbs(path) {
		if rel, err := filepath.Rel(dir, path); err == nil && filepath.IsLocal(rel) {
			path = rel
		}
	} else if !filepath.IsLocal(path) {
		path = filepath.Join(dir, path)
	}
	name = filepath.Base(path)
	if filepath.IsAbs(path) {
		root, err = os.OpenRoot(filepath.Dir(path))
		return root, name, err
	}
	if root, err = os.OpenRoot(dir); err != nil {
		return nil, "", err
	}
	for _, part := range strings.Split(filepath.Dir(path), string(filepath.Separator)) {
		if part == "." {
			continue
		}
		next, err := step(root, part, missing)
		_ = root.Close()
		if err != nil {
			return nil, "", err
		}
		root = next
	}
	return root, name, nil
}

// step opens a folder within another.
func step(root *os.Root, name string, missing bool) (*os.Root, error) {
	if missing {
		if err := root.Mkdir(name, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
	}
	seen, err := root.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !seen.IsDir() {
		return nil, fmt.Errorf("%s: %w", filepath.Join(root.Name(), name), ErrLink)
	}
	next, err := root.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	if now, err := next.Stat("."); err != nil || !os.SameFile(seen, now) { // replaced meanwhile
		return nil, errors.Join(fmt.Errorf("%s: %w", filepath.Join(root.Name(), name), ErrLink), next.Close())
	}
	return next, nil
}
