package deploy

import (
	"context"
	"fmt"
	"time"

	"slipway/internal/account"
	"slipway/internal/db"
	"slipway/internal/release"
	"slipway/internal/site"
)

// countLimits says how much of each limit an owner uses.
func (d *Deployments) countLimits() {
	l := d.c.Limits
	l.CountRows(account.LimitDeployments, `SELECT count(*) FROM deployments WHERE owner_id = $1 AND status = 'pending'`)
	l.CountRows(account.LimitPreviews, `SELECT count(*) FROM preview_hosts WHERE site_id IN (SELECT id FROM open_sites WHERE owner_id = $1)`)
	// Of each site the oldest stored release counts whole, and of each later one what it added.
	l.CountRows(account.LimitStorage, `
		SELECT COALESCE(CAST(SUM(CASE WHEN place = 1 THEN stored_bytes ELSE added_bytes END) AS BIGINT), 0) FROM (
			SELECT stored_bytes, added_bytes, row_number() OVER (PARTITION BY site_id ORDER BY id) AS place
			FROM deployments WHERE owner_id = $1 AND stored_bytes > 0 AND release <> '') AS stored`)
	l.Count(account.LimitBuildMinutes, func(ctx context.Context, r db.Reader, owner account.OwnerID) (n int64, err error) {
		return n, r.QueryRow(ctx, `SELECT COALESCE(CAST(SUM(ms) AS BIGINT), 0) / 60000 FROM build_time WHERE owner_id = $1 AND month = $2`,
			owner, account.Month(db.Now())).Scan(&n)
	})
	l.Count(account.LimitCaches, func(ctx context.Context, r db.Reader, owner account.OwnerID) (int64, error) {
		return d.c.Builds.CacheUse(ctx, r, string(owner))
	})
}

// requireTx returns nil when the owner may ask for one more deployment of the site.
func (d *Deployments) requireTx(ctx context.Context, tx *db.Tx, s site.Site) error {
	if err := d.c.Limits.RequireTx(ctx, tx, s.Owner, account.LimitDeployments, 1); err != nil {
		return err
	}
	if err := d.c.Limits.Require(ctx, tx, s.Owner, account.LimitStorage, 1); err != nil {
		return err
	}
	var builds bool
	err := tx.QueryRow(ctx, `SELECT count(*) > 0 FROM build_time WHERE owner_id = $1 AND month = $2 AND site_id = $3`, s.Owner, account.Month(db.Now()), s.ID).Scan(&builds)
	if err != nil {
		return fmt.Errorf("look for builds of the site: %w", err)
	}
	if !builds {
		return nil // it may be one that is published as it is; one that does build is refused there
	}
	return d.c.Limits.Require(ctx, tx, s.Owner, account.LimitBuildMinutes, 1)
}

// meter measures how long a build holds its slot.
type meter struct{ since time.Time }

func (m *meter) start() { m.since = time.Now() }
func (m *meter) stop()  { m.since = time.Time{} }

// noteBuildTime adds what a build took to what its owner has used this month.
func (d *Deployments) noteBuildTime(ctx context.Context, s site.Site, m meter) {
	if m.since.IsZero() {
		return
	}
	took := time.Since(m.since)
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer done()
	err := d.c.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `
			INSERT INTO build_time (owner_id, month, site_id, ms) VALUES ($1, $2, $3, $4)
			ON CONFLICT (owner_id, month, site_id) DO UPDATE SET ms = build_time.ms + excluded.ms`,
			s.Owner, account.Month(db.Now()), s.ID, took.Milliseconds())
		return err
	})
	if err != nil {
		d.c.Log.ErrorContext(ctx, "build time not recorded", "site", s.ID, "took", took, "err", err)
	}
}

// noteStorageTx records what a deployment's release takes, if the owner may store it.
func (d *Deployments) noteStorageTx(ctx context.Context, tx *db.Tx, x Deployment, rel release.Sealed) error {
	stored, added := rel.Bytes+x.bundleBytes, rel.Added+x.bundleAdded
	if added > 0 {
		if err := d.c.Limits.RequireTx(ctx, tx, x.Owner, account.LimitStorage, added); err != nil {
			return err
		}
	}
	if _, err := tx.Exec(ctx, `UPDATE deployments SET stored_bytes = $2, added_bytes = $3 WHERE id = $1`, x.ID, stored, added); err != nil {
		return fmt.Errorf("note size of release: %w", err)
	}
	return nil
}
