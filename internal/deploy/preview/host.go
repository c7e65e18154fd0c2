package preview

import (
	"context"
	"fmt"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/limits"
	"slipway/internal/tenant/site"
)

// MaxOfSite caps the branches of a site with a preview address. A further branch takes the place of the one that was
// deployed longest ago.
const MaxOfSite = 100

// HostTx returns the label of the preview address of a branch or pull request (PullKey). It stays the same as long as
// the address exists. If the owner's limit is reached, it returns a fault or, unless refuse is set, ends the address
// that was deployed longest ago.
func (p *Previews) HostTx(ctx context.Context, tx *db.Tx, s site.Site, branch string, refuse bool) (label string, err error) {
	now := db.Now()
	rows, err := tx.Query(ctx,
		`UPDATE preview_hosts SET used_at = $3 WHERE site_id = $1 AND branch = $2 RETURNING label`, s.ID, branch, now)
	have, err := db.Collect(rows, err, func(row db.Scanner) (l string, err error) { return l, row.Scan(&l) })
	if err != nil {
		return "", fmt.Errorf("find preview address: %w", err)
	}
	if len(have) > 0 {
		return have[0], nil
	}
	if err := p.makeRoomTx(ctx, tx, s, refuse); err != nil {
		return "", err
	}
	for _, label := range []string{previewLabel(branch, s.Slug, false), previewLabel(branch, s.Slug, true)} {
		n, err := tx.Exec(ctx, `
			INSERT INTO preview_hosts (site_id, branch, label, deployment_id, release, used_at) VALUES ($1, $2, $3, '', '', $4)
			ON CONFLICT DO NOTHING`, s.ID, branch, label, now)
		if err != nil {
			return "", fmt.Errorf("make preview address: %w", err)
		}
		if n == 1 {
			return label, trimTx(ctx, tx, s.ID)
		}
	}
	return "", fmt.Errorf("create preview address of %s: both labels are taken", branch)
}

// makeRoomTx returns nil if the owner may have another preview address, and makes room unless refuse is set.
func (p *Previews) makeRoomTx(ctx context.Context, tx *db.Tx, s site.Site, refuse bool) error {
	var n int
	if err := tx.QueryRow(ctx, `SELECT count(*) FROM preview_hosts WHERE site_id = $1`, s.ID).Scan(&n); err != nil {
		return fmt.Errorf("count preview addresses: %w", err)
	}
	if n >= MaxOfSite {
		return nil // another address of this site will be ended
	}
	err := p.c.Limits.RequireTx(ctx, tx, s.Owner, limits.Previews, 1)
	if refuse || !fault.Is(err, fault.Payment) {
		return err
	}
	_, err = tx.Exec(ctx, `
		DELETE FROM preview_hosts WHERE (site_id, branch) IN (
			SELECT p.site_id, p.branch FROM preview_hosts p JOIN open_sites s ON s.id = p.site_id
			WHERE s.owner_id = $1 ORDER BY p.used_at, p.branch LIMIT 1)`, s.Owner)
	if err != nil {
		return fmt.Errorf("end preview address: %w", err)
	}
	tx.Notify("previews")
	return nil
}

// trimTx ends a site's preview addresses beyond MaxOfSite.
func trimTx(ctx context.Context, tx *db.Tx, id site.ID) error {
	n, err := tx.Exec(ctx, `
		DELETE FROM preview_hosts WHERE site_id = $1 AND branch NOT IN (
			SELECT branch FROM preview_hosts WHERE site_id = $1 ORDER BY used_at DESC, branch LIMIT $2)`, id, MaxOfSite)
	if err != nil {
		return fmt.Errorf("end preview addresses: %w", err)
	}
	if n > 0 {
		tx.Notify("previews")
	}
	return nil
}
