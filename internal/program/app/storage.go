package app

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"slipway/internal/platform/id"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/limits"
)

// Storage is the way to what sites' programs store on this machine.
type Storage interface {
	// StorageSites lists the sites that have any.
	StorageSites() ([]string, error)
	// StorageSize counts the bytes of a site.
	StorageSize(ctx context.Context, site id.Site) (int64, error)
	// StorageDir returns the directory of a site, and whether there is one.
	StorageDir(site id.Site) (dir string, ok bool)
}

// left returns how many bytes an owner may store yet; below zero they store too much.
func (a *Apps) left(ctx context.Context, owner account.OwnerID) (int64, error) {
	u, err := a.c.Limits.UseOf(ctx, a.c.DB, owner, limits.Storage)
	if err != nil {
		return 0, fmt.Errorf("ask for room of owner: %w", err)
	}
	return u.Left(), nil
}

// StorageUse says how much a site's storage holds.
type StorageUse struct {
	Bytes      int64
	Capped     int64   // what it held when its owner's room was used up; 0 while there is room
	MeasuredAt db.Time // zero: never
}

// How often the storage of sites is measured whose programs run or have just run, and of all;
// and how much of the time measuring may take.
const (
	storageEvery = 30 * time.Second
	storageAll   = 6 * time.Hour
	storageRest  = 20
)

// storing knows whose programs may be writing.
type storing struct {
	mu sync.Mutex // guards both
	// share: total the sites whose programs run; owner those that it may run; edge gone with the last one
	running map[string]int // programs and commands of a site
	// share: total the sites whose programs ran since the last measurement; owner its sites; edge emptied by it
	touched map[string]bool
}

// begin counts a site's program in; ended counts it out.
func (s *storing) begin(site string) (ended func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running == nil {
		s.running, s.touched = map[string]int{}, map[string]bool{}
	}
	s.running[site]++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.running[site]--; s.running[site] == 0 {
			delete(s.running, site)
		}
		s.touched[site] = true
	})
}

// due returns the sites whose storage may have changed since the last call.
func (s *storing) due() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	sites := s.touched
	s.touched = map[string]bool{}
	for site := range s.running {
		if sites == nil {
			sites = map[string]bool{}
		}
		sites[site] = true
	}
	return sortedKeys(sites)
}

// countStorage measures what programs store until ctx ends.
func (a *Apps) countStorage(ctx context.Context) {
	if a.c.Storage == nil {
		return
	}
	tick := time.NewTicker(storageEvery)
	defer tick.Stop()
	var all time.Time
	for {
		if err := a.c.Launch.TidyPreviews(ctx); err != nil && ctx.Err() == nil {
			a.c.Log.WarnContext(ctx, "storage of ended previews not deleted", "err", err)
		}
		sites := a.storing.due()
		if all.IsZero() || time.Since(all) > storageAll {
			have, err := a.c.Storage.StorageSites()
			if err != nil {
				a.c.Log.WarnContext(ctx, "storage of sites not listed", "err", err)
			}
			sites, all = append(sites, have...), time.Now()
			slices.Sort(sites)
			sites = slices.Compact(sites)
		}
		if mine, err := a.c.Places.Mine(ctx, sites); err != nil {
			a.c.Log.WarnContext(ctx, "sites of this node not read", "err", err)
		} else { // what is here of others' sites is used by nobody
			sites = slices.DeleteFunc(sites, func(s string) bool { return !mine[s] })
		}
		for _, site := range sites {
			begun := time.Now()
			if err := a.measure(ctx, id.Site(site)); err != nil && ctx.Err() == nil {
				a.c.Log.WarnContext(ctx, "storage of a site not measured", "site", site, "err", err)
			}
			select {
			case <-time.After(min(storageRest*time.Since(begun), storageEvery)):
			case <-ctx.Done():
				return
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// measure counts what one site stores. Where that is more than its owner may, the site is
// capped: what of it runs and has grown is ended, and starts again within the cap.
func (a *Apps) measure(ctx context.Context, site id.Site) error {
	bytes, err := a.c.Storage.StorageSize(ctx, site)
	if err != nil {
		return fmt.Errorf("measure storage: %w", err)
	}
	var owner account.OwnerID
	switch err := a.c.DB.QueryRow(ctx, `SELECT owner_id FROM open_sites WHERE id = $1`, site).Scan(&owner); {
	case errors.Is(err, sql.ErrNoRows):
		return nil // it is being deleted, and its storage with it
	case err != nil:
		return fmt.Errorf("find owner of storage: %w", err)
	}
	before, err := a.StorageUse(ctx, site)
	if err != nil {
		return err
	}
	if err := a.noteStorage(ctx, site, bytes, before); err != nil {
		return err
	}
	left, err := a.left(ctx, owner)
	if err != nil {
		return err
	}
	capped := before.Capped
	switch {
	case left >= 0:
		capped = 0
	case capped == 0 && before.MeasuredAt == 0: // nobody knows what has grown
		capped = max(1, bytes)
	case capped == 0:
		capped = max(1, min(bytes, before.Bytes))
	}
	if capped != before.Capped {
		if err := a.c.DB.Write(ctx, func(tx *db.Tx) error {
			_, err := tx.Exec(ctx, `UPDATE app_storage SET capped_bytes = $2 WHERE site_id = $1`, site, capped)
			return err
		}); err != nil {
			return fmt.Errorf("cap storage: %w", err)
		}
	}
	if capped > 0 && before.MeasuredAt != 0 && bytes > before.Bytes {
		a.logs.System(
			site,
			"",
			"Storage is full: this account has used up what it can store. Its programs are restarted and can't add to it; delete files or sites, or ask the operator for more",
		)
		a.Renew(site)
	}
	return nil
}

// noteStorage writes what a site's storage holds, if that has changed.
func (a *Apps) noteStorage(ctx context.Context, site id.Site, bytes int64, before StorageUse) error {
	if before.MeasuredAt != 0 && before.Bytes == bytes {
		return nil
	}
	err := a.c.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `
			INSERT INTO app_storage (site_id, bytes, capped_bytes, measured_at) VALUES ($1, $2, 0, $3)
			ON CONFLICT (site_id) DO UPDATE SET bytes = excluded.bytes, measured_at = excluded.measured_at`, site, bytes, db.Now())
		return err
	})
	if err != nil {
		return fmt.Errorf("note storage: %w", err)
	}
	return nil
}

// StorageUse returns what a site's storage held when it was last measured.
func (a *Apps) StorageUse(ctx context.Context, site id.Site) (u StorageUse, err error) {
	err = a.c.DB.QueryRow(ctx, `SELECT bytes, capped_bytes, measured_at FROM app_storage WHERE site_id = $1`, site).Scan(
		&u.Bytes,
		&u.Capped,
		&u.MeasuredAt,
	)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return u, fmt.Errorf("read storage of site: %w", err)
	}
	return u, nil
}

// StorageOf returns what the sites of an owner store.
func (a *Apps) StorageOf(ctx context.Context, r db.Reader, owner account.OwnerID) (n int64, err error) {
	return n, r.QueryRow(ctx, `
		SELECT COALESCE(CAST(SUM(s.bytes) AS BIGINT), 0) FROM app_storage s JOIN open_sites o ON o.id = s.site_id WHERE o.owner_id = $1`, owner).Scan(&n)
}

// limit returns how much a site's storage may hold, whose own limit and whose owner's room are given.
func (u StorageUse) limit(own, left int64) int64 {
	switch {
	case u.Capped > 0:
		return min(own, u.Capped)
	case left >= own:
		return own
	}
	return min(own, u.Bytes+max(left, 1))
}

// boundStorage holds a program's storage to what its owner may store yet.
func (a *Apps) boundStorage(ctx context.Context, w *Wanted) error {
	if a.c.Storage == nil || w.Spec.Limits.Storage <= 0 {
		return nil
	}
	w.Stored = w.Spec.Limits.Storage
	left, err := a.left(ctx, w.Owner)
	if err != nil {
		return err
	}
	u, err := a.StorageUse(ctx, w.Site)
	if err != nil {
		return err
	}
	w.Spec.Limits.Storage = u.limit(w.Spec.Limits.Storage, left)
	return nil
}
