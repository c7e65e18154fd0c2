// Package hold owns keeping releases from garbage collection while a running deployment uses or has made them and no
// row refers to them yet.
package hold

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"slipway/internal/build/release"
	"slipway/internal/platform/blob"
	"slipway/internal/platform/db"
)

// holdTime is how long a release is kept: longer than publishing can take.
const holdTime = 2 * time.Hour

// Release keeps a release from garbage collection on every node for holdTime. It is for the release that files are
// copied from, and for the one that was just made.
func Release(ctx context.Context, d *db.DB, id release.ID) error {
	if id == "" {
		return nil
	}
	now := db.Now()
	err := d.Write(ctx, func(tx *db.Tx) error {
		if _, err := tx.Exec(ctx, `DELETE FROM release_holds WHERE until < $1`, now); err != nil {
			return err
		}
		_, err := tx.Exec(ctx,
			`INSERT INTO release_holds (release, until) VALUES ($1, $2) ON CONFLICT (release) DO UPDATE SET until = excluded.until`,
			id, now.Add(holdTime))
		return err
	})
	if err != nil {
		return fmt.Errorf("hold release: %w", err)
	}
	return nil
}

// Roots marks the blobs of the kept releases. It is registered with garbage collection.
func Roots(ctx context.Context, d *db.DB, releases *release.Releases, mark func(blob.Digest)) error {
	rows, err := d.Query(ctx, `SELECT release FROM release_holds WHERE until >= $1`, db.Now())
	all, err := db.Collect(rows, err, func(s db.Scanner) (id release.ID, err error) { return id, s.Scan(&id) })
	if err != nil {
		return fmt.Errorf("list kept releases: %w", err)
	}
	for _, id := range all {
		for digest, err := range releases.Digests(ctx, id) {
			if errors.Is(err, fs.ErrNotExist) {
				break // an unreadable release can't be copied from
			}
			if err != nil {
				return err
			}
			mark(digest)
		}
	}
	return nil
}
