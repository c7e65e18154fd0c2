// Package buildtime owns the time that builds took, by site and calendar month.
package buildtime

import (
	"context"
	"fmt"
	"sync"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/limits"
)

// Minutes returns how many minutes the builds of an owner have taken this month, UTC.
func Minutes(ctx context.Context, r db.Reader, owner account.OwnerID) (n int64, err error) {
	return n, r.QueryRow(ctx, `SELECT COALESCE(CAST(SUM(ms) AS BIGINT), 0) / 60000 FROM build_time WHERE owner_id = $1 AND month = $2`,
		owner, limits.Month(db.Now())).Scan(&n)
}

// Any reports whether a site of the owner's has been built this month.
func Any(ctx context.Context, r db.Reader, owner account.OwnerID, site string) (any bool, err error) {
	err = r.QueryRow(
		ctx,
		`SELECT count(*) > 0 FROM build_time WHERE owner_id = $1 AND month = $2 AND site_id = $3`,
		owner,
		limits.Month(db.Now()),
		site,
	).Scan(&any)
	if err != nil {
		return false, fmt.Errorf("look for builds of the site: %w", err)
	}
	return any, nil
}

// Meter measures how long a build holds its slot. It is safe for concurrent use.
type Meter struct {
	mu    sync.Mutex // guards since
	since time.Time
}

// Start begins anew.
func (m *Meter) Start() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.since = time.Now()
}

// Stop forgets what was measured: waiting costs nobody their time.
func (m *Meter) Stop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.since = time.Time{}
}

// Lap returns the time since Start, or since the Lap after it; 0 after Stop.
func (m *Meter) Lap() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.since.IsZero() {
		return 0
	}
	now := time.Now()
	took := now.Sub(m.since)
	m.since = now
	return took
}

// Note adds what a build took to what its owner has used this month, although ctx may have
// ended.
func Note(ctx context.Context, d *db.DB, owner account.OwnerID, site string, took time.Duration) error {
	if took <= 0 {
		return nil
	}
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer done()
	return d.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `
			INSERT INTO build_time (owner_id, month, site_id, ms) VALUES ($1, $2, $3, $4)
			ON CONFLICT (owner_id, month, site_id) DO UPDATE SET ms = build_time.ms + excluded.ms`,
			owner, limits.Month(db.Now()), site, took.Milliseconds())
		return err
	})
}

// ForgetTx forgets what lies more than a year back.
func ForgetTx(ctx context.Context, tx *db.Tx) error {
	if _, err := tx.Exec(ctx, `DELETE FROM build_time WHERE month < $1`, limits.Month(db.Now().Add(-400*24*time.Hour))); err != nil {
		return fmt.Errorf("forget build times: %w", err)
	}
	return nil
}
