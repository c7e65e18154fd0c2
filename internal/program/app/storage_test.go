package app

import (
	"context"
	"strings"
	"sync"
	"testing"

	"slipway/internal/platform/id"

	"slipway/internal/program/applog"
	"slipway/internal/program/storage"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/limits"
)

// What the programs of sites store must count towards their owner's storage limit. A program that fills it must be
// ended, must start again with no more room than it has used, and must get more room as soon as there is some.
func TestStorageCounts(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex // guards the following variables
	sizes := map[string]int64{"site": 100, "other": 50}
	room := int64(1000)
	set := func(site string, n int64) {
		mu.Lock()
		defer mu.Unlock()
		sizes[site] = n
	}
	var f *fleet
	f = newFleet(t, 1, func(c *Config) {
		wanted := c.Launch
		c.Launch = wants(func(ctx context.Context, deployment string) (Wanted, error) {
			w, err := wanted.Wanted(ctx, id.Deployment(deployment))
			w.Spec.Limits.Storage = 5000
			return w, err
		})
		c.Storage = stored(func(site string) int64 {
			mu.Lock()
			defer mu.Unlock()
			return sizes[site]
		})
		c.Limits = allowance{
			most: func() int64 { return 500 },
			stores: func(ctx context.Context, owner account.OwnerID) (limits.Use, error) {
				n, err := f.nodes[0].StorageOf(ctx, f.db, owner)
				return limits.Use{Limit: room, Used: n}, err
			},
		}
	})
	a, e := f.nodes[0], f.engines[0]
	for _, id := range []string{"site", "other"} {
		f.exec(`
			INSERT INTO sites (id, owner_id, name, slug, type, runtime, status, status_reason, repository, branch, framework, build, credential,
				needs_redeploy, live_deployment, live_release, live_version, created_at, updated_at, deleted_at)
			VALUES ($1, 'owner', $1, $1, 'static', 'node', 'active', '', '', '', '', '{}', '', FALSE, '', '', 0, 0, 0, 0)`, id)
	}
	measure := func(site id.Site) storage.Use {
		t.Helper()
		f.ok(a.storage.Measure(t.Context(), site, a.full))
		u, err := a.StorageUse(t.Context(), site)
		f.ok(err)
		return u
	}
	start := func() *fakeProgram {
		t.Helper()
		p, err := a.Acquire(t.Context(), "one")
		f.ok(err)
		p.Release()
		return e.last()
	}
	for _, site := range []id.Site{"site", "other", "gone"} {
		measure(site)
	}
	if n, err := a.StorageOf(t.Context(), f.db, "owner"); n != 150 || err != nil {
		t.Fatalf("the owner stores %d, %v; want 150", n, err)
	}
	p := start()
	if n := p.spec.Limits.Storage; n != 950 { // what it uses plus what is left
		t.Errorf("the program's limit is %d, want 950", n)
	}
	if due := id.Join(a.storage.Due()); due != "site" {
		t.Errorf("due while it runs: %q", due)
	}
	set("site", 800)
	if u := measure("site"); u.Bytes != 800 || u.Capped != 0 || !p.running() {
		t.Errorf("with room left: %+v, running %v", u, p.running())
	}
	set("other", 400) // another site of the owner uses up the rest
	measure("other")
	set("site", 801)
	if u := measure("site"); u.Capped != 800 {
		t.Errorf("without room: %+v", u)
	}
	f.until("its end", func() bool { return !p.running() })
	if logs, err := a.Logs(t.Context(), "site", applog.Filter{
		Flush: true,
	}); err != nil || len(logs) == 0 || !strings.Contains(logs[len(logs)-1].Message, "this account has used up what it can store") {
		t.Errorf("its log says %+v, %v", logs, err)
	}
	p = start()
	if n := p.spec.Limits.Storage; n != 800 {
		t.Errorf("capped it may store %d, want 800", n)
	}
	set("site", 802) // the site exceeds the cap a little, which must not raise the cap
	if u := measure("site"); u.Capped != 800 {
		t.Errorf("growing on: %+v", u)
	}
	f.until("its end again", func() bool { return !p.running() })
	p = start()
	set("site", 500)
	if u := measure("site"); u.Capped != 0 || !p.running() {
		t.Errorf("with room again: %+v, running %v", u, p.running())
	}
	p.end(exitOne)
	f.until("its end is noticed", func() bool { return len(a.storage.Due()) == 0 })
}
