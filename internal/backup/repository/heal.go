package repository

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// fewPacks is how many packs are asked for one by one. More are looked up in the list of all objects.
const fewPacks = 64

// shortest is the length of an object that holds nothing: its nonce and its tag.
const shortest = 12 + 16

// Examine looks for packs and returns those that are missing or damaged. It reads the content of packs whose names follow from, in
// order, until it has read budget bytes. The next examination begins at reached, which is empty once the last pack was read.
func (r *Repository) Examine(
	ctx context.Context, packs []string, from string, budget int64,
) (bad map[string]bool, reached string, err error) {
	packs = slices.Compact(slices.Sorted(slices.Values(packs)))
	sizes, err := r.sizes(ctx, packs)
	if err != nil {
		return nil, "", err
	}
	bad = map[string]bool{}
	for _, name := range packs {
		if sizes[name] < shortest {
			bad[name] = true
		}
	}
	for _, name := range packs {
		switch {
		case name <= from || bad[name]:
			continue
		case budget <= 0:
			return bad, reached, nil
		}
		r.at.Distrust(name) // the object itself is read, not a copy of it
		switch _, err := r.Get(ctx, name); {
		case errors.Is(err, ErrDamaged), errors.Is(err, fs.ErrNotExist):
			bad[name] = true
		case err != nil:
			return nil, "", err
		}
		budget, reached = budget-sizes[name], name
	}
	return bad, "", nil
}

// sizes returns how many bytes objects have. Those that are missing have none.
func (r *Repository) sizes(ctx context.Context, names []string) (map[string]int64, error) {
	sizes := make(map[string]int64, len(names))
	if len(names) <= fewPacks {
		for _, name := range names {
			e, err := r.at.Stat(ctx, name)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
			sizes[name] = e.Size
		}
		return sizes, nil
	}
	for e, err := range r.at.List(ctx) {
		if err != nil {
			return nil, err
		}
		if _, found := slices.BinarySearch(names, e.Name); found {
			sizes[e.Name] = e.Size
		}
	}
	return sizes, nil
}

// mostMended bounds the packs that a writer mends, which it puts together in files of packSize.
const mostMended = 128

// mending is a bad pack that is put together again from pieces that are read anew.
type mending struct {
	name, file string
	size       int
	missing    map[int]bool // offsets of pieces that weren't read yet
	err        error
}

// Heal keeps the writer from building on packs that are bad. What earlier backups have in them is mended where the same bytes are
// added: all holds the contents of every backup that may refer to these packs. It comes before Adopt. Files are put together in dir.
func (w *Writer) Heal(bad map[string]bool, dir string, all []*Contents) {
	w.bad, w.wanted = bad, map[[32]byte][]spot{}
	for _, c := range all {
		for _, p := range c.Pieces {
			name := c.Packs[p.Pack]
			if !bad[name] {
				continue
			}
			m := w.mends[name]
			if m == nil {
				if len(w.mends) == mostMended {
					continue
				}
				m = &mending{name: name, file: filepath.Join(dir, "mend-"+name), missing: map[int]bool{}}
				if w.mends == nil {
					w.mends = map[string]*mending{}
				}
				w.mends[name] = m
			}
			if !m.missing[p.Offset] {
				m.missing[p.Offset], m.size = true, max(m.size, p.Offset+p.Length)
				w.wanted[p.Sum] = append(w.wanted[p.Sum], spot{m, p.Offset})
			}
		}
	}
}

// spot is where a piece lies in a pack that is mended.
type spot struct {
	in *mending
	at int
}

func (s spot) fill(b []byte) {
	f, err := os.OpenFile(s.in.file, os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = f.WriteAt(b, int64(s.at))
		err = errors.Join(err, f.Close())
	}
	s.in.err = errors.Join(s.in.err, err)
	delete(s.in.missing, s.at)
}

// mend stores the packs that are whole again under their own names, once all else could be stored.
func (w *Writer) mend(err error) error {
	mends := w.mends
	w.mends = nil
	for _, m := range mends {
		defer os.Remove(m.file)
		if err != nil || len(m.missing) > 0 || m.err != nil {
			continue
		}
		plain, err := os.ReadFile(m.file)
		if err != nil {
			return err
		}
		if err := w.repo.replace(context.WithoutCancel(w.ctx), m.name, plain); err != nil {
			return err
		}
		delete(w.bad, m.name)
	}
	return err
}

// Bad returns which of the packs that Heal was told of are still bad, once the writer is closed.
func (w *Writer) Bad() map[string]bool { return w.bad }

// replace stores an object anew in the place of a damaged one. A backend may take what is there for the same.
func (r *Repository) replace(ctx context.Context, name string, plain []byte) error {
	k, err := r.open(ctx)
	if err != nil {
		return err
	}
	if err := r.at.Delete(ctx, name); err != nil {
		return err
	}
	r.at.Distrust(name)
	return r.store(ctx, name, k.seal(name, plain))
}
