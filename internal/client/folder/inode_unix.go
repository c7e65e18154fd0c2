//go:build unix

package folder

import (
	"io/fs"
	"syscall"
)

// inode distinguishes files that were renamed over one another.
func inode(info fs.FileInfo) uint64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return s.Ino
	}
	return 0
}
