// Package disk owns writing files that survive a power cut, and recognizes errors of a full disk.
//
// A written and closed file may exist only in memory. After a power cut its name can exist without its content, so a
// later start reads an empty file. Write, Create and Rename return once both are on the disk.
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

// Write replaces a file's content. After a crash or power cut the file has either the new or the old content, complete.
func Write(path string, content []byte, mode fs.FileMode) error {
	return written(path, content, mode, Rename)
}

// Create is [Write] for a new file. It returns fs.ErrExist if the file exists; of several concurrent callers one
// succeeds.
func Create(path string, content []byte, mode fs.FileMode) error {
	return written(path, content, mode, func(from, to string) error {
		if err := os.Link(from, to); err != nil {
			return err
		}
		return Sync(filepath.Dir(to))
	})
}

// written writes content to a temporary file, syncs it, and calls place to move it to path.
func written(path string, content []byte, mode fs.FileMode, place func(from, to string) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // fails once it is renamed
	_, err = f.Write(content)
	if err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return place(f.Name(), path)
}

// Rename renames a synced file and returns once the new name is on the disk too.
func Rename(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	return Sync(filepath.Dir(to))
}

// Sync returns once a file, or a directory's entries, are on the disk.
func Sync(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	if runtime.GOOS == "windows" { // directories can't be synced there
		return f.Close()
	}
	return errors.Join(f.Sync(), f.Close())
}

// Full reports whether err means that the disk or the user's quota is full.
func Full(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }
