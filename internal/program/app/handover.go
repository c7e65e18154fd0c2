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
// site is that node's from then on. What has files or databases here stays.
func (a *Apps) handOver(ctx context.Context) {
	if a.c.Relay == nil || !a.c.Places.Draining() {
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
		if p.now != nil && !p.away && !p.want.Pinned && !keeps(p.want.Spec) {
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
		if len(nodes) == 0 || ctx.Err() != nil || a.c.Places.Pinned(ctx, string(r.site)) {
			continue
		}
		to := nodes[rand.IntN(len(nodes))]
		reach, done := context.WithTimeout(ctx, a.c.WakeTime)
		c, _, err := a.c.Relay.Dial(reach, to.Address, string(r.deployment))
		done()
		if err != nil {
			a.c.Log.WarnContext(ctx, "program not handed over, will be retried", "site", r.site, "to", to.Name, "err", err)
			continue
		}
		c.Close()
		a.c.Log.InfoContext(ctx, "program handed over", "site", r.site, "to", to.Name)
	}
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
