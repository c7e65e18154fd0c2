package deploy

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"slipway/internal/account"
	"slipway/internal/blob"
	"slipway/internal/db"
	"slipway/internal/release"
	"slipway/internal/site"
)

// holdTime is how long a release is kept for a deployment that has yet to refer to it:
// longer than publishing can take.
const holdTime = 2 * time.Hour

// hold keeps a release from garbage collection on every node, for as long as publishing
// may take: the one that files are taken over from, and the one that was just made.
func (d *Deployments) hold(ctx context.Context, id release.ID) error {
	if id == "" {
		return nil
	}
	now := db.Now()
	err := d.c.DB.Write(ctx, func(tx *db.Tx) error {
		if _, err := tx.Exec(ctx, `DELETE FROM release_holds WHERE until < $1`, now); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `INSERT INTO release_holds (release, until) VALUES ($1, $2) ON CONFLICT (release) DO UPDATE SET until = excluded.until`, id, now.Add(holdTime))
		return err
	})
	if err != nil {
		return fmt.Errorf("hold release: %w", err)
	}
	return nil
}

// Roots marks the blobs of every release that a deployment, running or ended, may still
// need. It is registered with garbage collection.
func (d *Deployments) Roots(ctx context.Context, mark func(blob.Digest)) error {
	rows, err := d.c.DB.Query(ctx, `
		SELECT release, min(held) = 1 FROM (
			SELECT release, 0 AS held FROM deployments WHERE release <> ''
			UNION ALL SELECT release, 1 FROM release_holds WHERE until >= $1) AS roots
		GROUP BY release`, db.Now())
	type root struct {
		id   release.ID
		held bool // and nothing else
	}
	all, err := db.Collect(rows, err, func(s db.Scanner) (r root, err error) { return r, s.Scan(&r.id, &r.held) })
	if err != nil {
		return fmt.Errorf("list releases: %w", err)
	}
	for _, r := range all {
		for digest, err := range d.c.Releases.Digests(ctx, r.id) {
			if r.held && errors.Is(err, fs.ErrNotExist) {
				break // nothing is taken over from a release that can't be read
			}
			if err != nil {
				return err
			}
			mark(digest)
		}
	}
	return d.bundleRoots(ctx, mark)
}

// publish makes a release, to which fill adds the files, on top of what the site serves.
// When a sweep deleted at the same moment what was there to be used again, it does so anew.
func (d *Deployments) publish(ctx context.Context, s site.Site, fill func(w *release.Writer) error) (release.Sealed, error) {
	previous := release.ID(s.LiveRelease)
	use, err := d.c.Limits.UseOf(ctx, d.c.DB, s.Owner, account.LimitStorage)
	if err != nil {
		return release.Sealed{}, err
	}
	if err := d.hold(ctx, previous); err != nil {
		return release.Sealed{}, err
	}
	for try := 1; ; try++ {
		rel, err := d.publishOnce(ctx, previous, func(w *release.Writer) error {
			w.Allow(use.Left(), use.Reached)
			return fill(w)
		})
		if err == nil {
			return rel, d.hold(ctx, rel.ID)
		}
		if !errors.Is(err, blob.ErrSwept) || try == 3 {
			return rel, err
		}
		d.c.Log.InfoContext(ctx, "release made again", "err", err)
	}
}

func (d *Deployments) publishOnce(ctx context.Context, previous release.ID, fill func(w *release.Writer) error) (release.Sealed, error) {
	w, err := d.c.Releases.Begin(ctx, previous)
	if err != nil {
		return release.Sealed{}, fmt.Errorf("begin release: %w", err)
	}
	defer w.Abort()
	if err := fill(w); err != nil {
		return release.Sealed{}, err
	}
	rel, err := w.Seal(ctx)
	if err != nil {
		return release.Sealed{}, fmt.Errorf("seal release: %w", err)
	}
	return rel, nil
}
