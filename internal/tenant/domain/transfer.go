package domain

import (
	"context"
	"fmt"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
)

// MoveSiteTx transfers a site's domains to another owner. They stay active, since their proof moves with them. The
// previous owner can't regain them with a leftover TXT record.
func (d *Domains) MoveSiteTx(ctx context.Context, tx *db.Tx, id site.ID, from, to account.OwnerID) (int64, error) {
	rows, err := tx.Query(ctx, "SELECT "+columns+" FROM domains WHERE site_id = $1 AND owner_id = $2 ORDER BY id", id, from)
	list, err := db.Collect(rows, err, scan)
	if err != nil {
		return 0, fmt.Errorf("list domains to move: %w", err)
	}
	token := ""
	if len(list) > 0 {
		if token, err = tokenOf(ctx, tx, from); err != nil {
			return 0, err
		}
	}
	for _, dom := range list {
		// An unproven claim of the receiver's is replaced.
		if _, err := tx.Exec(ctx, "DELETE FROM domains WHERE owner_id = $1 AND name = $2 AND proven_at = 0", to, dom.Name); err != nil {
			return 0, fmt.Errorf("remove claim of %s: %w", dom.Name, err)
		}
		if _, err := tx.Exec(ctx, `
			UPDATE domains SET owner_id = $2, proof_token = CASE WHEN proof_token = '' AND proven_at <> 0 THEN $3
			ELSE proof_token END, checks = checks + 1, updated_at = $4
			WHERE id = $1`, dom.ID, to, token, db.Now()); err != nil {
			return 0, fmt.Errorf("move domain %s: %w", dom.Name, err)
		}
		if !dom.Proven() {
			continue
		}
		if err := remember(ctx, tx, dom, true); err != nil {
			return 0, err
		}
		if _, err := tx.Exec(ctx, "DELETE FROM domain_releases WHERE name = $1 AND owner_id = $2", dom.Name, to); err != nil {
			return 0, fmt.Errorf("move domain %s: %w", dom.Name, err)
		}
		moved, err := tx.Exec(ctx, "UPDATE domain_routes SET changed_at = $2 WHERE host = $1 AND state = 'active'", dom.Name, db.Now())
		if err != nil {
			return 0, fmt.Errorf("move route of %s: %w", dom.Name, err)
		}
		if moved > 0 { // certificates and the edge reload the row
			nextVersion(tx, to, dom.Name)
		}
	}
	return int64(len(list)), nil
}

// NamesTx lists the names of a site's domains.
func (d *Domains) NamesTx(ctx context.Context, tx *db.Tx, id site.ID) ([]string, error) {
	rows, err := tx.Query(ctx, "SELECT name FROM domains WHERE site_id = $1 ORDER BY name", id)
	list, err := db.Collect(rows, err, func(r db.Scanner) (name string, err error) { return name, r.Scan(&name) })
	if err != nil {
		return nil, fmt.Errorf("list domains to move: %w", err)
	}
	return list, nil
}
