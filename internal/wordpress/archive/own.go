package archive

import (
	"io/fs"
	"os"
	"syscall"
)

// OwnLike gives a tree that we have written to the owner of dir.
func OwnLike(tree, dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || os.Geteuid() != 0 {
		return nil // everything is ours
	}
	root, err := os.OpenRoot(tree)
	if err != nil {
		return err
	}
	defer root.Close()
	return fs.WalkDir(root.FS(), ".", func(name string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return root.Lchown(name, int(st.Uid), int(st.Gid))
	})
}
