// Package disk owns files that survive a power cut, and what errors of a full disk look like.
//
// A file that was written and closed is in memory only. After a power cut its name can be there without its content: a later start
// then reads an empty file. Write, Create and Rename return once the disk has both.
package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
)

// Write gives a file this content. After a crash or a power cut, path has the whole content, or what it had before.
func Write(path string, content []byte, mode fs.FileMode) error {
	return written(path, content, mode, Rename)
}

// Create is Write for a file that must not be there yet: else the error is fs.ErrExist. Of several callers at once, one succeeds.
func Create(path string, content []byte, mode fs.FileMode) error {
	return written(path, content, mode, func(from, to string) error {
		if err := os.Link(from, to); err != nil {
			return err
		}
		return Sync(filepath.Dir(to))
	})
}

// written has place give path to a temporary file whose content is on the disk.
func written(path string, content []byte, mode fs.FileMode, place func(from, to string) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // not found once it is renamed
	_, err = f.Write(content)
	if err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return place(f.Name(), path)
}

// Rename renames a file whose content is on the disk, and returns once the new name is there too.
func Rename(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	return Sync(filepath.Dir(to))
}

// Sync returns once a file, or the names in a directory, are on the disk.
func Sync(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	if runtime.GOOS == "windows" { // there, a directory can't be synced
		return f.Close()
	}
	return errors.Join(f.Sync(), f.Close())
}

// Full reports whether err says that a disk is full, or the room that its user may take.
func Full(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }
