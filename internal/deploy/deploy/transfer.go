package deploy

import (
	"context"
	"fmt"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
)

// MoveSiteTx transfers a site's deployments to another owner. It is a Conflict fault while one of them waits or runs.
func (d *Deployments) MoveSiteTx(ctx context.Context, tx *db.Tx, id site.ID, from, to account.OwnerID) (int64, error) {
	var open int
	if err := tx.QueryRow(ctx, `SELECT count(*) FROM deployments WHERE site_id = $1 AND status IN ('pending', 'building', 'deploying')`, id).
		Scan(&open); err != nil {
		return 0, fmt.Errorf("count open deployments of site: %w", err)
	}
	if open > 0 {
		return 0, fault.New(fault.Conflict, "site_busy", "The site is being deployed",
			"try again once its deployments have ended, or cancel them")
	}
	n, err := tx.Exec(ctx, `UPDATE deployments SET owner_id = $2 WHERE site_id = $1 AND owner_id <> $2`, id, to)
	if err != nil {
		return 0, fmt.Errorf("move deployments of site: %w", err)
	}
	return n, nil
}
