package difference

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"slipway/internal/platform/panics"
)

// Bounds of comparisons of files.
const (
	maxWalked   = 300_000          // files and folders of a tree
	maxTold     = 32 << 20         // bytes of their names: an owner's PHP may say that all have 4 KB
	walkTime    = 5 * time.Second  // of one tree
	maxCompared = 256 << 20        // bytes that are read of each of two trees
	compareTime = 10 * time.Second // of reading them
)

// notContent are folders of wp-content that are made anew whenever they are missing.
var notContent = []string{"cache", "upgrade", "upgrade-temp-backup"}

// FileDiff is how the files of one wp-content differ from those of another.
type FileDiff struct {
	Added   int // only in the first
	Removed int // only in the second
	Changed int // in both, with another content
	Unread  int // in both with the same size, but too many to compare their content
	// Examples are names of files that are only in the second, or are another there.
	Examples []string
}

// maxExamples of files and options that differ.
const maxExamples = 5

// Files compares two trees; nil: they have too many files.
func Files(ctx context.Context, from, to Tree) (*FileDiff, error) {
	a, b, err := ofBoth(from, to, func(t Tree) (map[string]int64, error) { return t.Sizes(ctx) })
	if err != nil || a == nil || b == nil {
		return nil, err
	}
	d := FileDiff{Added: len(a)}
	example := func(name string) {
		if len(d.Examples) < maxExamples {
			d.Examples = append(d.Examples, name)
		}
	}
	var alike []File
	left := int64(maxCompared)
	for _, name := range slices.Sorted(maps.Keys(b)) {
		size := b[name]
		other, both := a[name]
		if both {
			d.Added--
		}
		switch {
		case !both:
			d.Removed++
			example(name)
		case size != other:
			d.Changed++
			example(name)
		case size > left:
			d.Unread++
		case size > 0:
			left -= size
			alike = append(alike, File{name, size})
		}
	}
	ctx, done := context.WithTimeout(ctx, compareTime)
	defer done()
	x, y, err := ofBoth(from, to, func(t Tree) ([]string, error) { return t.Digests(ctx, alike) })
	if err != nil {
		return nil, err
	}
	for i, f := range alike {
		switch {
		case x[i] == "" || y[i] == "":
			d.Unread++
		case x[i] != y[i]:
			d.Changed++
			example(f.Name)
		}
	}
	return &d, nil
}

// ofBoth gets something of two trees at once.
func ofBoth[T any](from, to Tree, get func(Tree) (T, error)) (a, b T, err error) {
	var errA, errB error
	var both panics.Group
	both.Go(func() { a, errA = get(from) })
	both.Go(func() { b, errB = get(to) })
	both.Wait()
	return a, b, errors.Join(errA, errB)
}
