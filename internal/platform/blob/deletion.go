package blob

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// Several nodes put and one sweeps. A blob that is old and that nobody refers to may be put
// again at the very moment at which it is deleted, and no object store deletes on
// condition. So every deletion is on record before it begins, and who has put looks there
// afterwards:
//
//	sweep   record it · is it still old? · delete · record the end
//	put     make it young (or write it) · is it on record? · wait for the end · is it there?
//
// If the put made it young before the sweep asked, the sweep leaves it alone. If it did so
// later, the deletion is on record when the put looks, and a blob that is gone then is put
// again.

// ErrSwept is the error of a put whose bytes were deleted by a sweep at the same moment.
// Putting them again helps.
var ErrSwept = errors.New("swept at the same moment")

// Deletions is the record of what sweeps are deleting, shared by everybody who puts into
// the same Backend.
type Deletions interface {
	// Begin records that blobs are about to be deleted, before it returns.
	Begin(ctx context.Context, blobs []Digest) error
	// End records that what Begin was told is over.
	End(ctx context.Context, blobs []Digest) error
	// Since returns those whose deletion began or ended at t or later, and whether each is
	// still under way. One that its sweeper has not ended within SweepTime is over.
	Since(ctx context.Context, t time.Time) (underWay map[Digest]bool, err error)
}

// SweepTime is how long the deletion of one page of blobs may take.
const SweepTime = 2 * time.Minute

const (
	sweepPage = 200             // blobs that are on record together
	skew      = 5 * time.Minute // between the clocks of nodes
)

// undeleted returns nil once it is certain that no sweep deletes what was put since start.
func (s *Store) undeleted(ctx context.Context, start time.Time, put map[Digest]bool) error {
	checked := map[Digest]bool{}
	for {
		deletions, err := s.deletions.Since(ctx, start.Add(-skew))
		if err != nil {
			return fmt.Errorf("read deletions: %w", err)
		}
		wait := false
		for d, underWay := range deletions {
			switch {
			case !put[d] || checked[d]:
			case underWay:
				wait = true
			default:
				if _, err := s.backend.Stat(ctx, d.String()); errors.Is(err, fs.ErrNotExist) {
					return fmt.Errorf("blob %s: %w", d, ErrSwept)
				} else if err != nil {
					return err
				}
				checked[d] = true
			}
		}
		if !wait {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Sweep removes every blob that keep does not want and that nobody has put for longer
// than grace. It says how many blobs and bytes went. Grace must be longer than RefreshAfter
// and the time between putting a blob and recording who refers to it together.
func (s *Store) Sweep(ctx context.Context, keep func(Digest) bool, grace time.Duration) (removed int, size int64, err error) {
	if !s.sweeping.TryLock() {
		return 0, 0, errors.New("sweep blobs: another sweep is running")
	}
	defer s.sweeping.Unlock()
	before := time.Now().Add(-grace)
	var page []Digest
	turn := func() error {
		n, bytes, err := s.sweep(ctx, page, before)
		removed, size, page = removed+n, size+bytes, page[:0]
		return err
	}
	for e, err := range s.backend.List(ctx) {
		if err != nil {
			return removed, size, fmt.Errorf("sweep blobs: %w", err)
		}
		d, err := ParseDigest(e.Name)
		if err != nil || !e.Time.Before(before) || keep(d) {
			continue
		}
		page = append(page, d)
		if len(page) == sweepPage {
			if err := turn(); err != nil {
				return removed, size, fmt.Errorf("sweep blobs: %w", err)
			}
		}
	}
	if err := turn(); err != nil {
		return removed, size, fmt.Errorf("sweep blobs: %w", err)
	}
	return removed, size, nil
}

// sweep deletes one page, except what has become young since it was listed.
func (s *Store) sweep(ctx context.Context, page []Digest, before time.Time) (removed int, size int64, err error) {
	if len(page) == 0 {
		return 0, 0, nil
	}
	// Nothing is deleted after half the time, however long a call hangs: by then others
	// may take the deletion for over.
	bounded, cancel := context.WithTimeout(ctx, SweepTime/2)
	defer cancel()
	if err := s.deletions.Begin(bounded, page); err != nil {
		return 0, 0, fmt.Errorf("record deletions: %w", err)
	}
	var mu sync.Mutex // guards removed, size
	var g errgroup.Group
	// share: none, the sweep's: 16 files at once
	g.SetLimit(workers)
	for _, d := range page {
		// uncaught: deletes files
		g.Go(func() error {
			e, err := s.backend.Stat(bounded, d.String())
			if errors.Is(err, fs.ErrNotExist) || err == nil && !e.Time.Before(before) {
				return nil
			}
			if err == nil {
				err = bounded.Err()
			}
			if err == nil {
				err = s.backend.Delete(bounded, d.String())
			}
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			removed, size = removed+1, size+e.Size
			return nil
		})
	}
	err = g.Wait()
	ending, done := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer done()
	if ended := s.deletions.End(ending, page); ended != nil {
		err = errors.Join(err, fmt.Errorf("record end of deletions: %w", ended))
	}
	return removed, size, err
}

// memory is the record of deletions of one process.
type memory struct {
	mu sync.Mutex // guards at
	// share: total the files that the running sweep deletes, 200 at a time; owner any part; edge none: the sweep ends with them
	at map[Digest]deletion
}

type deletion struct {
	at       time.Time
	underWay bool
}

func (m *memory) Begin(_ context.Context, blobs []Digest) error { return m.note(blobs, true) }
func (m *memory) End(_ context.Context, blobs []Digest) error   { return m.note(blobs, false) }

func (m *memory) note(blobs []Digest, underWay bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if m.at == nil {
		m.at = map[Digest]deletion{}
	}
	for d, x := range m.at {
		if now.Sub(x.at) > 24*time.Hour { // longer than any batch
			delete(m.at, d)
		}
	}
	for _, d := range blobs {
		m.at[d] = deletion{now, underWay}
	}
	return nil
}

func (m *memory) Since(_ context.Context, t time.Time) (map[Digest]bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[Digest]bool{}
	for d, x := range m.at {
		if !x.at.Before(t) {
			out[d] = x.underWay
		}
	}
	return out, nil
}
