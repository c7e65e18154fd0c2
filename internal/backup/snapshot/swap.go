package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"slipway/internal/backup/repository"
	"slipway/internal/platform/disk"
	"slipway/internal/tenant/site"
)

// Swap is a storage folder's new content, ready beside it.
type Swap struct {
	folder    Folder
	Next, old string // directories beside it, on the same file system: of what comes, and of what goes
	merge     bool   // what is not in next stays
}

func (w Swap) Drop() {
	os.RemoveAll(w.Next)
	if w.old != "" {
		os.RemoveAll(w.old)
	}
}

// Prepare writes files beside the folder, owned as it is.
func Prepare(ctx context.Context, in *Reader, f Folder, files []repository.File, merge bool) (w Swap, err error) {
	defer func() {
		if err != nil {
			w.Drop()
		}
	}()
	beside := filepath.Join(filepath.Dir(f.Dir), ".restore-"+filepath.Base(f.Dir))
	w = Swap{folder: f, Next: beside, old: beside + "-old", merge: merge}
	if err := errors.Join(os.RemoveAll(w.Next), os.RemoveAll(w.old)); err != nil { // of an attempt that a crash ended
		return w, err
	}
	if err := os.MkdirAll(w.Next, 0o755); err != nil {
		return w, fmt.Errorf("restore storage: %w", err)
	}
	disk, err := os.Open(w.Next)
	if err != nil {
		return w, err
	}
	defer disk.Close()
	early := &flusher{dir: disk, turn: make(chan struct{}, 1)}
	defer early.wait()
	if err := in.Write(ctx, w.Next, f.Dir, files, early.wrote); err != nil {
		return w, err
	}
	if err := OwnLike(w.Next, f.Dir); err != nil {
		return w, err
	}
	return w, SyncAll(w.Next)
}

// PutAll puts all that is ready beside a site's folders in its place. The site's programs are held.
func PutAll(ctx context.Context, s Storage, id site.ID, swaps []Swap) error {
	if len(swaps) == 0 {
		return nil
	}
	stored, err := s.FetchStorage(ctx, id) // what they have changed meanwhile
	if err != nil {
		return err
	}
	defer stored.Close()
	for _, w := range swaps {
		if err := w.Put(); err != nil {
			return err
		}
	}
	return s.KeepStorage(ctx, id)
}

// PutBack makes storage folders of a site what a backup has of them, all of them or none; below says where that is in the backup. The
// site's programs are held only while they are exchanged, and until renew has ended those that know what was there. Folders that are not
// named stay.
func PutBack(
	ctx context.Context,
	s Storage,
	in *Reader,
	id site.ID,
	below string,
	folders []string,
	renew func(ctx context.Context, id site.ID) error,
) error {
	stored, err := s.FetchStorage(ctx, id)
	if err != nil {
		return err
	}
	defer stored.Close()
	have, err := s.StorageFolders(id)
	if err != nil {
		return err
	}
	var swaps []Swap
	defer func() {
		for _, w := range swaps {
			w.Drop()
		}
	}()
	for _, name := range folders {
		dir := have[name]
		if dir == "" {
			if dir, err = s.MakeStorage(ctx, id, name); err != nil {
				return err
			}
		}
		w, err := Prepare(ctx, in, Folder{Name: name, Dir: dir}, in.Manifest.Under(below+name+"/"), false)
		if err != nil {
			return err
		}
		swaps = append(swaps, w)
	}
	release := s.Hold(id)
	defer release()
	if err := PutAll(ctx, s, id, swaps); err != nil {
		return err
	}
	return renew(ctx, id)
}

// Put exchanges the folder's content, not the folder, which running programs see. A crash
// in the middle is mended by the job's next attempt.
func (w Swap) Put() error {
	if err := os.MkdirAll(w.folder.Dir, 0o755); err != nil {
		return fmt.Errorf("restore storage: %w", err)
	}
	if !w.merge {
		return w.replace()
	}
	// Its files are the site's, which may have put links anywhere: each is written inside.
	from, err := os.OpenRoot(w.Next)
	if err != nil {
		return fmt.Errorf("restore storage: %w", err)
	}
	defer from.Close()
	to, err := os.OpenRoot(w.folder.Dir)
	if err != nil {
		return fmt.Errorf("restore storage: %w", err)
	}
	defer to.Close()
	return fs.WalkDir(from.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		info, err := from.Lstat(name)
		if err != nil {
			return err
		}
		if !e.IsDir() {
			if err := to.RemoveAll(name); err != nil {
				return err
			}
		}
		switch {
		case e.IsDir():
			err = to.MkdirAll(name, 0o755)
		case e.Type() == fs.ModeSymlink:
			var target string
			if target, err = from.Readlink(name); err == nil {
				err = to.Symlink(target, name)
			}
		default:
			err = copyFile(from, to, name, info.Mode().Perm())
		}
		if err != nil {
			return fmt.Errorf("restore storage: %w", err)
		}
		return chownLike(to, name, info)
	})
}

// replace moves the folder's content out and the new one in: the site is held meanwhile, so
// what was there is deleted later.
func (w Swap) replace() error {
	if err := errors.Join(disk.SyncAll(w.Next), os.Mkdir(w.old, 0o700)); err != nil {
		return fmt.Errorf("restore storage: %w", err)
	}
	old, err := os.ReadDir(w.folder.Dir)
	if err != nil {
		return fmt.Errorf("restore storage: %w", err)
	}
	for _, e := range old { // a link among them is moved, not followed
		if err := os.Rename(filepath.Join(w.folder.Dir, e.Name()), filepath.Join(w.old, e.Name())); err != nil {
			return fmt.Errorf("restore storage: %w", err)
		}
	}
	entries, err := os.ReadDir(w.Next)
	if err != nil {
		return fmt.Errorf("restore storage: %w", err)
	}
	for _, e := range entries { // both are directories of ours: no link is on the way
		if err := os.Rename(filepath.Join(w.Next, e.Name()), filepath.Join(w.folder.Dir, e.Name())); err != nil {
			return fmt.Errorf("restore storage: %w", err)
		}
	}
	return nil
}

func copyFile(from, to *os.Root, name string, mode fs.FileMode) error {
	in, err := from.Open(name)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := to.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Sync(), out.Close())
}

// OwnLike gives a tree that write has written to the owner of dir: its folders and links, for
// the files have theirs.
func OwnLike(tree, dir string) error {
	info, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(tree)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := os.Chmod(tree, info.Mode().Perm()); err != nil {
		return err
	}
	return fs.WalkDir(root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.Type().IsRegular() {
			return err
		}
		return chownLike(root, name, info)
	})
}

func chownLike(root *os.Root, name string, like fs.FileInfo) error {
	st, ok := like.Sys().(*syscall.Stat_t)
	if !ok || os.Geteuid() != 0 {
		return nil // everything is ours
	}
	return root.Lchown(name, int(st.Uid), int(st.Gid))
}

// fileLike is chownLike of an open file; like may be nil.
func fileLike(f *os.File, like fs.FileInfo) error {
	if like == nil || os.Geteuid() != 0 {
		return nil
	}
	st, ok := like.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	return f.Chown(int(st.Uid), int(st.Gid))
}
