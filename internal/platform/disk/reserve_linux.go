package disk

import (
	"io"
	"io/fs"
	"syscall"

	"golang.org/x/sys/unix"
)

// What is left on a file system for the service itself, so that people sign in and jobs end while tenants fill it: a twentieth, and not
// more than this.
const (
	reserveBytes = 256 << 20
	reserveFiles = 16 << 10
	reservePart  = 20
)

// Spare returns an error, for which Full is true, unless tenants may write so many bytes more to the file system that holds dir: a reserve
// of bytes and of files is the service's.
func Spare(dir string, more int64) error {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return nil // the write says why
	}
	size, free := int64(st.Blocks)*st.Bsize, int64(st.Bavail)*st.Bsize
	if free-more < min(size/reservePart, reserveBytes) || st.Files > 0 && int64(st.Ffree) < min(int64(st.Files)/reservePart, reserveFiles) {
		return &fs.PathError{Op: "write beyond the reserve of the disk of", Path: dir, Err: syscall.ENOSPC}
	}
	return nil
}

// Room returns an error, for which Full is true, if the file system that holds dir lacks room for so many bytes, or for a file.
func Room(dir string, size int64) error {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) == nil && (int64(st.Bavail)*st.Bsize < size || st.Files > 0 && st.Ffree == 0) {
		return &fs.PathError{Op: "write to the disk of", Path: dir, Err: syscall.ENOSPC}
	}
	return nil
}

// sparingEvery is how many bytes are read between two looks at the disk.
const sparingEvery = 1 << 20

// Sparing returns a reader of what a tenant sends to a file on the file system that holds dir. It ends with Spare's error.
func Sparing(dir string, r io.Reader) io.Reader { return &sparing{r: r, dir: dir} }

type sparing struct {
	r    io.Reader
	dir  string
	left int64 // bytes until the next look
}

func (s *sparing) Read(b []byte) (int, error) {
	if s.left <= 0 {
		if err := Spare(s.dir, min(int64(len(b)), sparingEvery)); err != nil {
			return 0, err
		}
		s.left = sparingEvery
	}
	n, err := s.r.Read(b)
	s.left -= int64(n)
	return n, err
}
