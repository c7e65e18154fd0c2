package database

import (
	"context"
	"fmt"
	"strings"

	"slipway/internal/db"
	"slipway/internal/fault"
)

// previewStore ends the name by which the previews of a site are known where the site itself
// is: they have a socket of their own, so that they can't take production's connections.
const previewStore = "-preview"

// PreviewEnv returns what Env does for the previews of a site: for each database of the site
// a twin of the same name, which all previews of the site share and no production program
// sees. A twin that is missing is made, empty, before it returns.
func (d *Databases) PreviewEnv(ctx context.Context, site string) (env map[string]string, secrets []string, err error) {
	list, err := d.ofSite(ctx, d.c.DB, site)
	if err != nil || len(list) == 0 || d.Unavailable() != "" {
		return nil, nil, err
	}
	for _, x := range list {
		if err := d.makeTwin(ctx, x); err != nil {
			return nil, nil, err
		}
	}
	twins, err := d.query(ctx, d.c.DB, `site_id = $1 AND preview AND status <> 'deleting'`, site)
	if err != nil {
		return nil, nil, err
	}
	return d.envOf(twins)
}

// makeTwin makes the twin of a database, if it isn't there.
func (d *Databases) makeTwin(ctx context.Context, x Database) error {
	var twin Database
	err := d.c.DB.Write(ctx, func(tx *db.Tx) error {
		twins, err := d.query(ctx, tx, `site_id = $1 AND name = $2 AND preview AND status <> 'deleting'`, x.Site, x.Name)
		if err != nil {
			return err
		}
		if len(twins) > 0 {
			twin = twins[0]
			return nil
		}
		// Locks its row: a site that is being deleted gets no more databases.
		if _, err := d.c.Sites.LockTx(ctx, tx, x.Owner, x.Site); err != nil {
			return err
		}
		twin = x
		twin.preview, twin.Status, twin.Size, twin.Full, twin.CreatedAt = true, Creating, 0, false, db.Now()
		return d.insert(ctx, tx, &twin)
	})
	if err != nil {
		return fmt.Errorf("note database of previews: %w", err)
	}
	err = d.create(ctx, twin.ID)
	if fault.Is(err, fault.NotFound) { // deleted meanwhile
		return nil
	}
	return err
}

// siteOf returns the site whose programs a socket is for.
func siteOf(store string) string { return strings.TrimSuffix(store, previewStore) }
