package runtime

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"slipway/internal/build/bundle"
)

// View is what a program sees of its files, for an engine that runs it elsewhere: what is read-only is opened from this
// machine's own trees of the same bundles, and what is in storage is told. It is safe for concurrent use.
type View struct{ files files }

// Stored is a path in one of the program's folders that it writes to.
type Stored struct {
	Folder string // clean, relative to the bundle
	Path   string // below it
}

// OpenView opens the trees of a specification.
func OpenView(ctx context.Context, b *bundle.Bundles, s Spec) (*View, error) {
	v := &View{}
	if err := v.open(ctx, b, s); err != nil {
		v.Close()
		return nil, err
	}
	return v, nil
}

func (v *View) open(ctx context.Context, b *bundle.Bundles, s Spec) error {
	tree, done, err := b.Open(ctx, s.Owner, s.Bundle)
	if err != nil {
		return err
	}
	v.files.done = append(v.files.done, done)
	if v.files.tree, err = os.OpenRoot(tree); err != nil {
		return fmt.Errorf("open program: %w", err)
	}
	add := func(pl place) (err error) {
		if pl.at, err = cleanPath(pl.at); err != nil {
			return err
		}
		if pl.source != "" {
			if pl.root, err = os.OpenRoot(pl.source); err != nil {
				return fmt.Errorf("open %s: %w", pl.at, err)
			}
		}
		v.files.places = append(v.files.places, pl)
		return nil
	}
	for _, t := range s.Trees {
		dir, done, err := b.Open(ctx, s.Owner, t.Bundle)
		if err != nil {
			return err
		}
		v.files.done = append(v.files.done, done)
		if dir, err = folderOf(dir, t.From); err != nil {
			return fmt.Errorf("open %s: %w", t.Path, err)
		}
		if err := add(place{at: t.Path, source: dir}); err != nil {
			return err
		}
	}
	for _, st := range s.Storage {
		if err := add(place{at: st.Path, stored: true}); err != nil {
			return err
		}
	}
	slices.SortStableFunc(v.files.places, func(a, b place) int { return strings.Count(b.at, "/") - strings.Count(a.at, "/") })
	for _, f := range s.Files { // that it is there may be seen, and nothing of it
		at, err := cleanPath(f.Path)
		if err != nil {
			return err
		}
		under, rest := v.files.in(at)
		if under.stored {
			return fmt.Errorf("lay %s: it lies in storage", at)
		}
		if err := filePoint(under.root, rest); err != nil {
			return fmt.Errorf("lay %s: %w", at, err)
		}
	}
	return nil
}

// Open opens a file or a folder as the program sees it, or says where in storage it is.
func (v *View) Open(name string) (*os.File, *Stored, error) {
	in, rest, err := v.files.find(name)
	if err != nil {
		return nil, nil, err
	}
	if in.stored {
		return nil, &Stored{Folder: in.at, Path: rest}, nil
	}
	f, err := in.open(rest)
	return f, nil, err
}

// Close lets the trees go.
func (v *View) Close() { v.files.close() }
