// Package inside owns reading and writing files in folders that others fill, such as a cloned repository.
//
// Below such a folder no link is followed: it could lead a write to any file of the user's. A file is written under another name, which
// must be free, and then takes its place by renaming.
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

// File is one that is being written. It gets its name by Commit; Close without Commit leaves what is there as it is.
type File struct {
	*os.File
	root       *os.Root
	temp, name string
	done       bool
}

// Create begins to write the file at a path, which is below dir or one that the user named. It makes missing folders below dir.
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

// Commit replaces what has the file's name with what was written.
func (f *File) Commit() error {
	if err := errors.Join(f.Sync(), f.File.Close()); err != nil {
		return err
	}
	err := f.root.Rename(f.temp, f.name)
	f.done = err == nil
	return err
}

// Close ends the writing, and removes what was written unless it was committed.
func (f *File) Close() error {
	_ = f.File.Close()
	var err error
	if !f.done {
		err = f.root.Remove(f.temp)
	}
	return errors.Join(err, f.root.Close())
}

// Write replaces the file at a path, as Create and Commit do.
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

// Read returns the content and the mode of a file of at most so many bytes. The error is ErrLink for a link, and on the way to it.
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

// ErrLink is the error of a link or device in the place of a file or folder.
var ErrLink = errors.New("it is a link or no regular file: remove it")

// open opens the folder of a path. Of a path that leads out of dir, the user named the folder, links included.
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

// step opens a folder in another one.
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
