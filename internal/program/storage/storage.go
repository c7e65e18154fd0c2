// Package storage owns how much the storage of sites' programs holds: measured where it lies, counted to its owner's room, and what a
// program may still add to it.
package storage

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/id"
	"slipway/internal/program/placement"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/limits"
)

// Disk is the way to what sites' programs store.
type Disk interface {
	// ForgetStorage deletes a site's storage, that of its previews included.
	ForgetStorage(site id.Site) error
	// StorageSites lists the sites that have any.
	StorageSites() ([]id.Site, error)
	// StorageSize counts the bytes of a site.
	StorageSize(ctx context.Context, site id.Site) (int64, error)
	// StorageDir returns the directory of a site, and whether there is one.
	StorageDir(site id.Site) (dir string, ok bool)
	// StorageShared reports whether other nodes have it too.
	StorageShared() bool
	// StorageFault returns a fault while it can't be used. It waits for nothing.
	StorageFault() error
}

// Limits say what an owner may store. *account.Limits does.
type Limits interface {
	UseOf(ctx context.Context, r db.Reader, owner account.OwnerID, name limits.Name) (limits.Use, error)
}

// Config holds what a Meter needs.
type Config struct {
	DB     *db.DB
	Disk   Disk // Optional: without it nothing is measured or bounded.
	Limits Limits
	Places *placement.Places // Optional: nil is an installation of one node.
	Log    *slog.Logger      // Optional.
}

// Meter measures storage. It is safe for concurrent use.
type Meter struct {
	c Config

	mu sync.Mutex // guards both
	// share: total the sites whose programs run; owner those that it may run; edge gone with the last one
	running map[id.Site]int // programs and commands of a site
	// share: total the sites whose programs ran since the last measurement; owner its sites; edge emptied by it
	touched map[id.Site]bool
}

// New returns a meter. It starts nothing: Run measures.
func New(c Config) *Meter {
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	return &Meter{c: c, running: map[id.Site]int{}, touched: map[id.Site]bool{}}
}

// Use says how much a site's storage holds.
type Use struct {
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

// Begin counts a site's program in; ended counts it out.
func (m *Meter) Begin(site id.Site) (ended func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.running[site]++
	return sync.OnceFunc(func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.running[site]--; m.running[site] == 0 {
			delete(m.running, site)
		}
		m.touched[site] = true
	})
}

// Busy reports whether a program or command of a site runs here.
func (m *Meter) Busy(site id.Site) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.running[site] > 0
}

// Due returns the sites whose storage may have changed since the last call.
func (m *Meter) Due() []id.Site {
	m.mu.Lock()
	defer m.mu.Unlock()
	sites := m.touched
	m.touched = map[id.Site]bool{}
	for site := range m.running {
		sites[site] = true
	}
	return slices.Sorted(maps.Keys(sites))
}

// Run measures what programs store until ctx ends. Before each round it calls tidy, and full for a site that has grown although its
// owner's room is used up.
func (m *Meter) Run(ctx context.Context, tidy func(context.Context) error, full func(site id.Site)) {
	if m.c.Disk == nil {
		return
	}
	tick := time.NewTicker(storageEvery)
	defer tick.Stop()
	var all time.Time
	for {
		if err := tidy(ctx); err != nil && ctx.Err() == nil {
			m.c.Log.WarnContext(ctx, "storage of ended previews not deleted", "err", err)
		}
		sites := m.Due()
		if all.IsZero() || time.Since(all) > storageAll {
			have, err := m.c.Disk.StorageSites()
			if err != nil {
				m.c.Log.WarnContext(ctx, "storage of sites not listed", "err", err)
			}
			sites, all = append(sites, have...), time.Now()
			slices.Sort(sites)
			sites = slices.Compact(sites)
		}
		if mine, err := m.c.Places.Mine(ctx, sites); err != nil {
			m.c.Log.WarnContext(ctx, "sites of this node not read", "err", err)
		} else { // what is here of others' sites is used by nobody
			sites = slices.DeleteFunc(sites, func(s id.Site) bool { return !mine[s] })
		}
		for _, site := range sites {
			begun := time.Now()
			if err := m.Measure(ctx, site, full); err != nil && ctx.Err() == nil {
				m.c.Log.WarnContext(ctx, "storage of a site not measured", "site", site, "err", err)
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

// Measure counts what one site stores. Where that is more than its owner may, the site is
// capped, and full is called if it has grown: what of it runs is to start again within the cap.
func (m *Meter) Measure(ctx context.Context, site id.Site, full func(site id.Site)) error {
	bytes, err := m.c.Disk.StorageSize(ctx, site)
	if err != nil {
		return fmt.Errorf("measure storage: %w", err)
	}
	var owner account.OwnerID
	switch err := m.c.DB.QueryRow(ctx, `SELECT owner_id FROM open_sites WHERE id = $1`, site).Scan(&owner); {
	case errors.Is(err, sql.ErrNoRows):
		return nil // it is being deleted, and its storage with it
	case err != nil:
		return fmt.Errorf("find owner of storage: %w", err)
	}
	before, err := m.Use(ctx, site)
	if err != nil {
		return err
	}
	if err := m.note(ctx, site, bytes, before); err != nil {
		return err
	}
	left, err := m.left(ctx, owner)
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
		if err := m.c.DB.Write(ctx, func(tx *db.Tx) error {
			_, err := tx.Exec(ctx, `UPDATE app_storage SET capped_bytes = $2 WHERE site_id = $1`, site, capped)
			return err
		}); err != nil {
			return fmt.Errorf("cap storage: %w", err)
		}
	}
	if capped > 0 && before.MeasuredAt != 0 && bytes > before.Bytes {
		full(site)
	}
	return nil
}

// note writes what a site's storage holds, if that has changed.
func (m *Meter) note(ctx context.Context, site id.Site, bytes int64, before Use) error {
	if before.MeasuredAt != 0 && before.Bytes == bytes {
		return nil
	}
	err := m.c.DB.Write(ctx, func(tx *db.Tx) error {
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

// Use returns what a site's storage held when it was last measured.
func (m *Meter) Use(ctx context.Context, site id.Site) (u Use, err error) {
	err = m.c.DB.QueryRow(ctx, `SELECT bytes, capped_bytes, measured_at FROM app_storage WHERE site_id = $1`, site).Scan(
		&u.Bytes,
		&u.Capped,
		&u.MeasuredAt,
	)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return u, fmt.Errorf("read storage of site: %w", err)
	}
	return u, nil
}

// Of returns what the sites of an owner store.
func (m *Meter) Of(ctx context.Context, r db.Reader, owner account.OwnerID) (n int64, err error) {
	return n, r.QueryRow(ctx, `
		SELECT COALESCE(CAST(SUM(s.bytes) AS BIGINT), 0) FROM app_storage s JOIN open_sites o ON o.id = s.site_id
		WHERE o.owner_id = $1`, owner).Scan(&n)
}

// left returns how many bytes an owner may store yet; below zero they store too much.
func (m *Meter) left(ctx context.Context, owner account.OwnerID) (int64, error) {
	u, err := m.c.Limits.UseOf(ctx, m.c.DB, owner, limits.Storage)
	if err != nil {
		return 0, fmt.Errorf("ask for room of owner: %w", err)
	}
	return u.Left(), nil
}

// limit returns how much a site's storage may hold, whose own limit and whose owner's room are given.
func (u Use) limit(own, left int64) int64 {
	switch {
	case u.Capped > 0:
		return min(own, u.Capped)
	case left >= own:
		return own
	}
	return min(own, u.Bytes+max(left, 1))
}

// Bound returns how many bytes a site's storage may hold whose own limit is given: no more than its owner may store yet.
func (m *Meter) Bound(ctx context.Context, owner account.OwnerID, site id.Site, own int64) (int64, error) {
	left, err := m.left(ctx, owner)
	if err != nil {
		return 0, err
	}
	u, err := m.Use(ctx, site)
	if err != nil {
		return 0, err
	}
	return u.limit(own, left), nil
}

// LostTx notes that what a site stored is lost.
func LostTx(ctx context.Context, tx *db.Tx, site id.Site) error {
	if _, err := tx.Exec(ctx, `UPDATE app_storage SET bytes = 0, capped_bytes = 0 WHERE site_id = $1`, site); err != nil {
		return fmt.Errorf("note lost storage: %w", err)
	}
	return nil
}

// PurgeTx forgets what is known of a deleted site's storage.
func (m *Meter) PurgeTx(ctx context.Context, tx *db.Tx, site id.Site) error {
	if _, err := tx.Exec(ctx, `DELETE FROM app_storage WHERE site_id = $1`, site); err != nil {
		return fmt.Errorf("forget storage: %w", err)
	}
	return nil
}
