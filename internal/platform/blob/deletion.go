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

// Several nodes put blobs and one sweeps. An old, unreferenced blob may be put again at the moment it is deleted, and
// object stores have no conditional delete. So each deletion is recorded before it begins, and each put checks the
// record afterwards:
//
//	sweep   record it · is it still old? · delete · record the end
//	put     renew it (or write it) · is it recorded? · wait for the end · does it exist?
//
// If the put renews the blob before the sweep checks its age, the sweep leaves it alone. Otherwise the put finds the
// recorded deletion and puts the blob again if it is gone.

// ErrSwept is returned by a put whose bytes a sweep deleted at the same moment. The caller should put them again.
var ErrSwept = errors.New("swept at the same moment")

// Deletions records which blobs sweeps are deleting. All users of a Backend share it.
type Deletions interface {
	// Begin records, before it returns, that blobs are about to be deleted.
	Begin(ctx context.Context, blobs []Digest) error
	// End records that the deletion has ended.
	End(ctx context.Context, blobs []Digest) error
	// Since returns the blobs whose deletion began or ended at t or later, and whether it is still in progress. A
	// deletion counts as ended after SweepTime.
	Since(ctx context.Context, t time.Time) (underWay map[Digest]bool, err error)
}

// SweepTime is the time limit for deleting one page of blobs.
const SweepTime = 2 * time.Minute

const (
	sweepPage = 200             // blobs recorded at once
	skew      = 5 * time.Minute // allowed difference between nodes' clocks
)

// undeleted returns nil once no sweep can delete what was put since start.
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

// Swept counts what a sweep deleted, and what it will delete once grace is over.
type Swept struct {
	Files      int
	Bytes      int64
	Young      int
	YoungBytes int64
}

// Sweep deletes every blob that keep doesn't want and that wasn't put within grace. Grace must exceed RefreshAfter plus
// the time between putting a blob and recording its reference.
func (s *Store) Sweep(ctx context.Context, keep func(Digest) bool, grace time.Duration) (done Swept, err error) {
	if !s.sweeping.TryLock() {
		return done, errors.New("sweep blobs: another sweep is running")
	}
	defer s.sweeping.Unlock()
	before := time.Now().Add(-grace)
	var page []Digest
	turn := func() error {
		n, bytes, err := s.sweep(ctx, page, before)
		done.Files, done.Bytes, page = done.Files+n, done.Bytes+bytes, page[:0]
		return err
	}
	for e, err := range s.backend.List(ctx) {
		if err != nil {
			return done, fmt.Errorf("sweep blobs: %w", err)
		}
		d, err := ParseDigest(e.Name)
		if err != nil || keep(d) {
			continue
		}
		if !e.Time.Before(before) {
			done.Young, done.YoungBytes = done.Young+1, done.YoungBytes+e.Size
			continue
		}
		page = append(page, d)
		if len(page) == sweepPage {
			if err := turn(); err != nil {
				return done, fmt.Errorf("sweep blobs: %w", err)
			}
		}
	}
	if err := turn(); err != nil {
		return done, fmt.Errorf("sweep blobs: %w", err)
	}
	return done, nil
}

// sweep deletes one page, except blobs renewed since they were listed.
func (s *Store) sweep(ctx context.Context, page []Digest, before time.Time) (removed int, size int64, err error) {
	if len(page) == 0 {
		return 0, 0, nil
	}
	// Stop deleting at half of SweepTime, even if a call hangs: later, others may consider the deletion ended.
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

// memory records deletions of a single process.
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
		if now.Sub(x.at) > 24*time.Hour { // longer than any batch takes
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
