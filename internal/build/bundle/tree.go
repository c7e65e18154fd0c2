package bundle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"slipway/internal/platform/id"

	"golang.org/x/sync/errgroup"

	"slipway/internal/platform/blob"
	"slipway/internal/platform/panics"
)

// make writes the tree of a bundle to a temporary directory and renames it to dir.
func (b *Bundles) make(ctx context.Context, at place, dir string) error {
	m, err := b.load(ctx, at.id)
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(b.path("tmp"), "tree-")
	if err != nil {
		return err
	}
	defer removeAll(tmp) // does nothing after the rename
	root, err := os.OpenRoot(tmp)
	if err != nil {
		return err
	}
	defer root.Close()
	made := map[string]bool{".": true}
	for _, e := range m.Entries {
		if dir := filepath.Dir(e.Path); !made[dir] {
			if err := root.MkdirAll(dir, 0o755); err != nil {
				return err
			}
			made[dir] = true
		}
	}
	g, gctx := errgroup.WithContext(ctx)
	// share: none, one release's: four files at once
	g.SetLimit(4)
	for _, e := range m.Entries {
		if e.Link != "" {
			continue
		}
		g.Go(panics.Safe(func() error { return b.place(gctx, at.owner, e, filepath.Join(tmp, e.Path)) }))
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for _, e := range m.Entries { // last, so that no file is placed through a link
		if e.Link != "" {
			if err := os.Symlink(e.Link, filepath.Join(tmp, e.Path)); err != nil {
				return err
			}
		}
	}
	if err := os.Chmod(tmp, 0o755); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o711); err != nil {
		return err
	}
	return os.Rename(tmp, dir)
}

// place puts a file into an owner's tree: a hard link to the same file of the owner's other trees, or a copy if the
// file system allows no further links. A shared file is a hard link to the blob itself, if blobs are files on the same
// file system, unless it is executable, because the modes differ.
func (b *Bundles) place(ctx context.Context, owner id.Owner, e entry, at string) error {
	if e.Common {
		owner = commonFiles
	}
	if e.Common && !e.Exec {
		d, err := blob.ParseDigest(e.Digest)
		if err != nil {
			return err
		}
		if linked, err := b.c.Blobs.Link(ctx, d, e.Size, at); linked || err != nil {
			return err
		}
	}
	shared := b.path("files", string(owner), e.Digest[:2], e.Digest)
	if own := modeOf(e); own&0o200 != 0 {
		shared += "w" // before it, versions of Slipway made files that no program may write to
	}
	if e.Exec {
		shared += "x"
	}
	if os.Link(shared, at) == nil {
		return nil
	}
	// It doesn't exist, or has the maximum number of links.
	if err := b.write(ctx, e, at); err != nil {
		return err
	}
	err := os.Link(at, shared)
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(filepath.Dir(shared), 0o711); err != nil {
			return err
		}
		err = os.Link(at, shared)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// modeOf returns the mode of a file in a tree. Root's files may be written to by their owner, since a program becomes the
// owner of what it changes (see sandbox.Bind.Layer). The files themselves stay root's.
func modeOf(e entry) os.FileMode {
	mode := os.FileMode(0o444)
	if e.Exec {
		mode |= 0o111
	}
	if os.Geteuid() == 0 && !e.Common {
		mode |= 0o200
	}
	return mode
}

// write writes and verifies a file's content, and renames it to its place.
func (b *Bundles) write(ctx context.Context, e entry, at string) error {
	r, err := b.open(ctx, e)
	if err != nil {
		return err
	}
	defer r.Close()
	// ext4 places a new file's inode near its folder: in a single folder, creating files is ten times as fast.
	f, err := os.CreateTemp(b.path("tmp"), "file-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if _, err := io.Copy(f, r); err != nil {
		return err
	}
	if err := errors.Join(f.Chmod(modeOf(e)), f.Close()); err != nil { // a file that is open for writing can't be executed (ETXTBSY)
		return err
	}
	return os.Rename(f.Name(), at)
}

// open opens the blob of a file and checks its size against the manifest.
func (b *Bundles) open(ctx context.Context, e entry) (io.ReadCloser, error) {
	d, err := blob.ParseDigest(e.Digest)
	if err != nil {
		return nil, err
	}
	r, size, err := b.c.Blobs.Open(ctx, d)
	if err != nil {
		return nil, err
	}
	if size != e.Size {
		r.Close()
		return nil, fmt.Errorf("blob %s has %d bytes, want %d", d, size, e.Size)
	}
	return r, nil
}

// tidyFiles deletes files that no tree contains and that are older than idle.
func (b *Bundles) tidyFiles(idle time.Duration) error {
	return filepath.WalkDir(b.path("files"), func(name string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return nil // gone meanwhile
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Nlink == 1 && time.Since(info.ModTime()) > idle {
			return os.Remove(name)
		}
		return nil
	})
}

// removeAll deletes a tree even if its folders lack permissions.
func removeAll(dir string) error {
	err := os.RemoveAll(dir)
	if err == nil {
		return nil
	}
	_ = filepath.WalkDir(dir, func(name string, e fs.DirEntry, _ error) error {
		if e != nil && e.IsDir() {
			_ = os.Chmod(name, 0o700)
		}
		return nil
	})
	return os.RemoveAll(dir)
}
