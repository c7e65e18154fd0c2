package database

import (
	"context"
	"fmt"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
)

// MoveSiteTx gives a site's databases, and those of its previews, to another owner. They stay on the server that holds them, which
// programs of the owner before reach too: each database gets a new password.
func (d *Databases) MoveSiteTx(ctx context.Context, tx *db.Tx, id site.ID, from, to account.OwnerID) (int64, error) {
	n, err := tx.Exec(ctx, `UPDATE databases SET owner_id = $2 WHERE site_id = $1 AND owner_id <> $2`, id, to)
	if err != nil {
		return 0, fmt.Errorf("move databases of site: %w", err)
	}
	list, err := d.AllOfSite(ctx, tx, id)
	if err != nil {
		return 0, err
	}
	for _, x := range list {
		if _, err := d.rotateTx(ctx, tx, x); err != nil {
			return 0, err
		}
	}
	return n, nil
}

// NamesTx lists a site's databases, those of its previews left out.
func (d *Databases) NamesTx(ctx context.Context, tx *db.Tx, id site.ID) ([]string, error) {
	rows, err := tx.Query(ctx, `SELECT name FROM databases WHERE site_id = $1 AND preview = '' AND status <> 'deleting' ORDER BY name`, id)
	list, err := db.Collect(rows, err, func(r db.Scanner) (name string, err error) { return name, r.Scan(&name) })
	if err != nil {
		return nil, fmt.Errorf("list databases to move: %w", err)
	}
	return list, nil
}

// BreaksTx says that passwords change.
func (d *Databases) BreaksTx(ctx context.Context, tx *db.Tx, id site.ID) ([]string, error) {
	list, err := d.AllOfSite(ctx, tx, id)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return []string{"databases get new passwords: the site's programs restart with them, and other copies of the old ones stop working"}, nil
}
