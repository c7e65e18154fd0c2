package setup

import (
	"io/fs"
	"os"
	"syscall"
)

// ownedAs gives a file the owner and the group of another.
func ownedAs(f *os.File, like fs.FileInfo) error {
	st, ok := like.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	return f.Chown(int(st.Uid), int(st.Gid))
}
