package repository

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"

	"slipway/internal/platform/panics"
)

// Reader reads content back. It keeps the last packs, and reads one ahead. It is for one
// goroutine.
type Reader struct {
	repo   *Repository
	c      *Contents
	recent []recentPack
	ahead  *aheadPack // nil: none is being read
}

// NewReader returns a reader of what a backup holds.
func NewReader(repo *Repository, c *Contents) *Reader { return &Reader{repo: repo, c: c} }

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

func (r *Reader) pack(ctx context.Context, i int) ([]byte, error) {
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
	if next := i + 1; next < len(r.c.Packs) && r.ahead == nil {
		x := &aheadPack{pack: next, done: make(chan struct{})}
		r.ahead = x
		go func() {
			defer close(x.done)
			x.err = panics.Call(func() (err error) { x.plain, err = r.repo.Get(ctx, r.c.Packs[next]); return err })
		}()
	}
	return plain, nil
}

// open returns a pack that is not at hand.
func (r *Reader) open(ctx context.Context, i int) ([]byte, error) {
	if x := r.ahead; x != nil {
		<-x.done
		r.ahead = nil
		if x.pack == i && x.err == nil {
			return x.plain, nil
		}
	}
	return r.repo.Get(ctx, r.c.Packs[i])
}

// Copy writes a file's content, verified piece by piece and as a whole.
func (r *Reader) Copy(ctx context.Context, w io.Writer, f File) error {
	h := sha256.New()
	var size int64
	for _, i := range f.Pieces {
		p := r.c.Pieces[i]
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
