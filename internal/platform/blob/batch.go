package blob

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"slipway/internal/platform/panics"
)

// workers is how many blobs a Batch writes at once; journal.go has the measurements.
const workers = 16

// held caps the bytes that a Batch buffers before they are written.
const held = 64 << 20

// Batch puts many blobs at once. None is durable before Flush returns nil. Put and PutBytes may be called concurrently;
// call Flush once, after the last of them.
type Batch struct {
	store *Store
	ctx   context.Context // lives as long as the batch; the first error cancels it
	stop  context.CancelCauseFunc
	bulk  Bulk
	start time.Time
	slots chan struct{}
	bytes *semaphore.Weighted
	wg    sync.WaitGroup

	mu sync.Mutex // guards seen
	// share: none, one batch's
	seen map[Digest]bool
}

// Batch begins a batch, which ends with [Batch.Flush] or with ctx.
func (s *Store) Batch(ctx context.Context) *Batch {
	b := &Batch{
		store: s, bulk: s.backend.Begin(), start: time.Now(),
		// share: none, one batch's: 16 files at once, and 64 MiB of them in memory
		slots: make(chan struct{}, workers), bytes: semaphore.NewWeighted(held), seen: map[Digest]bool{},
	}
	b.ctx, b.stop = context.WithCancelCause(ctx)
	return b
}

// Put reads r to its end; the write may happen after it returns. It returns r's error or the batch's first one.
func (b *Batch) Put(r io.Reader) (Digest, int64, error) {
	if rs, ok := r.(io.ReadSeeker); ok {
		r = struct{ io.Reader }{rs} // hide Seek: the caller may close or reuse r, so it must be copied
	}
	p, err := b.store.spool(b.ctx, r)
	if err != nil {
		return Digest{}, 0, fmt.Errorf("put blob: %w", b.cause(err))
	}
	return p.digest, p.size, b.queue(p)
}

// ErrMismatch is returned by [Batch.PutExpected] if the bytes have another digest.
var ErrMismatch = errors.New("bytes have another digest")

// PutExpected is [Batch.Put] for bytes with a known digest. Bytes with another digest aren't stored; ErrMismatch
// doesn't end the batch.
func (b *Batch) PutExpected(r io.Reader, want Digest) (int64, error) {
	if rs, ok := r.(io.ReadSeeker); ok {
		r = struct{ io.Reader }{rs} // see Put
	}
	p, err := b.store.spool(b.ctx, r)
	if err != nil {
		return 0, fmt.Errorf("put blob: %w", b.cause(err))
	}
	if p.digest != want {
		return p.size, errors.Join(ErrMismatch, p.Close())
	}
	return p.size, b.queue(p)
}

// PutBytes is [Batch.Put] for a slice that the caller won't change.
func (b *Batch) PutBytes(c []byte) (Digest, error) {
	p := &piece{digest: Sum(c), size: int64(len(c)), r: bytes.NewReader(c)}
	return p.digest, b.queue(p)
}

// queue waits for a slot and for memory, then writes in a goroutine.
func (b *Batch) queue(p *piece) error {
	b.mu.Lock()
	again := b.seen[p.digest]
	b.seen[p.digest] = true
	b.mu.Unlock()
	if again {
		p.Close()
		return b.cause(nil)
	}
	weight := min(p.size, held)
	if err := b.bytes.Acquire(b.ctx, weight); err != nil {
		p.Close()
		return b.cause(err)
	}
	select {
	case b.slots <- struct{}{}:
	case <-b.ctx.Done():
		b.bytes.Release(weight)
		p.Close()
		return b.cause(nil)
	}
	b.wg.Go(func() {
		defer func() { p.Close(); b.bytes.Release(weight); <-b.slots }()
		if err := panics.Call(func() error { return b.store.store(b.ctx, p, b.bulk.Put) }); err != nil {
			b.stop(err)
		}
	})
	return nil
}

// Flush waits until everything is durable. After an error some blobs may be stored; a later sweep removes them. If the
// error is ErrSwept, repeat the batch.
func (b *Batch) Flush() error {
	b.wg.Wait()
	err := b.cause(nil)
	if err != nil {
		b.bulk.Drop()
	} else if err = b.bulk.Flush(); err == nil && len(b.seen) > 0 {
		err = b.store.undeleted(b.ctx, b.start, b.seen)
	}
	if err != nil {
		err = fmt.Errorf("flush blobs: %w", err)
	}
	b.stop(context.Canceled)
	return err
}

// cause returns the error that ended the batch, if there is one, rather than err, which follows from it.
func (b *Batch) cause(err error) error {
	if c := context.Cause(b.ctx); c != nil {
		return c
	}
	return err
}
