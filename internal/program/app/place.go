package app

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"slipway/internal/platform/fault"
	"slipway/internal/platform/id"
	"slipway/internal/program/placement"
	"slipway/internal/program/runtime"
	"slipway/internal/program/volume"
)

// site returns whose a deployment is; empty: it is gone, which others say.
func (a *Apps) siteOf(ctx context.Context, deployment id.Deployment) (site id.Site, err error) {
	err = a.c.DB.QueryRow(ctx, `SELECT site_id FROM deployment_sites WHERE id = $1`, deployment).Scan(&site)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return "", fmt.Errorf("find site of deployment: %w", err)
	}
	return site, nil
}

// look returns a [placement.Away] where a deployment's site runs on another node.
func (a *Apps) look(ctx context.Context, deployment id.Deployment) error {
	if a.c.Places == nil {
		return nil
	}
	site, err := a.siteOf(ctx, deployment)
	if err != nil || site == "" {
		return err
	}
	return a.c.Places.Look(ctx, site)
}

// Here returns nil where a site's programs run on this node, or may; else it is for the handler of a job, which returns what is
// no fault as it is.
func (a *Apps) Here(ctx context.Context, site id.Site) error {
	return a.c.Places.Here(ctx, site)
}

// Stored lists sites that have something on this node alone.
type Stored interface {
	Sites(ctx context.Context) ([]id.Site, error)
}

// Adopt pins the sites that have files or databases on this node alone, as those of earlier versions do. It is for before
// anything starts.
func (a *Apps) Adopt(ctx context.Context, databases Stored) error {
	sites, err := databases.Sites(ctx)
	if err != nil {
		return err
	}
	if a.c.Storage != nil && !a.shared() {
		stored, err := a.c.Storage.StorageSites()
		if err != nil {
			return err
		}
		sites = append(sites, stored...)
	}
	others, err := a.c.Places.Adopt(ctx, sites)
	if len(others) > 0 {
		a.c.Log.WarnContext(
			ctx, "sites have storage here, but belong to another node: what is here is not used; compare it, and delete it", "sites", others)
	}
	return err
}

// Place is Here for a deployment. A node that is down is no error: the start says so.
func (a *Apps) Place(ctx context.Context, deployment id.Deployment) error {
	if a.c.Places == nil {
		return nil
	}
	site, err := a.siteOf(ctx, deployment)
	if err != nil || site == "" {
		return err
	}
	if err := a.Here(ctx, site); fault.As(err) == nil {
		return err
	}
	return nil
}

// claim makes this node the site's whose program is about to start. What the program stores pins the site.
func (a *Apps) claim(ctx context.Context, want Wanted) error {
	if want.Missing != nil {
		return want.Missing
	}
	if err := a.missesStorage(want.Spec); err != nil {
		return err
	}
	if a.c.Places == nil {
		return nil
	}
	if a.c.Storage != nil && keeps(want.Spec) {
		if err := a.knowsStorage(ctx, want.Site); err != nil {
			return err
		}
	}
	switch {
	case want.Pinned:
		return a.c.Places.Take(ctx, want.Site, placement.Here)
	case !a.stores(want.Spec):
		return a.c.Places.Take(ctx, want.Site, placement.Nothing)
	}
	return a.c.Places.Take(ctx, want.Site, placement.Files)
}

// stores reports whether what a program writes outlives it on storage that has one writer: its node's, or that of all nodes, where
// sessions of PHP are too.
func (a *Apps) stores(s runtime.Spec) bool {
	return keeps(s) || !s.Isolated && s.PHP != nil && a.shared()
}

// shared reports whether all nodes have the storage of sites.
func (a *Apps) shared() bool { return a.c.Storage != nil && a.c.Storage.StorageShared() }

// missesStorage returns why a program can't run at the moment: what it stores doesn't answer.
func (a *Apps) missesStorage(s runtime.Spec) error {
	if !a.shared() || !a.stores(s) {
		return nil
	}
	return a.c.Storage.StorageFault()
}

// keeps reports whether what a program writes stays on the node.
func keeps(s runtime.Spec) bool {
	if s.Isolated {
		return false
	}
	for _, x := range s.Storage {
		if !x.Temporary {
			return true
		}
	}
	return false
}

// knowsStorage refuses to begin with empty folders where the site is known to have stored something, and no node says that it
// has it: one of an earlier version, which is yet to be upgraded, may.
func (a *Apps) knowsStorage(ctx context.Context, site id.Site) error {
	if _, ok := a.c.Storage.StorageDir(site); ok {
		return nil
	}
	_, placed, err := a.c.Places.Of(ctx, site)
	if err != nil || placed {
		return err
	}
	u, err := a.StorageUse(ctx, site)
	if err != nil || u.Bytes == 0 || a.shared() { // there the mark says that it is the right one
		return err
	}
	return &fault.Error{
		Kind: fault.Unavailable, Code: placement.NodeDown, RetryAfter: 30 * time.Second,
		Message: "The site's files are on a node that has not started yet",
	}
}

// errElsewhere is the error of requests to a program whose site another node has taken, from the one that still ends it.
var errElsewhere = &fault.Error{
	Kind: fault.Unavailable, Message: "The site runs on another node now", Code: placement.OnAnotherNode, RetryAfter: time.Second,
}

// isElsewhere reports whether an error says that a site can't run on this node now, for no fault of its own.
func isElsewhere(err error) bool {
	f := fault.As(err)
	return f != nil &&
		(f.Code == placement.OnAnotherNode || f.Code == placement.NodeDown || f.Code == placement.NodeDraining || f.Code == volume.Unavailable)
}

// leave ends what runs here of sites that another node has taken: while this one drained, or did not renew its lease. What
// answers requests may finish them.
func (a *Apps) leave(ctx context.Context) error {
	if a.c.Places == nil {
		return nil
	}
	lapses := a.c.Places.Lapses() // before anything is compared: the next one has its own turn
	all := a.all()
	sites := map[id.Site]bool{}
	for _, p := range all {
		p.mu.Lock()
		if p.now != nil && p.want.Site != "" {
			sites[p.want.Site] = true
		}
		p.mu.Unlock()
	}
	if len(sites) == 0 {
		a.compared.Store(lapses)
		return nil
	}
	mine, err := a.c.Places.Mine(ctx, slices.Sorted(maps.Keys(sites)))
	if err != nil {
		return err
	}
	for _, p := range all {
		p.mu.Lock()
		away := p.now != nil && p.want.Site != "" && !mine[p.want.Site]
		if away != p.away {
			p.away, p.drain = away, time.Now().Add(p.want.Drain)
			if a.shared() && a.stores(p.want.Spec) { // the other node writes to it now
				p.drain = time.Now().Add(-time.Second)
			}
		}
		p.mu.Unlock()
	}
	a.compared.Store(lapses)
	return nil
}

// sure makes certain that what runs here is still this node's, after a time in which it could not say so. While the database
// doesn't answer nobody can have taken anything over through it, as far as this node can tell.
func (a *Apps) sure(ctx context.Context) {
	if a.c.Places.Sure(a.compared.Load()) {
		return
	}
	if err := a.c.Places.Confirm(ctx); err != nil {
		return
	}
	if err := a.leave(ctx); err != nil {
		a.c.Log.WarnContext(ctx, "sites of this node not compared", "err", err)
	}
}
