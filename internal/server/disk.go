package server

import "golang.org/x/sys/unix"

// diskSpace returns the size of the file system that holds dir, and the space that is left,
// in bytes.
func diskSpace(dir string) (size, free int64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, 0, err
	}
	return int64(st.Blocks) * st.Bsize, int64(st.Bavail) * st.Bsize, nil
}

// cachesLeave is how much of a disk's size caches leave free at most.
const cachesLeave = 10 << 30

// lacks returns how many bytes the data directory's disk lacks for caches to stay: they
// leave a tenth of it free, at most 10 GiB.
func (s settings) lacks() int64 {
	size, free, err := diskSpace(s.DataDir)
	if err != nil {
		return 0
	}
	return min(size/10, cachesLeave) - free
}
