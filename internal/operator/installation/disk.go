package installation

import (
	"context"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"

	"slipway/internal/platform/sandbox"
)

// ImageFile is there where the program runs from Slipway's container image, whose files nothing changes.
const ImageFile = "/usr/lib/slipway/image"

// DiskSpace returns the size of the file system that holds dir, and the space that is left,
// in bytes: what is free, or [sandbox.PerFile] for each file that it has room for where that is
// less.
func DiskSpace(dir string) (size, free int64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, 0, err
	}
	free = int64(st.Bavail) * st.Bsize
	if st.Files > 0 { // some count none
		free = min(free, int64(st.Ffree)*sandbox.PerFile)
	}
	return int64(st.Blocks) * st.Bsize, free, nil
}

// DiskFiles returns how many files the file system that holds dir has room for in all, and how many more.
func DiskFiles(dir string) (all, free int64, err error) {
	var st unix.Statfs_t
	err = unix.Statfs(dir, &st)
	return int64(st.Files), int64(st.Ffree), err
}

// cachesLeave is how much of a disk's size caches leave free at most.
const cachesLeave = 10 << 30

// Lacks returns how many bytes the data directory's disk lacks for caches to stay: they
// leave a tenth of it free, at most 10 GiB.
func (s Store) Lacks() int64 {
	size, free, err := DiskSpace(s.DataDir)
	if err != nil {
		return 0
	}
	return min(size/10, cachesLeave) - free
}

// TreeSize returns how many bytes the files below a directory have.
func TreeSize(ctx context.Context, dir string) (size int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil || !e.Type().IsRegular() {
			return nil // what goes away while we look is not counted
		}
		if info, err := e.Info(); err == nil {
			size += info.Size()
		}
		return nil
	})
	return size, err
}
