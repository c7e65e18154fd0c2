package sandbox

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Own changes the owner of a checked-out tree, including dir, to uid (and the group with the same number), following no
// link. It refuses a file with another name outside the tree, whose owner would change too. Nothing else may write to
// the tree meanwhile. Without root it does nothing, since the tree and the build belong to us.
func Own(dir string, uid int) error {
	if unix.Geteuid() != 0 {
		return nil
	}
	if uid <= 0 {
		return fmt.Errorf("own %s: uid %d is not a site's", dir, uid)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("own: %w", err)
	}
	defer root.Close()

	type shared struct {
		name string
		left uint64 // names not seen yet
	}
	links := map[inode]*shared{}
	err = fs.WalkDir(root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := root.Lstat(name)
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		if int(st.Uid) == uid && int(st.Gid) == uid {
			return nil
		}
		if st.Nlink > 1 && !info.IsDir() {
			i := inode{uint64(st.Dev), st.Ino}
			if links[i] == nil {
				links[i] = &shared{name, uint64(st.Nlink)}
			}
			links[i].left--
			return nil
		}
		return root.Lchown(name, uid, uid)
	})
	if err != nil {
		return fmt.Errorf("own: %w", err)
	}
	for _, s := range links {
		if s.left > 0 {
			return fmt.Errorf("own %s: it has %d more names outside the tree", s.name, s.left)
		}
	}
	for _, s := range links {
		if err := root.Lchown(s.name, uid, uid); err != nil {
			return fmt.Errorf("own: %w", err)
		}
	}
	return nil
}
