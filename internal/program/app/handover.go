package app

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"slipway/internal/platform/id"
	"slipway/internal/platform/node"
)

// handOverEvery is how often a draining node looks for programs that another one could run.
const handOverEvery = 2 * time.Second

// handOver has other nodes take what runs here, while this node drains: a visit from here makes another one start the program, and the
// site is that node's from then on. What has files or databases here alone stays.
func (a *Apps) handOver(ctx context.Context) {
	if !a.c.Places.Draining() {
		a.giving = nil
		return
	}
	a.giveAway(ctx)
	if a.c.Relay == nil {
		return
	}
	type running struct {
		site       id.Site
		deployment id.Deployment
	}
	var list []running
	a.mu.Lock()
	for _, p := range a.programs {
		p.mu.Lock()
		if p.now != nil && !p.away && !p.want.Pinned && !a.stores(p.want.Spec) {
			list = append(list, running{p.want.Site, p.deployment})
		}
		p.mu.Unlock()
	}
	a.mu.Unlock()
	if len(list) == 0 {
		return
	}
	nodes, err := node.List(ctx, a.c.DB)
	if err != nil {
		a.c.Log.WarnContext(ctx, "other nodes not read; programs stay here for now", "err", err)
		return
	}
	nodes = slices.DeleteFunc(nodes, func(n node.Node) bool {
		return n.ID == a.node || n.State != node.Up || n.Address == "" || !slices.Contains(n.Roles, "worker")
	})
	for _, r := range list {
		if len(nodes) == 0 || ctx.Err() != nil || a.c.Places.Pinned(ctx, r.site) {
			continue
		}
		to := nodes[rand.IntN(len(nodes))]
		reach, done := context.WithTimeout(ctx, a.c.WakeTime)
		c, _, err := a.c.Relay.Dial(reach, to.Address, r.deployment)
		done()
		if err != nil {
			a.c.Log.WarnContext(ctx, "program not handed over, will be retried", "site", r.site, "to", to.Name, "err", err)
			continue
		}
		c.Close()
		a.c.Log.InfoContext(ctx, "program handed over", "site", r.site, "to", to.Name)
	}
}

// giveAway lets other nodes take the sites that write to the storage that all nodes mount. Two must not write at once, so each is ended
// here first: when no request is under way, or its time to drain is over. Requests wait meanwhile.
func (a *Apps) giveAway(ctx context.Context) {
	sites, err := a.c.Places.Giving(ctx)
	if err != nil {
		a.c.Log.WarnContext(ctx, "sites to give away not read; they stay here for now", "err", err)
		return
	}
	if a.giving == nil {
		a.giving = map[id.Site]time.Time{}
	}
	all := a.all()
	for _, site := range sites {
		if a.giving[site].IsZero() {
			a.giving[site] = time.Now()
		}
		for _, p := range all {
			p.mu.Lock()
			in, late := p.now, time.Since(a.giving[site]) > p.want.Drain
			if p.want.Site != site {
				in = nil
			}
			p.mu.Unlock()
			p.stop(in, late, Sleeping)
		}
		if a.busy(site, all) {
			continue
		}
		if err := a.c.Places.Give(ctx, site); err != nil {
			a.c.Log.WarnContext(ctx, "site not given away, will be retried", "site", site, "err", err)
			continue
		}
		delete(a.giving, site)
		a.c.Log.InfoContext(ctx, "site given away", "site", site)
	}
}

// busy reports whether something of a site runs here, or is about to.
func (a *Apps) busy(site id.Site, all []*program) bool {
	for _, p := range all {
		p.mu.Lock()
		up := p.want.Site == site && (p.now != nil || p.starting != nil)
		p.mu.Unlock()
		if up {
			return true
		}
	}
	return a.storage.Busy(site)
}

// keepHandingOver hands over until ctx ends.
func (a *Apps) keepHandingOver(ctx context.Context) {
	if a.c.Places == nil {
		return
	}
	tick := time.NewTicker(handOverEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			a.handOver(ctx)
		}
	}
}
