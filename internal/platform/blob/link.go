package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// linker is a Backend whose blobs are files that can be hard-linked.
type linker interface {
	link(ctx context.Context, d Digest, size int64, at string) error
}

// errNoLink says that a hard link isn't possible: another file system, or too many links.
var errNoLink = errors.New("no further name")

// Link creates a hard link to the blob's file at the path at, readable by all and writable by nobody, and reports
// whether it could. If not, the store isn't a directory or is on another file system, and the caller must copy. Link
// verifies the bytes first. It returns fs.ErrNotExist if the blob is missing.
func (s *Store) Link(ctx context.Context, d Digest, size int64, at string) (bool, error) {
	l, ok := s.backend.(linker)
	if !ok {
		return false, nil
	}
	err := l.link(ctx, d, size, at)
	if errors.Is(err, errNoLink) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("link blob %s: %w", d, err)
	}
	return true, nil
}

func (d *dir) link(ctx context.Context, digest Digest, size int64, at string) error {
	name, err := place(digest.String())
	if err != nil {
		return err
	}
	f, err := d.root.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Size() != size {
		return fmt.Errorf("%d bytes, want %d: %w", info.Size(), size, ErrCorrupt)
	}
	if _, err := io.Copy(io.Discard, &contextReader{ctx, verify(f, digest, size)}); err != nil {
		return err
	}
	if info.Mode().Perm() != 0o444 {
		if err := f.Chmod(0o444); err != nil {
			return err
		}
	}
	// Link the open file: the name may lead to other bytes by now.
	err = unix.Linkat(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(int(f.Fd())), unix.AT_FDCWD, at, unix.AT_SYMLINK_FOLLOW)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.EXDEV), errors.Is(err, syscall.EMLINK), errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EACCES):
		return errNoLink
	case errors.Is(err, fs.ErrNotExist): // just swept, or /proc is missing
		return errNoLink
	}
	return &os.LinkError{Op: "link", Old: name, New: at, Err: err}
}
