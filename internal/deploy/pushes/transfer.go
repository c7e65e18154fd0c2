package pushes

import (
	"context"
	"fmt"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
)

// RotateHookTx gives a site's Git hook a new address and secret, where it has one: the forge's calls of the old one are not
// found. What workflows of GitHub Actions may deploy ends. It reports what of both there was.
func (g *Pushes) RotateHookTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id site.ID) (hook, workflows bool, err error) {
	before, err := g.Get(ctx, tx, owner, id)
	if err == nil && before.Workflows.Repository != "" {
		workflows = true
		err = g.AllowTx(ctx, tx, owner, id, Workflows{})
	}
	if err != nil {
		return false, false, err
	}
	var has bool
	if err := tx.QueryRow(ctx, `
		SELECT EXISTS (SELECT 1 FROM git_settings WHERE site_id = $1 AND hook_digest <> '')`, id).Scan(&has); err != nil {
		return false, false, fmt.Errorf("find git hook of site: %w", err)
	}
	if !has {
		return false, workflows, nil
	}
	_, _, err = g.NewHookTx(ctx, tx, owner, id)
	return true, workflows, err
}
