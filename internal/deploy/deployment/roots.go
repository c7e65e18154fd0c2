package deployment

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"slipway/internal/build/bundle"
	"slipway/internal/build/release"
	"slipway/internal/platform/blob"
	"slipway/internal/platform/db"
)

// Roots marks the blobs of every release and bundle that a deployment may still need.
func (d *Deployments) Roots(ctx context.Context, releases *release.Releases, bundles *bundle.Bundles, mark func(blob.Digest)) error {
	rows, err := d.c.DB.Query(ctx, `SELECT DISTINCT release FROM deployments WHERE release <> ''`)
	all, err := db.Collect(rows, err, func(s db.Scanner) (id release.ID, err error) { return id, s.Scan(&id) })
	if err != nil {
		return fmt.Errorf("list releases: %w", err)
	}
	for _, id := range all {
		for digest, err := range releases.Digests(ctx, id) {
			if err != nil {
				return err
			}
			mark(digest)
		}
	}
	return d.bundleRoots(ctx, bundles, mark)
}

// bundleRoots marks the blobs of every bundle that a deployment refers to.
func (d *Deployments) bundleRoots(ctx context.Context, bundles *bundle.Bundles, mark func(blob.Digest)) error {
	rows, err := d.c.DB.Query(ctx, `SELECT DISTINCT bundle FROM deployments WHERE bundle <> ''`)
	ids, err := db.Collect(rows, err, func(s db.Scanner) (id bundle.ID, err error) { return id, s.Scan(&id) })
	if err != nil {
		return fmt.Errorf("list bundles: %w", err)
	}
	for _, id := range ids {
		for digest, err := range bundles.Blobs(ctx, id) {
			if errors.Is(err, fs.ErrNotExist) {
				break // damaged: it can't run, so its other blobs needn't be kept
			}
			if err != nil {
				return err
			}
			mark(digest)
		}
	}
	return nil
}
