package repository

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"slipway/internal/platform/panics"
)

// Content is cut into pieces of at most maxPiece bytes, and pieces travel in packs of
// about packSize: thousands of small files are a few large objects.
const (
	packSize = 8 << 20
	MaxPiece = 4 << 20
	minPiece = 256 << 10 // of content that is cut at all
	Whole    = 1 << 20   // content of up to so many bytes is one piece
)

// Piece is content in a pack.
type Piece struct {
	Pack   int // index into Contents.Packs
	Offset int
	Length int
	Sum    [sha256.Size]byte // of its bytes
}

// Writer stores content that the repository lacks, and collects where all of it lies. Add is
// safe for concurrent use; Adopt comes before, and Close after.
type Writer struct {
	ctx  context.Context
	repo *Repository
	put  *errgroup.Group
	tick func(read int64)

	mu     sync.Mutex // guards pieces to digests
	pieces []Piece
	// share: none, one backup's: bounded by the pieces of what it reads
	have    map[[sha256.Size]byte]int // index into pieces
	packs   []string                  // those of this writer have their names once it is closed
	buf     []byte                    // the pack being filled
	digests []byte                    // of its pieces
	common  bool                      // what is added now may be in packs of other backups too

	salt  [16]byte   // in the names of packs that are this writer's alone
	wrote sync.Mutex // guards names, stored and own
	// share: none, one backup's
	names  map[int]string
	stored int64
	own    []string // names of packs that no other writer can refer to

	// of Heal, guarded by mu
	// share: none, one backup's: bounded by the packs that it builds on
	bad map[string]bool
	// share: none, one backup's: bounded by the pieces of mends
	wanted map[[sha256.Size]byte][]spot
	// share: none, one backup's: at most mostMended
	mends map[string]*mending
}

// NewWriter returns a writer to a repository. Its packs are uploaded until ctx ends.
func NewWriter(ctx context.Context, repo *Repository) *Writer {
	g, ctx := errgroup.WithContext(ctx)
	// share: none, one backup's: three uploads at once
	g.SetLimit(3)
	w := &Writer{ctx: ctx, repo: repo, put: g, have: map[[sha256.Size]byte]int{}, names: map[int]string{}, tick: func(int64) {}}
	_, _ = rand.Read(w.salt[:]) // never fails
	return w
}

// Adopt makes the writer store nothing again that an earlier backup has, before anything
// is added. The backup's files then refer to the writer's pieces.
func (w *Writer) Adopt(c *Contents) {
	packs, pieces := len(w.packs), len(w.pieces)
	damaged := func(i int) bool { return w.bad[c.Packs[c.Pieces[i].Pack]] }
	if len(w.bad) > 0 { // such files are read anew
		c.Files = slices.DeleteFunc(c.Files, func(f File) bool { return slices.ContainsFunc(f.Pieces, damaged) })
		c.Index()
	}
	w.packs = append(w.packs, c.Packs...)
	w.pieces = slices.Grow(w.pieces, len(c.Pieces))
	if len(w.have) == 0 {
		w.have = make(map[[sha256.Size]byte]int, len(c.Pieces))
	}
	for i, p := range c.Pieces {
		lost := damaged(i)
		p.Pack += packs
		w.pieces = append(w.pieces, p)
		if !lost {
			w.have[p.Sum] = pieces + i
		}
	}
	for _, f := range c.Files {
		for k := range f.Pieces {
			f.Pieces[k] += pieces
		}
	}
}

// OnRead has f called with how many bytes were read, before anything is added.
func (w *Writer) OnRead(f func(n int64)) { w.tick = f }

// Err says why nothing can be stored any more; nil: it can.
func (w *Writer) Err() error {
	if w.ctx.Err() == nil {
		return nil
	}
	return context.Cause(w.ctx)
}

// Stored is how many bytes of packs were stored, once the writer is closed.
func (w *Writer) Stored() int64 { return w.stored }

// List writes into c where the content of its files lies, once the writer is closed.
func (w *Writer) List(c *Contents) {
	c.Packs, c.Pieces = w.packs, w.pieces
	c.compact()
}

// What content is read into, and what packs are filled in: memory that is used again need not
// be fetched from the system page by page.
var (
	// share: total one for each file that backups read at the time; owner as many as its backups, of which one runs; edge more are made
	scratches = sync.Pool{New: func() any { return new([MaxPiece]byte) }}
	// share: total one for each pack that backups fill or upload at the time; owner as many as its backups, of which one runs; edge more are made
	packs = sync.Pool{New: func() any { return new([packSize]byte) }}
)

// Add stores what r holds and returns its pieces, its SHA-256 and its length.
func (w *Writer) Add(r io.Reader) (list []int, sum [sha256.Size]byte, size int64, err error) {
	h := sha256.New()
	scratch := scratches.Get().(*[MaxPiece]byte)
	defer scratches.Put(scratch)
	buf := scratch[:0]
	gaps, _ := r.(interface{ Skip() int })
	for {
		for gaps != nil && len(buf) == 0 { // where a piece begins
			n := gaps.Skip()
			if n == 0 {
				break
			}
			i, err := w.hole()
			if err != nil {
				return nil, sum, 0, err
			}
			for range n {
				if err := w.ctx.Err(); err != nil {
					return nil, sum, 0, context.Cause(w.ctx)
				}
				h.Write(zeros[:])
				w.tick(MaxPiece)
				list, size = append(list, i), size+MaxPiece
			}
		}
		n, err := io.ReadFull(r, scratch[len(buf):])
		buf = scratch[:len(buf)+n]
		end := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !end {
			return nil, sum, 0, err
		}
		for len(buf) == MaxPiece || end && len(buf) > 0 {
			n := len(buf)
			if size > 0 || n > Whole {
				n = cut(buf)
			}
			if end && size == 0 && n == len(buf) { // one piece: its digest is the file's
				i, sum, err := w.piece(buf)
				if err != nil {
					return nil, sum, 0, err
				}
				return []int{i}, sum, int64(n), nil
			}
			var whole sync.WaitGroup // on another processor
			// uncaught: a digest
			whole.Go(func() { h.Write(buf[:n]) })
			i, _, err := w.piece(buf[:n])
			whole.Wait()
			if err != nil {
				return nil, sum, 0, err
			}
			list, size = append(list, i), size+int64(n)
			buf = buf[:copy(buf, buf[n:])]
		}
		if end {
			return list, [sha256.Size]byte(h.Sum(nil)), size, nil
		}
	}
}

// Piece returns the index of a piece with these bytes, and their digest.
func (w *Writer) piece(b []byte) (int, [sha256.Size]byte, error) {
	w.tick(int64(len(b)))
	sum := sha256.Sum256(b)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.wanted[sum] {
		s.fill(b)
	}
	delete(w.wanted, sum)
	if i, ok := w.have[sum]; ok {
		return i, sum, nil
	}
	if len(w.buf)+len(b) > packSize {
		if err := w.flushLocked(); err != nil {
			return 0, sum, err
		}
	}
	if w.buf == nil {
		w.buf = packs.Get().(*[packSize]byte)[:0]
		w.packs = append(w.packs, "")
	}
	w.pieces = append(w.pieces, Piece{len(w.packs) - 1, len(w.buf), len(b), sum})
	w.buf, w.digests = append(w.buf, b...), append(w.digests, sum[:]...)
	w.have[sum] = len(w.pieces) - 1
	return len(w.pieces) - 1, sum, nil
}

// hole returns the index of a piece of zeros.
func (w *Writer) hole() (int, error) {
	w.mu.Lock()
	i, ok := w.have[zerosSum()]
	_, wanted := w.wanted[zerosSum()]
	w.mu.Unlock()
	if ok && !wanted {
		return i, nil
	}
	i, _, err := w.piece(zeros[:])
	return i, err
}

// Share ends the pack that is being filled. What comes is in others, which are named by their
// pieces alone: what many backups add alike is stored once.
func (w *Writer) Share() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	err := w.flushLocked()
	w.common = true
	return err
}

func (w *Writer) flushLocked() error {
	if w.buf == nil {
		return nil
	}
	prefix, common := []byte("pieces"), w.common
	if !common {
		prefix = append(prefix, w.salt[:]...)
	}
	buf, digests, at := w.buf, append(prefix, w.digests...), len(w.packs)-1
	w.buf, w.digests = nil, w.digests[:0]
	w.put.Go(panics.Safe(func() error { // waits while many are under way, and needs no lock that is held here
		name, stored, err := w.repo.putBy(w.ctx, digests, buf)
		packs.Put((*[packSize]byte)(buf[:packSize]))
		if err != nil {
			return err
		}
		w.wrote.Lock()
		defer w.wrote.Unlock()
		w.names[at], w.stored = name, w.stored+stored
		if !common {
			w.own = append(w.own, name)
		}
		return nil
	}))
	return w.ctx.Err()
}

// Close returns when every pack is durable.
func (w *Writer) Close() error {
	w.mu.Lock()
	err := w.flushLocked()
	w.mu.Unlock()
	err = errors.Join(w.put.Wait(), err)
	for at, name := range w.names {
		w.packs[at] = name
	}
	return w.mend(err)
}

// Abandon deletes what the writer has stored for a backup that failed, as far as nothing else
// can refer to it: on a full disk that is what others need. The rest goes with a sweep. It
// returns Close's error.
func (w *Writer) Abandon() error {
	err := w.Close()
	ctx, done := context.WithTimeout(context.WithoutCancel(w.ctx), time.Minute)
	defer done()
	for _, name := range w.own {
		if w.repo.at.Delete(ctx, name) != nil {
			break // a sweep will
		}
	}
	w.own = nil
	return err
}
