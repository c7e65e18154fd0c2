package snapshot

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"strconv"
	"syscall"
	"time"

	"slipway/internal/backup/repository"
)

// maxNested is how deep folders may lie in each other: each is held open.
const maxNested = 200

// changed reports whether an error says that a file was deleted meanwhile, or that something
// else is there now.
func changed(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP)
}

// openFolder opens a directory of a folder whose program runs, and may put a pipe in its place
// at this moment: to open that as a root would wait for ever.
func openFolder(root *os.Root, name string) (*os.Root, error) {
	dir, err := root.OpenFile(name, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return os.OpenRoot("/proc/self/fd/" + strconv.Itoa(int(dir.Fd())))
}

// stream is a file that is read.
type stream struct {
	*repository.Holes
	io.Closer
}

// settled is how long a file must be unchanged before its time says that it is: kernels before
// 6.13 give all changes of one tick the same time, and a tick takes up to 10 ms.
const settled = 20 * time.Millisecond

// StampOf changes when a file does: a program can set its time of modification back, but
// not that of its last change. It is empty for a file that has changed just now.
func StampOf(info fs.FileInfo) string {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || time.Since(time.Unix(st.Ctim.Unix())) < settled {
		return ""
	}
	return strconv.FormatInt(info.Size(), 36) + "." + strconv.FormatUint(st.Ino, 36) + "." + strconv.FormatInt(st.Ctim.Nano(), 36)
}
