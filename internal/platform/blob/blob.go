// Package blob owns content-addressed bytes: a blob's name is its SHA-256, and acknowledged blobs are durable.
//
// A [Store] uses a [Backend]: a directory, or a bucket of an S3 object store with a bounded cache on the local disk.
// Put is durable when it returns; a [Batch] puts thousands of blobs concurrently and is durable when Flush returns.
// Putting existing bytes compares them and renews their time. Together with the record of deletions (deletion.go), that
// keeps a Sweep on any node from deleting blobs that are about to be referenced. Reads are verified: if the bytes have
// changed, the read fails with ErrCorrupt before it returns the last of them. The package knows neither names nor media
// types nor what references a blob.
package blob

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"sync"
	"time"
)

// ErrCorrupt is returned when a blob's bytes have changed since they were put.
var ErrCorrupt = errors.New("blob is corrupt")

// Digest is the SHA-256 (FIPS 180-4) of a blob's bytes, and its name.
type Digest [sha256.Size]byte

// Sum returns the digest of b.
func Sum(b []byte) Digest { return sha256.Sum256(b) }

// String returns 64 lower-case hex digits.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// ParseDigest is the inverse of [Digest.String]. It refuses upper case.
func ParseDigest(s string) (Digest, error) {
	var d Digest
	if len(s) != 2*len(d) {
		return Digest{}, fmt.Errorf("parse digest: %d characters, want %d", len(s), 2*len(d))
	}
	if _, err := hex.Decode(d[:], []byte(s)); err != nil {
		return Digest{}, fmt.Errorf("parse digest: %w", err)
	}
	if d.String() != s {
		return Digest{}, errors.New("parse digest: upper-case hex")
	}
	return d, nil
}

// Backend stores named bytes. Names are made by [Digest.String]. All methods may be called concurrently.
type Backend interface {
	// Put stores size bytes of r under name and returns once they are durable. If r fails or has another length,
	// nothing is stored. An existing name holds r's bytes afterwards, and its Time is at most RefreshAfter ago.
	Put(ctx context.Context, name string, r io.Reader, size int64) error
	// Begin starts a set of puts that become durable together.
	Begin() Bulk
	// Get opens the bytes and returns their number, or fs.ErrNotExist.
	Get(ctx context.Context, name string) (io.ReadSeekCloser, int64, error)
	// Stat returns the name's Entry as List would, or fs.ErrNotExist.
	Stat(ctx context.Context, name string) (Entry, error)
	// Delete removes a name. A missing name isn't an error.
	Delete(ctx context.Context, name string) error
	// List yields every name, in any order, until an error.
	List(ctx context.Context) iter.Seq2[Entry, error]
	// Distrust drops a local copy of the name, because it was corrupt.
	Distrust(name string)
	// Close stops background work.
	Close()
}

// Bulk is a set of puts. Put may be called concurrently, then Flush or Drop once.
type Bulk interface {
	// Put is [Backend].Put, except that the bytes may not be durable before Flush.
	Put(ctx context.Context, name string, r io.Reader, size int64) error
	// Flush returns once all puts are durable.
	Flush() error
	// Drop abandons puts that aren't durable yet.
	Drop()
}

// Entry is one name in a Backend.
type Entry struct {
	Name string
	Size int64
	Time time.Time // of the last Put, accurate to RefreshAfter
}

// RefreshAfter is the age at which a Put of existing bytes renews their time. The grace of a Sweep must be much longer.
const RefreshAfter = 15 * time.Minute

// Config holds what a Store needs.
type Config struct {
	Backend   Backend
	Scratch   string    // directory for blobs too large for memory. Optional: "" means the system's.
	Deletions Deletions // Optional: nil works for a single process.
}

// Store stores content-addressed bytes in a Backend. It is safe for concurrent use.
type Store struct {
	backend   Backend
	scratch   string
	deletions Deletions
	sweeping  sync.Mutex // held during a Sweep
}

// New returns a Store. It accesses nothing.
func New(c Config) *Store {
	if c.Deletions == nil {
		c.Deletions = &memory{}
	}
	return &Store{backend: c.Backend, scratch: c.Scratch, deletions: c.Deletions}
}

// Close stops background work, which the next start continues. Durability doesn't need it. No puts are allowed
// afterwards.
func (s *Store) Close() { s.backend.Close() }

// inMemory is the largest blob that is buffered in memory; larger ones are spooled to a file.
const inMemory = 1 << 20

// Put stores r's bytes and returns their digest and length once they are durable.
func (s *Store) Put(ctx context.Context, r io.Reader) (Digest, int64, error) {
	p, err := s.spool(ctx, r)
	if err != nil {
		return Digest{}, 0, fmt.Errorf("put blob: %w", err)
	}
	defer p.Close()
	for try := 1; ; try++ {
		start := time.Now()
		if err := s.store(ctx, p, s.backend.Put); err != nil {
			return Digest{}, 0, err
		}
		err := s.undeleted(ctx, start, map[Digest]bool{p.digest: true})
		if err == nil {
			return p.digest, p.size, nil
		}
		if !errors.Is(err, ErrSwept) || try == 3 {
			return Digest{}, 0, fmt.Errorf("put blob %s: %w", p.digest, err)
		}
	}
}

// store passes a piece to put. It verifies the bytes again: a file that changed after it was hashed would otherwise be
// stored under a wrong name.
func (s *Store) store(ctx context.Context, p *piece, put func(context.Context, string, io.Reader, int64) error) error {
	if err := put(ctx, p.digest.String(), verify(p.r, p.digest, p.size), p.size); err != nil {
		return fmt.Errorf("put blob %s: %w", p.digest, err)
	}
	return nil
}

// Open opens a blob and returns its length in bytes, or fs.ErrNotExist. Reading from beginning to end verifies it: if
// the bytes have changed, the last read returns ErrCorrupt instead of data. Reads after a seek elsewhere aren't
// verified; the caller must compare the length.
func (s *Store) Open(ctx context.Context, d Digest) (io.ReadSeekCloser, int64, error) {
	f, size, err := s.backend.Get(ctx, d.String())
	if err != nil {
		return nil, 0, fmt.Errorf("open blob %s: %w", d, err)
	}
	v := verify(f, d, size)
	v.corrupt = func() { s.backend.Distrust(d.String()) }
	return v, size, nil
}

// Has reports whether a blob exists, without reading it.
func (s *Store) Has(ctx context.Context, d Digest) (bool, error) {
	_, err := s.backend.Stat(ctx, d.String())
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// ReadAll returns a whole, verified blob of at most limit bytes.
func (s *Store) ReadAll(ctx context.Context, d Digest, limit int64) ([]byte, error) {
	b, err := s.readAll(ctx, d, limit)
	if errors.Is(err, ErrCorrupt) { // a local copy may be damaged
		s.backend.Distrust(d.String())
		b, err = s.readAll(ctx, d, limit)
	}
	return b, err
}

func (s *Store) readAll(ctx context.Context, d Digest, limit int64) ([]byte, error) {
	f, size, err := s.Open(ctx, d)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if size > limit {
		return nil, fmt.Errorf("read blob %s: %d bytes, at most %d", d, size, limit)
	}
	b := make([]byte, size)
	if _, err := io.ReadFull(f, b); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) && size > 0 {
			err = ErrCorrupt
		}
		return nil, fmt.Errorf("read blob %s: %w", d, err)
	}
	if size == 0 && d != Sum(nil) {
		return nil, fmt.Errorf("read blob %s: %w", d, ErrCorrupt)
	}
	return b, nil
}

// piece is bytes with their digest, ready to be stored.
type piece struct {
	digest Digest
	size   int64
	r      io.ReadSeeker
	close  func() error
}

func (p *piece) Close() error {
	if p.close == nil {
		return nil
	}
	return p.close()
}

// spool reads r to its end, because the digest is needed before storing: small blobs into memory, large ones into an
// unlinked file. A seekable r is only hashed.
func (s *Store) spool(ctx context.Context, r io.Reader) (*piece, error) {
	h := sha256.New()
	if rs, ok := r.(io.ReadSeeker); ok {
		if at, err := rs.Seek(0, io.SeekCurrent); err == nil && at == 0 {
			n, err := io.Copy(h, &contextReader{ctx, rs})
			if err != nil {
				return nil, err
			}
			return &piece{digest: Digest(h.Sum(nil)), size: n, r: rs}, nil
		}
	}
	r = io.TeeReader(&contextReader{ctx, r}, h)
	var buf bytes.Buffer
	n, err := io.Copy(&buf, io.LimitReader(r, inMemory+1))
	if err != nil {
		return nil, err
	}
	if n <= inMemory {
		return &piece{digest: Digest(h.Sum(nil)), size: n, r: bytes.NewReader(buf.Bytes())}, nil
	}
	f, err := os.CreateTemp(s.scratch, "blob-")
	if err != nil {
		return nil, err
	}
	os.Remove(f.Name()) // unlink now, so that a crash leaves nothing behind
	n, err = io.Copy(f, io.MultiReader(&buf, r))
	if err != nil {
		f.Close()
		return nil, err
	}
	return &piece{digest: Digest(h.Sum(nil)), size: n, r: f, close: f.Close}, nil
}

// contextReader stops a long copy when ctx ends.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c *contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}

// List yields every stored blob, in any order. A yielded blob may be deleted before it is opened.
func (s *Store) List(ctx context.Context) iter.Seq2[Digest, error] {
	return func(yield func(Digest, error) bool) {
		for e, err := range s.backend.List(ctx) {
			if err != nil {
				yield(Digest{}, fmt.Errorf("list blobs: %w", err))
				return
			}
			if d, err := ParseDigest(e.Name); err == nil && !yield(d, nil) {
				return
			}
		}
	}
}
