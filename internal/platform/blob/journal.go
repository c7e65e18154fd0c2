package blob

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// A batch of small blobs is made durable by one file instead of hundreds. Measured on ext4 (data=ordered, virtio disk,
// 2 cores shared with builds; 4 KiB blobs), milliseconds for writing all and making them durable:
//
//	                                            100    10,000
//	fsync of each, one after the other            50
//	fsync of each, 16 at once                 21–110 2750–5980
//	fsync of each, 64 at once                 24–155      4008
//	syncfs                                    23–120      2102
//	a journal, one fsync of it (this)         19–100 1160–1720
//
// Of the 19 ms, fsync takes 4; the rest is creating files, which varies with other load. Concurrent fsyncs share
// commits of the file system's journal, so more than 16 gain nothing; starting writeback early (sync_file_range) was
// slower. syncfs also waits for all writes of running builds, without a bound.
//
// So small blobs are written in place without fsync, and their bytes once more into a journal. Flush fsyncs the
// journal, moves it to log/ and fsyncs log/. From then on the batch is durable, because OpenDir restores what a power
// failure destroyed. Once the kernel has had time to write the blobs back by itself, they are fsynced, which is then
// almost free, and the journal is deleted.
const (
	logDir       = "log"
	journalBlob  = 64 << 10  // larger blobs are fsynced directly
	journalLimit = 256 << 20 // bytes of a journal; further blobs are fsynced directly

	// Linux writes back pages that were dirty for 30 s, and checks every 5 s.
	settleAfter = 40 * time.Second
)

// deferred is a Bulk on a dir.
type deferred struct {
	dir *dir

	mu sync.Mutex // guards the rest
	// share: none, one batch's: at most the 65,536 directories of blobs
	touched map[string]bool // directories of blobs that were fsynced directly
	name    string          // of the journal, first in tmp/, later in log/
	file    *os.File
	out     *bufio.Writer
	bytes   int64
	err     error // error of writing the journal
}

func (d *dir) Begin() Bulk { return d.begin() }

func (d *dir) begin() *deferred { return &deferred{dir: d, touched: map[string]bool{}} }

func (b *deferred) Put(ctx context.Context, name string, r io.Reader, size int64) error {
	if size <= journalBlob {
		body := make([]byte, size)
		if _, err := io.ReadFull(r, body); err != nil {
			return err
		}
		// Also if the blob exists, since it may not be on disk yet.
		noted, err := b.note(name, body)
		if err != nil {
			return err
		}
		r = bytes.NewReader(body)
		if noted {
			return b.dir.put(ctx, name, r, size, false)
		}
	}
	return b.direct(ctx, name, r, size)
}

// direct puts a blob without the journal.
func (b *deferred) direct(ctx context.Context, name string, r io.Reader, size int64) error {
	if err := b.dir.put(ctx, name, r, size, true); err != nil {
		return err
	}
	b.mu.Lock()
	b.touched[name[:2]] = true
	b.mu.Unlock()
	return nil
}

// entry reads the next complete entry of a journal.
func entry(r io.Reader) (Digest, []byte, error) {
	var head [36]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return Digest{}, nil, err
	}
	name, size := Digest(head[:32]), binary.BigEndian.Uint32(head[32:])
	if size > journalBlob {
		return Digest{}, nil, ErrCorrupt
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(r, body); err != nil {
		return Digest{}, nil, err
	}
	if Sum(body) != name {
		return Digest{}, nil, ErrCorrupt
	}
	return name, body, nil
}

// note appends a blob to the journal and reports whether it fit. An entry is the digest, the length in 4 bytes, and the
// bytes.
func (b *deferred) note(name string, body []byte) (bool, error) {
	d, err := ParseDigest(name)
	if err != nil {
		return false, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.bytes > journalLimit || b.err != nil {
		return false, b.err
	}
	if b.file == nil {
		b.name = rand.Text()
		b.file, b.err = b.dir.root.OpenFile(filepath.Join(tmp, b.name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if b.err != nil {
			return false, b.err
		}
		b.out = bufio.NewWriterSize(b.file, 64<<10)
	}
	b.out.Write(binary.BigEndian.AppendUint32(d[:], uint32(len(body))))
	_, b.err = b.out.Write(body)
	b.bytes += int64(len(body))
	return b.err == nil, b.err
}

func (b *deferred) Flush() error {
	var g errgroup.Group
	// share: none, one batch's: 16 directories or files at once
	g.SetLimit(workers)
	for name := range b.touched {
		// uncaught: writes files
		g.Go(func() error { return b.dir.syncDir(name) })
	}
	// uncaught: writes files
	g.Go(b.commit)
	return g.Wait()
}

func (b *deferred) commit() error {
	if b.file == nil {
		return b.err
	}
	from, to := filepath.Join(tmp, b.name), filepath.Join(logDir, b.name)
	err := cmp.Or(b.err, b.out.Flush())
	if err == nil {
		err = b.file.Sync()
	}
	err = cmp.Or(err, b.file.Close())
	b.out = nil
	if err == nil {
		err = b.dir.root.Rename(from, to)
	}
	if err != nil {
		b.dir.root.Remove(from)
		return err
	}
	if err := b.dir.syncDir(logDir); err != nil {
		return err
	}
	// Keep only the journal's name until it is settled: with many deployments per minute, buffers and lists would be
	// most of the process's memory.
	d := b.dir
	// uncaught: writes files
	d.settling.Go(func() {
		select {
		case <-d.closed:
		case <-time.After(d.settleAfter):
			d.settle(to)
		}
	})
	return nil
}

func (b *deferred) Drop() {
	if b.file != nil {
		b.file.Close()
		b.dir.root.Remove(filepath.Join(tmp, b.name))
	}
}

// settle fsyncs the blobs of a journal and deletes it. It runs in the background; after an error it leaves the journal
// to the next start. A missing blob was swept.
func (d *dir) settle(journal string) {
	d.settler.Lock()
	defer d.settler.Unlock()
	log, err := d.root.Open(journal)
	if err != nil {
		return
	}
	defer log.Close()
	dirs := map[string]bool{}
	for r := bufio.NewReaderSize(log, 64<<10); ; {
		digest, _, err := entry(r)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return
		}
		name := digest.String()
		f, err := d.root.Open(filepath.Join(name[:2], name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil || cmp.Or(f.Sync(), f.Close()) != nil {
			return
		}
		dirs[name[:2]] = true
	}
	for name := range dirs {
		if d.syncDir(name) != nil {
			return
		}
	}
	d.root.Remove(journal)
}

// replay restores blobs from journals if the disk lost them. It may run twice, and while the process that wrote a
// journal settles it.
func (d *dir) replay(ctx context.Context) error {
	journals, err := fs.ReadDir(d.root.FS(), logDir)
	if err != nil {
		return err
	}
	for _, j := range journals {
		path := filepath.Join(logDir, j.Name())
		if err := d.replayOne(ctx, path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("replay %s: %w", path, err)
		}
	}
	return nil
}

func (d *dir) replayOne(ctx context.Context, path string) error {
	f, err := d.root.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	r := bufio.NewReaderSize(f, 256<<10)
	b := d.begin()
	g, ctx := errgroup.WithContext(ctx)
	// share: none, one batch's: 16 directories or files at once
	g.SetLimit(workers)
	for {
		name, body, err := entry(r)
		if err != nil {
			// The end, or damage to a synced journal. In that case readers of the blobs that weren't restored get an
			// error.
			break
		}
		// uncaught: writes files
		g.Go(func() error { return b.direct(ctx, name.String(), bytes.NewReader(body), int64(len(body))) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if err := b.Flush(); err != nil {
		return err
	}
	return d.root.Remove(path)
}
