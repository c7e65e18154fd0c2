//go:build unix

package login

import (
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// exclusive locks the file; closing it unlocks it.
func exclusive(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_EX) }

// private reports whether only the owner may read the file.
func private(info fs.FileInfo) bool { return info.Mode().Perm()&0o077 == 0 }
