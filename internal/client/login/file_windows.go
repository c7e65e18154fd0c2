package login

import (
	"io/fs"
	"os"

	"golang.org/x/sys/windows"
)

// exclusive locks the file; closing it unlocks it.
func exclusive(f *os.File) error {
	return windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK, 0, 1, 0, new(windows.Overlapped))
}

// private returns true: a user's profile is readable only by the user, and Go's file mode doesn't show that.
func private(fs.FileInfo) bool { return true }
