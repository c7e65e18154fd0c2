package app

import (
	"context"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
)

// MoveSiteTx gives a site's workers and crons to another owner.
func (a *Apps) MoveSiteTx(ctx context.Context, tx *db.Tx, id site.ID, from, to account.OwnerID) (int64, error) {
	return a.tasks.MoveSiteTx(ctx, tx, id, to)
}
