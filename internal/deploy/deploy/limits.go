package deploy

import (
	"context"
	"fmt"

	"slipway/internal/build/release"
	"slipway/internal/deploy/deployment"
	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/limits"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/usage"
)

// countLimits registers the queries that compute an owner's usage of each limit.
func (d *Deployments) countLimits() {
	l := d.c.Limits
	l.CountRows(limits.Deployments, `SELECT count(*) FROM deployments WHERE owner_id = $1 AND status = 'pending'`)
	// A site's oldest stored release counts in full, each later one with what it added.
	l.CountRows(limits.Storage, `
		SELECT COALESCE(CAST(SUM(CASE WHEN place = 1 THEN stored_bytes ELSE added_bytes END) AS BIGINT), 0) FROM (
			SELECT stored_bytes, added_bytes, row_number() OVER (PARTITION BY site_id ORDER BY id) AS place
			FROM deployments WHERE owner_id = $1 AND stored_bytes > 0 AND release <> '') AS stored`)
	l.Count(limits.Caches, func(ctx context.Context, r db.Reader, owner account.OwnerID) (int64, error) {
		return d.c.Builds.CacheUse(ctx, r, owner)
	})
}

// requireTx returns a fault if the owner may not ask for another deployment of the site.
func (d *Deployments) requireTx(ctx context.Context, tx *db.Tx, s site.Site) error {
	if err := d.c.Limits.RequireTx(ctx, tx, s.Owner, limits.Deployments, 1); err != nil {
		return err
	}
	if err := d.c.Limits.Require(ctx, tx, s.Owner, limits.Storage, 1); err != nil {
		return err
	}
	builds, err := d.c.Usage.UsedBySite(ctx, tx, s.Owner, s.ID, usage.Build)
	if err != nil || !builds {
		return err // it may need no build; if it does, it is refused when it builds
	}
	return d.c.Limits.Require(ctx, tx, s.Owner, limits.BuildMinutes, 1)
}

// noteStorageTx records the size of a deployment's release, if the owner's storage limit allows it.
func (d *Deployments) noteStorageTx(ctx context.Context, tx *db.Tx, x deployment.Deployment, rel release.Sealed, p *progress) error {
	stored, added := rel.Bytes+p.stored, rel.Added+p.added
	if added > 0 {
		if err := d.c.Limits.RequireTx(ctx, tx, x.Owner, limits.Storage, added); err != nil {
			return err
		}
	}
	if _, err := tx.Exec(ctx, `UPDATE deployments SET stored_bytes = $2, added_bytes = $3 WHERE id = $1`, x.ID, stored, added); err != nil {
		return fmt.Errorf("note size of release: %w", err)
	}
	return nil
}
