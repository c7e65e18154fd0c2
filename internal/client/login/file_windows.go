package login

import (
	"io/fs"
	"os"

	"golang.org/x/sys/windows"
)

// exclusive waits until nobody else has a lock of the file, which ends when it is closed.
func exclusive(f *os.File) error {
	return windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK, 0, 1, 0, new(windows.Overlapped))
}

// private is true: what is in a user's profile only they can read, and the mode that Go shows says nothing of it.
func private(fs.FileInfo) bool { return true }
