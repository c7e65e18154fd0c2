package deploy

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"slipway/internal/db"
	"slipway/internal/site"
)

// The uids that builds run under: one per site, so that no site's processes can touch
// another's files. A released one is not given again for 30 days.
const (
	firstUID = 200_000
	lastUID  = 265_535
	restUID  = 30 * 24 * time.Hour
)

// uidOf returns the site's own uid, taking one when it has none.
func (d *Deployments) uidOf(ctx context.Context, id site.ID) (uid int, err error) {
	err = d.c.DB.Write(ctx, func(tx *db.Tx) error {
		err := tx.QueryRow(ctx, `SELECT uid FROM build_uids WHERE site_id = $1`, id).Scan(&uid)
		if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if err := tx.QueryRow(ctx, `SELECT COALESCE(MAX(uid), $1) + 1 FROM build_uids`, firstUID-1).Scan(&uid); err != nil {
			return err
		}
		if uid <= lastUID {
			_, err = tx.Exec(ctx, `INSERT INTO build_uids (uid, site_id, released_at) VALUES ($1, $2, 0)`, uid, id)
			return err
		}
		return tx.QueryRow(ctx, `
			UPDATE build_uids SET site_id = $1, released_at = 0
			WHERE uid = (SELECT uid FROM build_uids WHERE released_at > 0 AND released_at < $2 ORDER BY released_at LIMIT 1)
			RETURNING uid`, id, db.Now().Add(-restUID)).Scan(&uid)
	})
	if err != nil {
		return 0, fmt.Errorf("take a uid for builds: %w", err)
	}
	return uid, nil
}
