package app

import (
	"context"
	"fmt"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
)

// MoveSiteTx gives a site's workers and crons to another owner.
func (a *Apps) MoveSiteTx(ctx context.Context, tx *db.Tx, id site.ID, from, to account.OwnerID) (int64, error) {
	n, err := tx.Exec(ctx, `UPDATE app_tasks SET owner_id = $2 WHERE site_id = $1 AND owner_id <> $2`, id, to)
	if err != nil {
		return 0, fmt.Errorf("move workers of site: %w", err)
	}
	return n, nil
}
