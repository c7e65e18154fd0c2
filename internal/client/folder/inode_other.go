//go:build !unix

package folder

import "io/fs"

// inode returns 0: inodes aren't available on this system.
func inode(fs.FileInfo) uint64 { return 0 }
