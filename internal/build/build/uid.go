package build

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"slipway/internal/platform/id"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
)

// Builds and programs run under one uid per site, so that no site's processes can access another's files. A site that
// has run a program has permanent files and keeps its uid until it is deleted. When all uids are in use, a new site
// gets the one that was unused longest, at least 30 days: its caches were deleted after cacheAge, so no files belong to
// it. The range therefore limits the sites with programs plus those built within 30 days.
const (
	FirstUID = 200_000 // first uid
	UIDs     = 1 << 16 // number of uids

	lastUID = FirstUID + UIDs - 1
	restUID = 30 * 24 * time.Hour
)

// UID returns the uid for a site's programs. The site keeps it until it is deleted.
func (b *Builds) UID(ctx context.Context, site id.Site) (int, error) { return b.uid(ctx, site, true) }

// uidOf returns the site's uid for a build.
func (b *Builds) uidOf(ctx context.Context, site id.Site) (uid int, err error) {
	return b.uid(ctx, site, false)
}

// uid returns the site's uid, and assigns one if it has none. Nodes may choose the same uid at the same time; the
// slower one then chooses again.
func (b *Builds) uid(ctx context.Context, site id.Site, files bool) (uid int, err error) {
	for range 100 {
		err = b.c.DB.Write(ctx, func(tx *db.Tx) error { uid, err = takeUID(ctx, tx, site, files); return err })
		if !errors.Is(err, sql.ErrNoRows) {
			break
		}
	}
	if errors.Is(err, sql.ErrNoRows) {
		return 0, fault.New(fault.Unavailable, "no_build_identity", "This server can't build or run more sites at the moment",
			fmt.Sprintf(
				"all %d user ids belong to sites that run programs, or that were built or deleted within the last 30 days",
				UIDs,
			))
	}
	if err != nil {
		return 0, fmt.Errorf("take a uid for builds: %w", err)
	}
	return uid, nil
}

// takeUID returns sql.ErrNoRows if no uid is free, or another node was faster.
func takeUID(ctx context.Context, tx *db.Tx, site id.Site, files bool) (uid int, err error) {
	now := db.Now()
	var used db.Time
	var has bool
	err = tx.QueryRow(ctx, `SELECT uid, used_at, has_files FROM build_uids WHERE site_id = $1`, site).Scan(&uid, &used, &has)
	if err == nil && (now.Sub(used) > 24*time.Hour || files && !has) {
		// A node that reassigns the uid now has found it unused for 30 days, and wins.
		err = tx.QueryRow(ctx,
			`UPDATE build_uids SET used_at = $3, has_files = $4 WHERE uid = $1 AND site_id = $2 RETURNING uid`, uid,
			site, now, files || has).Scan(&uid)
	}
	if !errors.Is(err, sql.ErrNoRows) {
		return uid, err
	}
	err = tx.QueryRow(ctx, `
		INSERT INTO build_uids (uid, site_id, released_at, used_at, has_files)
		SELECT COALESCE(MAX(uid), $1) + 1, $2, 0, $4, $5 FROM build_uids WHERE true HAVING COALESCE(MAX(uid), $1) < $3
		ON CONFLICT DO NOTHING RETURNING uid`, FirstUID-1, site, lastUID, now, files).Scan(&uid)
	if !errors.Is(err, sql.ErrNoRows) {
		return uid, err
	}
	// The condition is repeated, so that it is checked again once the row is locked.
	err = tx.QueryRow(ctx, `
		UPDATE build_uids SET site_id = $1, released_at = 0, used_at = $3, has_files = $4
		WHERE uid = (SELECT uid FROM build_uids WHERE used_at < $2 AND released_at < $2 AND NOT has_files ORDER BY used_at LIMIT 1)
			AND used_at < $2 AND released_at < $2 AND NOT has_files
		RETURNING uid`, site, now.Add(-restUID), now, files).Scan(&uid)
	return uid, err
}

// ReleaseUIDTx frees a deleted site's uid.
func (b *Builds) ReleaseUIDTx(ctx context.Context, tx *db.Tx, site id.Site) error {
	_, err := tx.Exec(ctx,
		`UPDATE build_uids SET released_at = $2, site_id = 'gone/' || site_id, has_files = FALSE WHERE site_id = $1`,
		site, db.Now())
	if err != nil {
		return fmt.Errorf("release uid: %w", err)
	}
	return nil
}
