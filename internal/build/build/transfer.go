package build

import (
	"context"
	"fmt"

	"slipway/internal/platform/db"
	"slipway/internal/platform/id"
)

// MoveSiteTx transfers a site's build caches to another owner.
func (b *Builds) MoveSiteTx(ctx context.Context, tx *db.Tx, site id.Site, from, to id.Owner) (int64, error) {
	n, err := tx.Exec(ctx, `UPDATE build_caches SET owner_id = $2 WHERE site_id = $1 AND owner_id <> $2`, site, to)
	if err != nil {
		return 0, fmt.Errorf("move build caches of site: %w", err)
	}
	return n, nil
}
