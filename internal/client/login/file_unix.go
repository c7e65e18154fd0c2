//go:build unix

package login

import (
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// exclusive waits until nobody else has a lock of the file, which ends when it is closed.
func exclusive(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_EX) }

// private reports whether nobody else may read a file.
func private(info fs.FileInfo) bool { return info.Mode().Perm()&0o077 == 0 }
