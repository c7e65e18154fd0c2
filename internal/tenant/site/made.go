package site

import (
	"context"
	"fmt"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
)

// Ref returns an identifier of a deploy hook that may be stored, unlike its ID, which is secret.
func (id HookID) Ref() string { return id.digest() }

// RemoveMadeTx deletes a deploy hook created by an app whose access ends. ref is the result of [HookID.Ref].
func (s *Sites) RemoveMadeTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, ref string) error {
	if _, err := tx.Exec(ctx, `DELETE FROM deploy_hooks WHERE digest = $1 AND owner_id = $2`, ref, owner); err != nil {
		return fmt.Errorf("delete deploy hook of an app: %w", err)
	}
	return nil
}

// HookRefsTx returns the Ref of each deploy hook of the owner's site.
func (s *Sites) HookRefsTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id ID) ([]string, error) {
	rows, err := tx.Query(ctx, `SELECT digest FROM deploy_hooks WHERE site_id = $1 AND owner_id = $2 ORDER BY digest`, id, owner)
	list, err := db.Collect(rows, err, func(r db.Scanner) (ref string, err error) { return ref, r.Scan(&ref) })
	if err != nil {
		return nil, fmt.Errorf("list deploy hooks of site: %w", err)
	}
	return list, nil
}
