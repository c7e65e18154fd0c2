package backup

import (
	"context"
	"fmt"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
)

// MoveSiteTx gives a site's backups and their schedule to another owner. From then on these backups don't give out the Git
// credential that they hold, which was the sender's.
func (s *Backups) MoveSiteTx(ctx context.Context, tx *db.Tx, id site.ID, from, to account.OwnerID) (int64, error) {
	var running int
	if err := tx.QueryRow(ctx, `SELECT count(*) FROM backups WHERE site_id = $1 AND status IN ('pending', 'running')`, id).
		Scan(&running); err != nil {
		return 0, fmt.Errorf("count backups of site: %w", err)
	}
	if running > 0 {
		return 0, fault.New(fault.Conflict, "site_busy", "The site is being backed up", "try again once the backup has ended")
	}
	if _, err := tx.Exec(ctx, `UPDATE backup_schedules SET owner_id = $2 WHERE site_id = $1`, id, to); err != nil {
		return 0, fmt.Errorf("move backups of site: %w", err)
	}
	n, err := tx.Exec(ctx, `UPDATE backups SET owner_id = $2, moved = TRUE WHERE site_id = $1 AND owner_id <> $2`, id, to)
	if err != nil {
		return 0, fmt.Errorf("move backups of site: %w", err)
	}
	return n, nil
}
