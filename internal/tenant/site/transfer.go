package site

import (
	"context"
	"fmt"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
)

// MoveSiteTx transfers the site with its address and deploy hooks to another owner. It deletes the Git credential,
// which belongs to the previous owner and may open other repositories. The caller has locked the site.
func (s *Sites) MoveSiteTx(ctx context.Context, tx *db.Tx, id ID, from, to account.OwnerID) (int64, error) {
	site, err := s.GetTx(ctx, tx, from, id)
	if err != nil {
		return 0, err
	}
	if err := count(ctx, tx, from, site.Type, site.Status, -1); err != nil {
		return 0, err
	}
	if err := count(ctx, tx, to, site.Type, site.Status, 1); err != nil {
		return 0, err
	}
	bump(tx, from, id)
	tx.Notify(to.Topic())
	if _, err := tx.Exec(ctx, `
		UPDATE sites SET owner_id = $2, credential = '' WHERE id = $1`, id, to); err != nil {
		return 0, fmt.Errorf("move site: %w", err)
	}
	for _, q := range []string{
		`UPDATE slugs SET owner_id = $2 WHERE site_id = $1`,
		`UPDATE deploy_hooks SET owner_id = $2 WHERE site_id = $1`,
	} {
		if _, err := tx.Exec(ctx, q, id, to); err != nil {
			return 0, fmt.Errorf("move site: %w", err)
		}
	}
	return 1, nil
}

// BreaksTx returns what the previous owner's people still know about a transferred site: the visitors' password.
func (s *Sites) BreaksTx(ctx context.Context, tx *db.Tx, id ID) ([]string, error) {
	v, err := s.ServingOf(ctx, tx, id)
	if err != nil || v.Protection == "none" {
		return nil, err
	}
	return []string{
		"the password for visitors stays: change it after the transfer if the sender should no longer see protected addresses",
	}, nil
}

// RotateHooksTx gives every deploy hook of the owner's site a new ID, which invalidates the old URLs. It returns the
// number of hooks.
func (s *Sites) RotateHooksTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id ID) (int, error) {
	rows, err := tx.Query(ctx, `SELECT `+hookColumns+` FROM deploy_hooks WHERE site_id = $1 AND owner_id = $2 ORDER BY digest`, id, owner)
	list, err := db.Collect(rows, err, s.scanHook)
	if err != nil {
		return 0, fmt.Errorf("list deploy hooks to rotate: %w", err)
	}
	for _, h := range list {
		if _, err := s.UpdateHookTx(ctx, tx, owner, h.ID, PatchHook{Rotate: true}); err != nil && !fault.Is(err, fault.NotFound) {
			return 0, err
		}
	}
	return len(list), nil
}
