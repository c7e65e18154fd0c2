package edge

import (
	"context"
	"fmt"
	"time"

	"slipway/internal/platform/id"

	"slipway/internal/build/release"
	"slipway/internal/platform/db"
)

const (
	pollEvery = 500 * time.Millisecond
	// All rows are read again every allEvery: a row removed from the view leaves no trace, and on PostgreSQL a lower
	// version may become visible after a higher one.
	allEvery = 5 * time.Minute

	silent = 3 * time.Second // limit for a database connection that doesn't answer
)

// follow keeps the tables in step with the views live and custom_hosts.
func (e *Edge) follow(ctx context.Context) error {
	wake, stop := e.DB.Listen("live")
	defer stop()
	switched, unlisten := e.DB.Listen("previews")
	defer unlisten()
	pausing, unpause := e.DB.Listen("paused")
	defer unpause()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	var version, claimed int64
	var all, looked time.Time // when all rows, and the paused sites, were last read
	down := false
	for {
		var err error
		ctx := ctx
		if !down { // replace a silent connection soon, but wait for a slow database
			ctx = db.Patient(ctx, silent)
		}
		if time.Since(looked) > pausedEvery {
			if err = e.readPaused(ctx, time.Now()); err == nil {
				looked = time.Now()
			}
		}
		if e.moved { // the rows show who is paused now
			all, e.moved = time.Time{}, false
			e.previews.forget()
		}
		if err != nil {
			// While the database is down, the rows can't be read either.
		} else if time.Since(all) > allEvery {
			start := time.Now()
			if version, claimed, err = e.readBoth(ctx, 0, 0); err == nil {
				all = start
				e.loaded.Store(true)
			}
		} else {
			version, claimed, err = e.readBoth(ctx, version, claimed)
		}
		if ctx.Err() != nil {
			return nil
		}
		if (err != nil) != down { // log each change once
			down = err != nil
			if down {
				e.Log.ErrorContext(ctx, "hosts not read; serving those known so far", "err", err)
			} else {
				e.Log.InfoContext(ctx, "hosts read again")
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-wake:
		case <-switched:
			e.previews.forget()
		case <-pausing:
			looked = time.Time{}
		case <-tick.C:
		}
	}
}

// readBoth reads and applies changes of both views. One counter orders their rows, but they are read at different
// times, so each view has its own version mark.
func (e *Edge) readBoth(ctx context.Context, version, claimed int64) (int64, int64, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	rows, err := e.readLive(ctx, version)
	if err != nil {
		return version, claimed, err
	}
	if rows, err = e.arm(ctx, rows); err != nil {
		return version, claimed, err
	}
	custom, err := e.readClaims(ctx, claimed)
	if err != nil {
		custom = nil // sites can still be applied
	}
	e.prefetch(ctx, rows)
	before := e.table.hosts()
	deleted := false
	e.table.change(func(c *changes) {
		sites := map[id.Site]bool{}
		all := version == 0
		for _, t := range rows {
			if have := before.find(t.label); have == nil || !have.same(t) {
				t.earlier = have.before(t, time.Now())
				c.set(t)
				deleted = deleted || t.state == stateDeleted
			}
			sites[t.site] = true
			version = max(version, t.version)
		}
		if all {
			c.keep(sites)
		}
		if err == nil {
			claimed = c.claims(custom, claimed)
		}
	})
	if deleted {
		e.previews.forget()
	}
	e.metrics.hosts.Set(float64(e.table.hosts().len()))
	return version, claimed, err
}

// readLive returns the rows above a version; 0 returns all.
func (e *Edge) readLive(ctx context.Context, above int64) ([]*target, error) {
	floor := above
	if above == 0 {
		floor = -1
	}
	rows, err := e.DB.Query(ctx, `
		SELECT l.site_id, l.owner_id, l.host_label, COALESCE(l.release, ''), COALESCE(l.deployment_id, ''), l.state, l.backend,
		l.runtime, l.node, l.version, COALESCE(s.settings, '')
		FROM live l LEFT JOIN serving s ON s.site_id = l.site_id
		WHERE l.version > $1 ORDER BY l.version`, floor)
	out, err := db.Collect(rows, err, func(s db.Scanner) (*target, error) {
		var t target
		err := s.Scan(&t.site, &t.owner, &t.label, &t.release, &t.deployment, &t.state, &t.backend, &t.runtime, &t.node,
			&t.version, &t.settings)
		t.serving = readServing(t.settings)
		e.source(&t)
		if t.state == stateLive && e.paused[t.site] {
			t.state = statePaused
		}
		t.capped = e.capped[t.owner]
		return &t, err
	})
	if err != nil {
		return nil, fmt.Errorf("read live: %w", err)
	}
	return out, nil
}

// prefetch loads the new trees of sites with recent visits, so that no visitor waits after a switch.
func (e *Edge) prefetch(ctx context.Context, rows []*target) {
	for _, n := range rows {
		before := e.table.hosts().find(n.label)
		if before == nil || before.state != stateLive || n.state != stateLive || n.release == before.release {
			continue
		}
		if _, ok := e.trees.Get(before.release); ok {
			if _, err := e.tree(ctx, n.owner, n.release); err != nil {
				e.Log.ErrorContext(ctx, "release not readable", "site", n.site, "release", n.release, "err", err)
			}
		}
	}
}

// tree returns the tree of an owner's release from the cache or its manifest.
func (e *Edge) tree(ctx context.Context, owner id.Owner, id release.ID) (*release.Tree, error) {
	t, hit, err := e.trees.FetchFor(ctx, string(owner), id, func(ctx context.Context) (*release.Tree, int64, error) {
		t, err := e.Releases.Load(ctx, id)
		if err != nil {
			return nil, 0, err
		}
		return t, t.Memory(), nil
	})
	e.metrics.cache("tree", hit)
	return t, err
}
