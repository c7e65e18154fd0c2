package wordpress

import (
	"context"
	"strings"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/panics"
	"slipway/internal/platform/text"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
)

// purgeTopic wakes nodes when pages of a site changed elsewhere.
const purgeTopic = "wordpress/purge"

// purgeTx makes pages of a site stale, here and on every other node: there all of them.
func (w *WordPress) purgeTx(ctx context.Context, tx *db.Tx, id site.ID, paths []string) error {
	tx.AfterCommit(func() { w.cache.Purge(id, paths...) })
	return tellTx(ctx, tx, id, false)
}

// tellTx makes the pages of a site stale on other nodes. With objects it also clears the object cache on the node that has it.
func tellTx(ctx context.Context, tx *db.Tx, id site.ID, objects bool) error {
	now := tx.Now() // nodes have it in common, and compare it with what they saw last: each time another value
	_, err := tx.Exec(ctx, `UPDATE wordpress_sites SET purged_at = CASE WHEN purged_at < $2 THEN $2 ELSE purged_at + 1 END
		WHERE site_id = $1`, id, now)
	if err == nil && objects {
		_, err = tx.Exec(ctx, `UPDATE wordpress_sites SET cleared_at = CASE WHEN cleared_at < $2 THEN $2 ELSE cleared_at + 1 END
			WHERE site_id = $1`, id, now)
	}
	tx.Notify(purgeTopic)
	return err
}

// purgeAll makes what the object cache of a site holds unfindable, and then all of its pages
// stale: one that is made in between would show what the object cache still had.
func (w *WordPress) purgeAll(ctx context.Context, id site.ID) {
	w.clearObjects(id)
	w.cache.Purge(id, "*")
	w.tell(ctx, id, true)
}

// Changed hears that something else than a request may have changed the database of a site, where
// that is a WordPress: its pages are stale.
func (w *WordPress) Changed(id site.ID) {
	ctx, done := context.WithTimeout(context.Background(), 10*time.Second)
	defer done()
	if _, err := w.get(ctx, w.c.DB, id); !fault.Is(err, fault.Conflict) {
		w.purge(ctx, id, []string{"*"})
	}
}

// purge makes pages stale at once, and tells other nodes.
func (w *WordPress) purge(ctx context.Context, id site.ID, paths []string) {
	w.cache.Purge(id, paths...)
	w.tell(ctx, id, false)
}

// tell is tellTx in a transaction of its own.
func (w *WordPress) tell(ctx context.Context, id site.ID, objects bool) {
	if w.c.DB.Single() {
		return
	}
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer done()
	if err := w.c.DB.Write(ctx, func(tx *db.Tx) error { return tellTx(ctx, tx, id, objects) }); err != nil {
		w.c.Log.WarnContext(ctx, "other nodes not told of changed pages", "site", id, "err", err)
	}
}

// Follow makes stale what other nodes purge, on nodes of every role, until ctx ends.
func (w *WordPress) Follow(ctx context.Context) error {
	panics.Loop(ctx, w.followPurges)
	return nil
}

// followPurges makes stale what other nodes purge, and clears object caches of this node that they clear, until ctx ends.
func (w *WordPress) followPurges(ctx context.Context) {
	if w.c.DB.Single() {
		<-ctx.Done()
		return
	}
	wake, stop := w.c.DB.Listen(purgeTopic)
	defer stop()
	tick := time.NewTicker(5 * time.Second)
	defer tick.Stop()
	type change struct {
		site            site.ID
		purged, cleared db.Time
	}
	since := w.c.DB.Now()
	known := map[site.ID]change{} // what has been done about by now
	for {
		// A transaction that was slow to commit has an older time: look a little further back.
		from := since.Add(-10 * time.Second)
		now := w.c.DB.Now()
		rows, err := w.c.DB.Query(ctx, `SELECT site_id, purged_at, cleared_at FROM wordpress_sites WHERE purged_at > $1 LIMIT 10000`, from)
		list, err := db.Collect(rows, err, func(s db.Scanner) (c change, err error) { return c, s.Scan(&c.site, &c.purged, &c.cleared) })
		if err == nil {
			since = now
			seen := map[site.ID]change{}
			for _, c := range list {
				seen[c.site] = c
				// Whatever clocks say: what was made until now may be older than the change.
				if c.purged != known[c.site].purged {
					w.Forget() // settings may be what changed
					w.cache.Purge(c.site, "*")
				}
				if c.cleared != known[c.site].cleared && c.cleared.Time().After(from.Time()) && w.clearObjects(c.site) {
					// Since its pages were made stale, a node may have made some anew of what the cache still had.
					w.purge(ctx, c.site, []string{"*"})
				}
			}
			known = seen
		}
		select {
		case <-ctx.Done():
			return
		case <-wake:
		case <-tick.C:
		}
	}
}

// PurgeTx makes pages of the owner's site stale: those of the paths, or all, with what its object
// cache holds.
func (w *WordPress) PurgeTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id site.ID, paths []string) error {
	if _, err := w.c.Sites.LockTx(ctx, tx, owner, id); err != nil {
		return err
	}
	if _, err := w.get(ctx, tx, id); err != nil {
		return err
	}
	for _, p := range paths {
		if !strings.HasPrefix(p, "/") && p != "*" || strings.ContainsAny(p, "?#") {
			return fault.New(fault.Invalid, "invalid_paths", "Invalid path",
				"paths hold paths of pages without address or query, such as /shop/").Got(text.Clip(p, 100))
		}
	}
	if len(paths) == 0 {
		tx.AfterCommit(func() {
			w.clearObjects(id)
			w.cache.Purge(id, "*")
		})
		return tellTx(ctx, tx, id, true)
	}
	return w.purgeTx(ctx, tx, id, paths)
}
