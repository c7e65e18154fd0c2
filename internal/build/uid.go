package build

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"slipway/internal/db"
)

// The uids that builds run under: one per site, so that no site's processes can touch
// another's files. A released one is not given again for 30 days.
const (
	firstUID = 200_000
	lastUID  = 265_535
	restUID  = 30 * 24 * time.Hour
)

// UID returns the host's uid of a site, under which all that is the site's own runs.
func (b *Builds) UID(ctx context.Context, site string) (int, error) { return b.uidOf(ctx, site) }

// uidOf returns the site's own uid, taking one when it has none. Other nodes may take
// theirs at the same moment: who finds that the one he chose is taken chooses again.
func (b *Builds) uidOf(ctx context.Context, site string) (uid int, err error) {
	for range 100 {
		err = b.c.DB.Write(ctx, func(tx *db.Tx) error { uid, err = takeUID(ctx, tx, site); return err })
		if !errors.Is(err, sql.ErrNoRows) {
			break
		}
	}
	if err != nil {
		return 0, fmt.Errorf("take a uid for builds: %w", err)
	}
	return uid, nil
}

// takeUID answers sql.ErrNoRows when there is none left, or somebody else was quicker.
func takeUID(ctx context.Context, tx *db.Tx, site string) (uid int, err error) {
	err = tx.QueryRow(ctx, `SELECT uid FROM build_uids WHERE site_id = $1`, site).Scan(&uid)
	if !errors.Is(err, sql.ErrNoRows) {
		return uid, err
	}
	err = tx.QueryRow(ctx, `
		INSERT INTO build_uids (uid, site_id, released_at)
		SELECT COALESCE(MAX(uid), $1) + 1, $2, 0 FROM build_uids WHERE true HAVING COALESCE(MAX(uid), $1) < $3
		ON CONFLICT DO NOTHING RETURNING uid`, firstUID-1, site, lastUID).Scan(&uid)
	if !errors.Is(err, sql.ErrNoRows) {
		return uid, err
	}
	// The condition stands twice: the second holds for the row as it is once we have it.
	err = tx.QueryRow(ctx, `
		UPDATE build_uids SET site_id = $1, released_at = 0
		WHERE uid = (SELECT uid FROM build_uids WHERE released_at > 0 AND released_at < $2 ORDER BY released_at LIMIT 1)
			AND released_at > 0 AND released_at < $2
		RETURNING uid`, site, db.Now().Add(-restUID)).Scan(&uid)
	return uid, err
}

// ReleaseUIDTx gives a deleted site's uid back.
func (b *Builds) ReleaseUIDTx(ctx context.Context, tx *db.Tx, site string) error {
	_, err := tx.Exec(ctx, `UPDATE build_uids SET released_at = $2, site_id = 'gone/' || site_id WHERE site_id = $1`, site, db.Now())
	if err != nil {
		return fmt.Errorf("release uid: %w", err)
	}
	return nil
}
