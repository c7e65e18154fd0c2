package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"slipway/internal/backup/repository"
	"slipway/internal/platform/blob"
)

// PutBlobs puts all blobs of a backup into a store.
func (in *Reader) PutBlobs(ctx context.Context, store *blob.Store) error {
	batch := store.Batch(ctx)
	for _, f := range in.Manifest.Under(InBlobs) {
		want, err := blob.ParseDigest(f.Path)
		if err != nil {
			return fmt.Errorf("%s: %w", f.Path, repository.ErrDamaged)
		}
		var got blob.Digest
		f.Path = InBlobs + f.Path
		err = in.Pipe(ctx, f, func(r io.Reader) (err error) {
			got, _, err = batch.Put(r)
			return err
		})
		if err != nil {
			return errors.Join(err, batch.Flush())
		}
		if got != want {
			return errors.Join(fmt.Errorf("%s: %w", f.Path, repository.ErrDamaged), batch.Flush())
		}
	}
	return batch.Flush()
}

// flusher has what was written go to the disk while more is written, so that the sync at the
// end is short.
type flusher struct {
	dir  *os.File
	n    int64         // bytes since the last one
	turn chan struct{} // holds one while the disk writes
}

const flushEvery = 64 << 20

func (f *flusher) wrote(n int64) {
	if f.n += n; f.n < flushEvery {
		return
	}
	select {
	case f.turn <- struct{}{}:
		f.n = 0
		// uncaught: waits for the disk
		go func() {
			_ = unix.Syncfs(int(f.dir.Fd())) // the one at the end says what is wrong
			<-f.turn
		}()
	default:
	}
}

func (f *flusher) wait() { f.turn <- struct{}{} }

// Write writes files and links into an empty directory. Its files are owned as like is, or by
// who runs this where that isn't there; ownLike does it for the rest. wrote hears how much;
// optional.
func (in *Reader) Write(ctx context.Context, dir, like string, files []repository.File, wrote func(n int64)) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	owner, err := os.Stat(like)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	at := &openFolders{root: root}
	defer at.close()
	for _, x := range files {
		if x.Link != "" {
			continue
		}
		folder, err := at.of(path.Dir(x.Path))
		if err != nil {
			return fmt.Errorf("restore storage: %w", err)
		}
		out, err := folder.OpenFile(path.Base(x.Path), os.O_WRONLY|os.O_CREATE|os.O_EXCL, fs.FileMode(x.Mode)&0o777|0o600)
		if err != nil {
			return fmt.Errorf("restore storage: %w", err)
		}
		to := repository.NewSparse(out)
		if err := errors.Join(fileLike(out, owner), in.Copy(ctx, to, x), to.Close(), out.Close()); err != nil {
			return err
		}
		if wrote != nil {
			wrote(x.Size)
		}
	}
	for _, x := range files { // last, so that nothing is written through one
		if x.Link == "" {
			continue
		}
		if err := root.MkdirAll(path.Dir(x.Path), 0o755); err != nil {
			return fmt.Errorf("restore storage: %w", err)
		}
		if err := root.Symlink(x.Link, x.Path); err != nil {
			return fmt.Errorf("restore storage: %w", err)
		}
	}
	return nil
}

// openFolders opens the folders of files that come in the order of their paths: a folder is
// made and opened once for all that it holds.
type openFolders struct {
	root *os.Root
	name string
	last *os.Root // nil: none yet
}

func (o *openFolders) of(name string) (*os.Root, error) {
	if name == "." {
		return o.root, nil
	}
	if o.last != nil && o.name == name {
		return o.last, nil
	}
	o.close()
	if err := o.root.MkdirAll(name, 0o755); err != nil {
		return nil, err
	}
	last, err := o.root.OpenRoot(name)
	o.name, o.last = name, last
	return last, err
}

func (o *openFolders) close() {
	if o.last != nil {
		_ = o.last.Close()
	}
	o.last = nil
}

// SyncAll returns when all that was written to the file system of dir is on disk: once for
// thousands of files.
func SyncAll(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := unix.Syncfs(int(d.Fd())); err != nil {
		return fmt.Errorf("write to disk: %w", err)
	}
	return nil
}
