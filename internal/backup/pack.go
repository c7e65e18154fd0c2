package backup

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"sync"

	"golang.org/x/sync/errgroup"
)

// Content is cut into pieces of at most maxPiece bytes, and pieces travel in packs of
// about packSize: thousands of small files are a few large objects.
const (
	packSize = 8 << 20
	maxPiece = 4 << 20
	minPiece = 256 << 10 // of content that is cut at all
	whole    = 1 << 20   // content of up to so many bytes is one piece
)

// piece is content in a pack.
type piece struct {
	Pack   int // index into Manifest.Packs
	Offset int
	Length int
	Sum    [sha256.Size]byte // of its bytes
}

// writer stores content that the repository lacks, and collects where all of it lies.
type writer struct {
	ctx  context.Context
	repo *Repository
	put  *errgroup.Group

	pieces  []piece
	have    map[[sha256.Size]byte]int // index into pieces
	packs   []string
	buf     []byte // the pack being filled
	digests []byte // of its pieces
	scratch []byte
	tick    func(read int64)

	mu     sync.Mutex // guards stored and the elements of packs
	stored int64
}

func newWriter(ctx context.Context, repo *Repository) *writer {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(3)
	return &writer{ctx: ctx, repo: repo, put: g, have: map[[sha256.Size]byte]int{}, tick: func(int64) {}}
}

// adopt makes the writer store nothing again that an earlier backup has, before anything
// is added. The backup's files then refer to the writer's pieces.
func (w *writer) adopt(m *Manifest) {
	packs, pieces := len(w.packs), len(w.pieces)
	w.packs = append(w.packs, m.Packs...)
	for i, p := range m.Pieces {
		p.Pack += packs
		w.pieces = append(w.pieces, p)
		w.have[p.Sum] = pieces + i
	}
	for _, f := range m.Files {
		for k := range f.Pieces {
			f.Pieces[k] += pieces
		}
	}
}

// add stores what r holds and returns its pieces, its SHA-256 and its length.
func (w *writer) add(r io.Reader) (list []int, sum [sha256.Size]byte, size int64, err error) {
	h := sha256.New()
	if w.scratch == nil {
		w.scratch = make([]byte, maxPiece)
	}
	buf := w.scratch[:0]
	for {
		n, err := io.ReadFull(r, w.scratch[len(buf):])
		buf = w.scratch[:len(buf)+n]
		end := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !end {
			return nil, sum, 0, err
		}
		for len(buf) == maxPiece || end && len(buf) > 0 {
			n := len(buf)
			if size > 0 || n > whole {
				n = cut(buf)
			}
			if end && size == 0 && n == len(buf) { // one piece: its digest is the file's
				i, err := w.piece(buf)
				if err != nil {
					return nil, sum, 0, err
				}
				return []int{i}, w.pieces[i].Sum, int64(n), nil
			}
			var whole sync.WaitGroup // on another processor
			whole.Go(func() { h.Write(buf[:n]) })
			i, err := w.piece(buf[:n])
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

func (w *writer) piece(b []byte) (int, error) {
	w.tick(int64(len(b)))
	sum := sha256.Sum256(b)
	if i, ok := w.have[sum]; ok {
		return i, nil
	}
	if len(w.buf)+len(b) > packSize {
		if err := w.flush(); err != nil {
			return 0, err
		}
	}
	if w.buf == nil {
		w.buf = make([]byte, 0, packSize)
		w.packs = append(w.packs, "")
	}
	w.pieces = append(w.pieces, piece{len(w.packs) - 1, len(w.buf), len(b), sum})
	w.buf, w.digests = append(w.buf, b...), append(w.digests, sum[:]...)
	w.have[sum] = len(w.pieces) - 1
	return len(w.pieces) - 1, nil
}

func (w *writer) flush() error {
	if w.buf == nil {
		return nil
	}
	buf, digests, at := w.buf, append([]byte("pieces"), w.digests...), len(w.packs)-1
	w.buf, w.digests = nil, w.digests[:0]
	w.put.Go(func() error {
		name, stored, err := w.repo.putBy(w.ctx, digests, buf)
		if err != nil {
			return err
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.packs[at], w.stored = name, w.stored+stored
		return nil
	})
	return w.ctx.Err()
}

// close returns when every pack is durable.
func (w *writer) close() error {
	err := w.flush()
	return errors.Join(w.put.Wait(), err)
}

// gear holds the values of the rolling hash that cuts content (FastCDC, Xia et al. 2016):
// where it is cut depends on the bytes around, so that an insertion moves no later cut.
var gear = func() (t [256]uint64) {
	x := uint64(0x9e3779b97f4a7c15)
	for i := range t { // splitmix64: any fixed random values do, for ever the same
		x += 0x9e3779b97f4a7c15
		z := x
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		t[i] = z ^ z>>31
	}
	return t
}()

// cut returns the length of the next piece of b.
func cut(b []byte) int {
	if len(b) <= minPiece {
		return len(b)
	}
	const mask = uint64(1<<20-1) << 44 // the high bits know the last 64 bytes: a cut per MiB
	var h uint64
	for i := minPiece; i < len(b) && i < maxPiece; i++ {
		h = h<<1 + gear[b[i]]
		if h&mask == 0 {
			return i + 1
		}
	}
	return min(len(b), maxPiece)
}

// reader reads content back. It keeps the last packs, and reads one ahead. It is for one
// goroutine.
type reader struct {
	repo   *Repository
	m      *Manifest
	recent []recentPack
	ahead  *aheadPack // nil: none is being read
}

type recentPack struct {
	pack  int
	plain []byte
}

// aheadPack is the pack after the one that was asked for last: what follows in a backup lies
// there, and another processor opens it meanwhile.
type aheadPack struct {
	pack  int
	done  chan struct{} // closed when the others are there
	plain []byte
	err   error
}

const keepPacks = 4

func (r *reader) pack(ctx context.Context, i int) ([]byte, error) {
	for at, p := range r.recent {
		if p.pack == i {
			copy(r.recent[1:at+1], r.recent[:at])
			r.recent[0] = p
			return p.plain, nil
		}
	}
	plain, err := r.open(ctx, i)
	if err != nil {
		return nil, err
	}
	if len(r.recent) < keepPacks {
		r.recent = append(r.recent, recentPack{})
	}
	copy(r.recent[1:], r.recent)
	r.recent[0] = recentPack{i, plain}
	if next := i + 1; next < len(r.m.Packs) && r.ahead == nil {
		x := &aheadPack{pack: next, done: make(chan struct{})}
		r.ahead = x
		go func() {
			defer close(x.done)
			x.plain, x.err = r.repo.get(ctx, r.m.Packs[next])
		}()
	}
	return plain, nil
}

// open returns a pack that is not at hand.
func (r *reader) open(ctx context.Context, i int) ([]byte, error) {
	if x := r.ahead; x != nil {
		<-x.done
		r.ahead = nil
		if x.pack == i && x.err == nil {
			return x.plain, nil
		}
	}
	return r.repo.get(ctx, r.m.Packs[i])
}

// copy writes a file's content, verified piece by piece and as a whole.
func (r *reader) copy(ctx context.Context, w io.Writer, f File) error {
	h := sha256.New()
	var size int64
	for _, i := range f.Pieces {
		p := r.m.Pieces[i]
		plain, err := r.pack(ctx, p.Pack)
		if err != nil {
			return fmt.Errorf("%s: %w", f.Path, err)
		}
		if p.Offset+p.Length > len(plain) {
			return fmt.Errorf("%s: %w", f.Path, ErrDamaged)
		}
		b := plain[p.Offset : p.Offset+p.Length]
		h.Write(b)
		size += int64(len(b))
		if _, err := w.Write(b); err != nil {
			return err
		}
	}
	if [sha256.Size]byte(h.Sum(nil)) != f.Sum || size != f.Size {
		return fmt.Errorf("%s: %w", f.Path, ErrDamaged)
	}
	return nil
}
