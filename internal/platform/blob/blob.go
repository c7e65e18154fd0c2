// Package blob owns content-addressed bytes: what goes in is named by its SHA-256,
// and what is acknowledged is durable.
//
// A Store sits on a Backend: a directory, or a bucket of an S3 object store with a
// bounded cache on the local disk. Put is durable when it returns; a Batch puts thousands
// of blobs concurrently and is durable when Flush returns. Putting bytes that are already
// there costs a comparison and makes them young again. That, and the record of deletions
// (deletion.go), keeps a Sweep, on whatever node, away from what somebody is about to
// refer to. Reading verifies: bytes that are no longer the ones that were put end in
// ErrCorrupt before the last of them is handed out, so a damaged blob is never taken
// for a whole one. The package knows neither names nor media types nor who refers to
// what.
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

// ErrCorrupt is the error of reading a blob whose bytes are not those that were put.
var ErrCorrupt = errors.New("blob is corrupt")

// Digest is the SHA-256 (FIPS 180-4) of a blob's bytes, and its name.
type Digest [sha256.Size]byte

// Sum returns the digest of b.
func Sum(b []byte) Digest { return sha256.Sum256(b) }

// String returns 64 lower-case hex digits.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// ParseDigest is the inverse of String; it takes nothing else, upper case included.
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

// Backend keeps named bytes. Names are those that Digest.String makes. All methods may
// be called concurrently.
type Backend interface {
	// Put stores size bytes of r under name and returns when they are durable. A
	// reader's error or a wrong length stores nothing. A name that is there already
	// holds r's bytes afterwards, and its Time is at most RefreshAfter ago.
	Put(ctx context.Context, name string, r io.Reader, size int64) error
	// Begin starts a bulk of puts that become durable together.
	Begin() Bulk
	// Get opens the bytes and says how many there are. fs.ErrNotExist when absent.
	Get(ctx context.Context, name string) (io.ReadSeekCloser, int64, error)
	// Stat returns what List would say of the name. fs.ErrNotExist when absent.
	Stat(ctx context.Context, name string) (Entry, error)
	// Delete removes the name. It is no error when it is absent.
	Delete(ctx context.Context, name string) error
	// List yields every name, in any order. An error ends it.
	List(ctx context.Context) iter.Seq2[Entry, error]
	// Distrust drops a copy of the name that is not the original, because it was corrupt.
	Distrust(name string)
	// Close ends work in the background.
	Close()
}

// Bulk is many puts. Put may be called concurrently; then comes Flush or Drop, once.
type Bulk interface {
	// Put is Backend.Put, except that the bytes may not be durable before Flush.
	Put(ctx context.Context, name string, r io.Reader, size int64) error
	// Flush returns when all that was put is durable.
	Flush() error
	// Drop forgets what is not durable.
	Drop()
}

// Entry is one name in a Backend.
type Entry struct {
	Name string
	Size int64
	Time time.Time // of the last Put, give or take RefreshAfter
}

// RefreshAfter is the age from which a Put of what is there already makes it young.
// The grace of a Sweep must be much longer.
const RefreshAfter = 15 * time.Minute

// Config holds what a Store needs.
type Config struct {
	Backend   Backend
	Scratch   string    // directory for what is too long for memory. Optional: "" means the system's.
	Deletions Deletions // Optional: nil is enough for one process.
}

// Store is content-addressed bytes on a Backend. It is safe for concurrent use.
type Store struct {
	backend   Backend
	scratch   string
	deletions Deletions
	sweeping  sync.Mutex // held by a Sweep
}

// New returns a Store. It touches nothing.
func New(c Config) *Store {
	if c.Deletions == nil {
		c.Deletions = &memory{}
	}
	return &Store{backend: c.Backend, scratch: c.Scratch, deletions: c.Deletions}
}

// Close ends work in the background, which the next start then does. It is not needed
// for anything to be durable. Nothing may be put afterwards.
func (s *Store) Close() { s.backend.Close() }

// inMemory is how long a reader's bytes may be before they are spooled to a file.
const inMemory = 1 << 20

// Put stores what r holds and returns its name and length once it is durable.
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

// store hands a piece to put. The reader is verified although it was hashed a moment ago:
// a file that changed between the two would otherwise be stored under a wrong name.
func (s *Store) store(ctx context.Context, p *piece, put func(context.Context, string, io.Reader, int64) error) error {
	if err := put(ctx, p.digest.String(), verify(p.r, p.digest, p.size), p.size); err != nil {
		return fmt.Errorf("put blob %s: %w", p.digest, err)
	}
	return nil
}

// Open opens a blob and returns its length in bytes. The error is fs.ErrNotExist when
// it is absent. Reading it from the beginning to its end verifies it: when the bytes
// are others, the read that would return the last of them returns ErrCorrupt instead.
// Who seeks elsewhere reads unverified bytes, and compares the length to the expected.
func (s *Store) Open(ctx context.Context, d Digest) (io.ReadSeekCloser, int64, error) {
	f, size, err := s.backend.Get(ctx, d.String())
	if err != nil {
		return nil, 0, fmt.Errorf("open blob %s: %w", d, err)
	}
	v := verify(f, d, size)
	v.corrupt = func() { s.backend.Distrust(d.String()) }
	return v, size, nil
}

// Has reports whether a blob is there, without reading it.
func (s *Store) Has(ctx context.Context, d Digest) (bool, error) {
	_, err := s.backend.Stat(ctx, d.String())
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// ReadAll returns a whole blob, verified. It refuses one longer than limit bytes.
func (s *Store) ReadAll(ctx context.Context, d Digest, limit int64) ([]byte, error) {
	b, err := s.readAll(ctx, d, limit)
	if errors.Is(err, ErrCorrupt) { // it may have been a copy
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

// piece is bytes whose digest is known, ready to be stored.
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

// spool reads r to its end, because the name comes before the bytes: short ones into
// memory, long ones into an unlinked file. Something that can seek is only hashed.
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
	os.Remove(f.Name()) // a crash leaves nothing behind
	n, err = io.Copy(f, io.MultiReader(&buf, r))
	if err != nil {
		f.Close()
		return nil, err
	}
	return &piece{digest: Digest(h.Sum(nil)), size: n, r: f, close: f.Close}, nil
}

// contextReader ends a long copy when ctx does.
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

// List yields every blob that is stored, in any order. One that it yields may be gone by
// the time that it is opened.
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
