package fetch

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"slipway/internal/platform/id"
)

// makeRoom removes caches of other sites, least recently fetched first, until the disk has enough room. It keeps caches
// that are in use. A site without a cache is fetched in full the next time.
func (s *Fetcher) makeRoom(ctx context.Context) error {
	if s.c.Disk == nil || s.c.Disk.Lacks() <= 0 {
		return nil
	}
	s.sweeping.Lock() // one goroutine may free what the next one needs
	defer s.sweeping.Unlock()
	entries, err := os.ReadDir(s.path("sites"))
	if err != nil {
		return fmt.Errorf("list caches: %w", err)
	}
	type cache struct {
		id   id.Site
		used time.Time
	}
	var list []cache
	for _, e := range entries {
		if used, err := s.fetched(e.Name()); err == nil {
			list = append(list, cache{id.Site(e.Name()), used})
		}
	}
	slices.SortFunc(list, func(a, b cache) int { return a.used.Compare(b.used) })
	for _, c := range list {
		if ctx.Err() != nil || s.c.Disk.Lacks() <= 0 {
			return ctx.Err()
		}
		unlock, free := s.tryLock(c.id)
		if !free {
			continue
		}
		gone, err := s.forgetIdle(c.id)
		unlock()
		if err != nil {
			return fmt.Errorf("make room: %w", err)
		}
		if !gone {
			continue
		}
		s.c.Log.InfoContext(ctx, "repository cache removed: disk space is low", "site", c.id, "fetched", c.used)
	}
	return nil
}

// fetched returns when a site's cache was last written: each fetch changes its folders.
func (s *Fetcher) fetched(id string) (at time.Time, err error) {
	entries, err := os.ReadDir(s.path("sites", id))
	for _, e := range entries {
		if info, e := os.Stat(s.path("sites", id, e.Name())); e == nil && info.ModTime().After(at) {
			at = info.ModTime()
		}
	}
	return at, err
}

// forgetIdle removes a site's cache unless it is in use.
func (s *Fetcher) forgetIdle(site id.Site) (gone bool, err error) {
	entries, err := os.ReadDir(s.path("sites", string(site)))
	if err != nil {
		return false, err
	}
	for _, e := range entries {
		if s.pinned(s.path("sites", string(site), e.Name())) {
			return false, nil
		}
	}
	return true, s.forget(site)
}
