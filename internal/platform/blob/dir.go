package blob

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"slipway/internal/platform/disk"
)

// dir is the Backend on a directory: blobs are in ab/abcdef…, files being written in tmp/. A blob appears by rename
// once it is complete and on disk, so a crash leaves at most a file in tmp/. Batches of small blobs use journals in
// log/: see journal.go.
type dir struct {
	root        *os.Root
	settleAfter time.Duration
	settling    sync.WaitGroup // journals still to be settled
	settler     sync.Mutex     // held while a journal is settled
	closed      chan struct{}
	close       sync.Once

	fanning sync.Mutex
	fanned  atomic.Bool // the blobs' directories exist on disk
}

const tmp = "tmp"

// OpenDir opens the store in a directory, which it creates (0700) if missing.
func OpenDir(path string) (*Store, error) {
	d, err := Dir(path)
	if err != nil {
		return nil, fmt.Errorf("open blobs: %w", err)
	}
	return New(Config{Backend: d, Scratch: filepath.Join(path, tmp)}), nil
}

// In reports whether a blob is in the store at path. It neither opens the store nor creates anything.
func In(path string, d Digest) bool {
	at, err := place(d.String())
	if err == nil {
		_, err = os.Stat(filepath.Join(path, at))
	}
	return err == nil
}

// Dir returns the Backend of [OpenDir]. Put fsyncs the file, renames it into place and fsyncs the directory before it
// returns.
func Dir(path string) (Backend, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	d := &dir{root: root, settleAfter: settleAfter, closed: make(chan struct{})}
	made, err := d.mkdirs(tmp, logDir)
	if err != nil {
		return nil, err
	}
	if made {
		if err := syncPath(filepath.Dir(path)); err != nil {
			return nil, err
		}
	}
	d.clean()
	return d, d.replay(context.Background())
}

// mkdirs creates missing directories and reports whether any was missing.
func (d *dir) mkdirs(names ...string) (made bool, err error) {
	for _, name := range names {
		switch err := d.root.Mkdir(name, 0o700); {
		case err == nil:
			made = true
		case !errors.Is(err, fs.ErrExist):
			return made, err
		}
	}
	if made {
		err = d.syncDir(".")
	}
	return made, err
}

// fanOut creates the blobs' directories before the first put; a store that is only read doesn't need them.
func (d *dir) fanOut() error {
	if d.fanned.Load() {
		return nil
	}
	d.fanning.Lock()
	defer d.fanning.Unlock()
	names := make([]string, 256)
	for i := range names {
		names[i] = fmt.Sprintf("%02x", i)
	}
	if _, err := d.mkdirs(names...); err != nil {
		return err
	}
	d.fanned.Store(true)
	return nil
}

// clean removes files older than a day from tmp/, which a crash left. Newer ones may belong to another process.
func (d *dir) clean() {
	for _, e := range d.read(tmp) {
		info, err := e.Info()
		if err == nil && time.Since(info.ModTime()) > 24*time.Hour {
			d.root.Remove(filepath.Join(tmp, e.Name()))
		}
	}
}

func (d *dir) read(name string) []fs.DirEntry {
	list, err := fs.ReadDir(d.root.FS(), name)
	if err != nil {
		return nil
	}
	return list
}

func (d *dir) Put(ctx context.Context, name string, r io.Reader, size int64) error {
	if err := d.put(ctx, name, r, size, true); err != nil {
		return err
	}
	return d.syncDir(name[:2])
}

// put writes a blob without syncing its directory. It syncs the file only if sync is true.
func (d *dir) put(ctx context.Context, name string, r io.Reader, size int64, sync bool) error {
	path, err := place(name)
	if err != nil {
		return err
	}
	if rs, ok := r.(io.ReadSeeker); ok && d.refresh(path, rs, size, sync) {
		return ctx.Err()
	}
	if err := disk.Spare(d.root.Name(), size); err != nil {
		return err
	}
	if err := d.fanOut(); err != nil {
		return err
	}
	temp := filepath.Join(tmp, rand.Text())
	f, err := d.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	n, err := io.Copy(f, &contextReader{ctx, r})
	if err == nil && n != size {
		err = fmt.Errorf("%d bytes came, %d were announced: %w", n, size, io.ErrUnexpectedEOF)
	}
	if err == nil && sync {
		err = f.Sync()
	}
	err = cmp.Or(err, f.Close())
	if err == nil {
		err = d.root.Rename(temp, path)
	}
	if err != nil {
		d.root.Remove(temp)
	}
	return err
}

// refresh renews the time of an existing blob and reports whether it exists with exactly r's bytes; a damaged one must
// be written again. The file may not be on disk yet, so refresh fsyncs it if sync is true; the caller fsyncs the
// directory.
func (d *dir) refresh(path string, r io.ReadSeeker, size int64, sync bool) bool {
	info, err := d.root.Lstat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size() != size {
		return false
	}
	f, err := d.root.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	same := equal(f, r)
	if _, err := r.Seek(0, io.SeekStart); err != nil || !same {
		return false
	}
	if sync && f.Sync() != nil {
		return false
	}
	now := time.Now()
	return d.root.Chtimes(path, now, now) == nil
}

func equal(a, b io.Reader) bool {
	x, y := make([]byte, 32<<10), make([]byte, 32<<10)
	for {
		n, errA := io.ReadFull(a, x)
		m, errB := io.ReadFull(b, y)
		if !bytes.Equal(x[:n], y[:m]) || !atEnd(errA) || !atEnd(errB) {
			return false
		}
		if errA != nil || errB != nil {
			return errA != nil && errB != nil
		}
	}
}

// atEnd reports whether a read was successful or reached the end.
func atEnd(err error) bool {
	return err == nil || err == io.EOF || err == io.ErrUnexpectedEOF
}

func (d *dir) Get(ctx context.Context, name string) (io.ReadSeekCloser, int64, error) {
	path, err := place(name)
	if err != nil {
		return nil, 0, err
	}
	f, err := d.root.Open(path)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("not a regular file")
	}
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, info.Size(), nil
}

func (d *dir) Stat(_ context.Context, name string) (Entry, error) {
	path, err := place(name)
	if err != nil {
		return Entry{}, err
	}
	info, err := d.root.Lstat(path)
	if err != nil {
		return Entry{}, err
	}
	return Entry{name, info.Size(), info.ModTime()}, nil
}

// Distrust does nothing, since a directory holds only originals.
func (d *dir) Distrust(string) {}

func (d *dir) Close() {
	d.close.Do(func() { close(d.closed) })
	d.settling.Wait()
}

// Delete doesn't fsync the directory: if a crash restores the blob, a later sweep deletes it again.
func (d *dir) Delete(ctx context.Context, name string) error {
	path, err := place(name)
	if err != nil {
		return err
	}
	if err := d.root.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (d *dir) List(ctx context.Context) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for i := range 256 {
			if !d.list(ctx, fmt.Sprintf("%02x", i), yield) {
				return
			}
		}
	}
}

// list yields the names of a directory in batches, since there may be millions.
func (d *dir) list(ctx context.Context, name string, yield func(Entry, error) bool) bool {
	f, err := d.root.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return true // no puts yet
	}
	if err != nil {
		yield(Entry{}, err)
		return false
	}
	defer f.Close()
	for {
		if err := ctx.Err(); err != nil {
			yield(Entry{}, err)
			return false
		}
		entries, err := f.ReadDir(512)
		for _, e := range entries {
			info, err := e.Info()
			if err != nil || !info.Mode().IsRegular() {
				continue // deleted meanwhile, or not a blob
			}
			if !yield(Entry{e.Name(), info.Size(), info.ModTime()}, nil) {
				return false
			}
		}
		if err == io.EOF {
			return true
		}
		if err != nil {
			yield(Entry{}, err)
			return false
		}
	}
}

// place returns the path of a name. It refuses names not made by [Digest.String], so none leads out of the directory.
func place(name string) (string, error) {
	if _, err := ParseDigest(name); err != nil {
		return "", err
	}
	return filepath.Join(name[:2], name), nil
}

func (d *dir) syncDir(name string) error {
	f, err := d.root.Open(name)
	if err != nil {
		return err
	}
	return cmp.Or(f.Sync(), f.Close())
}

func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return cmp.Or(f.Sync(), f.Close())
}
