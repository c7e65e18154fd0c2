package pushes

import (
	"context"
	"fmt"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
)

// RotateHookTx ends what workflows may deploy, and gives a site's Git hook a new address and secret, where it has one: the forge's calls of the old one are not
// found. It reports whether there was one.
func (g *Pushes) RotateHookTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id site.ID) (bool, error) {
	if err := g.AllowTx(ctx, tx, owner, id, Workflows{}); err != nil {
		return false, err
	}
	var has bool
	if err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM git_settings WHERE site_id = $1 AND hook_digest <> '')`, id).Scan(&has); err != nil {
		return false, fmt.Errorf("find git hook of site: %w", err)
	}
	if !has {
		return false, nil
	}
	_, _, err := g.NewHookTx(ctx, tx, owner, id)
	return true, err
}
