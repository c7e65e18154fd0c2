package placement

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/id"
	"slipway/internal/platform/node"
)

// joined returns the Places of a node that has joined the list of nodes.
func joined(t *testing.T, url string) (*Places, *node.Self) {
	t.Helper()
	return joinedWith(t, url, false)
}

// joinedWith does the same as joined, for nodes that may share their storage.
func joinedWith(t *testing.T, url string, shared bool) (*Places, *node.Self) {
	t.Helper()
	d := dbtest.Open(t, url)
	if d.Single() {
		t.Skip("SQLite has one node")
	}
	self, err := node.New(node.Config{DB: d, Dir: t.TempDir(), Blobs: "s3://files", SiteDomain: "sites.test"})
	if err == nil {
		err = self.Join(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	return New(d, self, shared), self
}

func exec(t *testing.T, p *Places, q string, args ...any) {
	t.Helper()
	err := p.db.Write(t.Context(), func(tx *db.Tx) error { _, err := tx.Exec(t.Context(), q, args...); return err })
	if err != nil {
		t.Fatal(err)
	}
}

// The first node that takes a site must get it, however many ask at once. The other nodes must get an error that names
// that node.
func TestOneNodeTakesASite(t *testing.T) {
	t.Parallel()
	url := dbtest.URL(t)
	a, _ := joined(t, url)
	b, _ := joined(t, url)
	var work sync.WaitGroup
	var mu sync.Mutex
	got := map[*Places]int{}
	for i := range 40 {
		p := []*Places{a, b}[i%2]
		work.Go(func() {
			err := p.Take(context.Background(), "site", Nothing)
			var away *Away
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				got[p]++
			case !errors.As(err, &away) || !fault.Is(err, fault.Unavailable):
				t.Error(err)
			}
		})
	}
	work.Wait()
	if got[a] != 0 && got[b] != 0 || got[a]+got[b] != 20 {
		t.Errorf("the site was taken %d and %d times", got[a], got[b])
	}
}

// A site must move when its node has died or drains, unless it has files there; then jobs must report that the node is
// down.
func TestSitesMove(t *testing.T) {
	t.Parallel()
	url := dbtest.URL(t)
	a, self := joined(t, url)
	b, _ := joined(t, url)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(a.Take(t.Context(), "free", Nothing))
	must(a.Take(t.Context(), "stored", Here))
	if err := b.Take(t.Context(), "free", Nothing); !strings.Contains(err.Error(), "runs on the node") {
		t.Errorf("while its node lives: %v", err)
	}
	if err := b.Here(t.Context(), "free"); fault.As(err) != nil || err == nil || !strings.Contains(err.Error(), self.ID()) {
		t.Errorf("a job is not sent to its node: %v", err)
	}
	exec(t, a, `UPDATE nodes SET state = 'draining' WHERE id = $1`, self.ID())
	must(b.Take(t.Context(), "free", Nothing))
	if err := b.Take(t.Context(), "stored", Nothing); err == nil {
		t.Error("a node took a site whose files are on another one")
	}
	mine, err := a.Mine(t.Context(), []id.Site{"free", "stored"})
	must(err)
	if mine["free"] || !mine["stored"] {
		t.Errorf("a has %v", mine)
	}
	if n, err := b.Others(t.Context()); err != nil || n != 1 {
		t.Errorf("%d sites of others, %v", n, err)
	}
	exec(t, a, `UPDATE nodes SET state = 'up', lease_until = 1 WHERE id = $1`, self.ID())
	if err := b.Here(t.Context(), "stored"); !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "which is down") {
		t.Errorf("its node is down: %v", err)
	}
	if err := b.Look(t.Context(), "stored"); !strings.Contains(err.Error(), "which is down") {
		t.Errorf("its node is down: %v", err)
	}
	exec(t, a, `UPDATE nodes SET lease_until = $2 WHERE id = $1`, self.ID(), a.db.Now()-1)
	if err := b.Here(t.Context(), "stored"); err == nil || fault.As(err) != nil {
		t.Errorf("its node may be restarting, and the job does not wait: %v", err)
	}
	must(b.Look(t.Context(), "unknown"))
	must(b.Here(t.Context(), "unknown"))
}

// Nodes of earlier versions recorded no places, so the files on their disks decide where sites belong. If two nodes
// have files of a site, the first one to report them must keep it.
func TestAdopt(t *testing.T) {
	t.Parallel()
	url := dbtest.URL(t)
	a, _ := joined(t, url)
	b, _ := joined(t, url)
	if others, err := a.Adopt(t.Context(), []id.Site{"one", "both"}); err != nil || len(others) != 0 {
		t.Fatal(others, err)
	}
	if others, err := b.Adopt(t.Context(), []id.Site{"two", "both"}); err != nil || len(others) != 1 || others[0] != "both" {
		t.Fatal(others, err)
	}
	for site, p := range map[id.Site]*Places{"one": a, "two": b, "both": a} {
		if mine, err := p.Mine(t.Context(), []id.Site{site}); err != nil || !mine[site] {
			t.Errorf("%s: %v, %v", site, mine, err)
		}
	}
}

// If all nodes mount the storage, files must not pin a site. But another node may take it only when the site's programs
// on its node have certainly ended: some time after the lease, or once a node that drains has given the site away.
func TestSharedStorageHasOneWriter(t *testing.T) {
	t.Parallel()
	url := dbtest.URL(t)
	a, self := joinedWith(t, url, true)
	b, _ := joinedWith(t, url, true)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	waits := func(when string, err error) {
		t.Helper()
		if f := fault.As(err); f == nil || f.Code != NodeDraining && f.Code != OnAnotherNode {
			t.Errorf("%s: %v", when, err)
		}
	}
	must(a.Take(t.Context(), "shop", Files))
	must(a.Take(t.Context(), "private", Here))
	waits("its node runs", b.Take(t.Context(), "shop", Files))
	exec(t, a, `UPDATE nodes SET state = 'draining' WHERE id = $1`, self.ID())
	must(self.Confirm(t.Context()))
	waits("its node drains", b.Take(t.Context(), "shop", Files))
	sites, err := a.Giving(t.Context())
	if err != nil || len(sites) != 1 || sites[0] != "shop" {
		t.Errorf("the draining node gives away %v, %v", sites, err)
	}
	must(a.Give(t.Context(), "shop"))
	must(b.Take(t.Context(), "shop", Files))
	must(b.Give(t.Context(), "shop"))

	exec(t, a, `UPDATE nodes SET state = 'up' WHERE id = $1`, self.ID())
	must(a.Take(t.Context(), "shop", Files))
	exec(t, a, `UPDATE nodes SET lease_until = $2 WHERE id = $1`, self.ID(), a.db.Now()-1)
	waits("its node's lease has just ended", b.Take(t.Context(), "shop", Files))
	if err := b.Here(t.Context(), "shop"); err == nil || fault.As(err) != nil {
		t.Errorf("a job does not wait: %v", err)
	}
	exec(t, a, `UPDATE nodes SET lease_until = $2 WHERE id = $1`, self.ID(), a.db.Now().Add(-fence-time.Second))
	must(b.Here(t.Context(), "shop"))
	must(b.Take(t.Context(), "shop", Files))
	if err := b.Take(t.Context(), "private", Nothing); !strings.Contains(err.Error(), "which is down") {
		t.Errorf("what is on the node alone: %v", err)
	}

	// Files that pinned a site must no longer pin it once its node has the directory that all nodes mount.
	if _, err := a.Adopt(t.Context(), []id.Site{"private"}); err != nil || !a.Pinned(t.Context(), "private") {
		t.Error(err)
	}
	if _, err := a.Adopt(t.Context(), nil); err != nil || a.Pinned(t.Context(), "private") {
		t.Error(err)
	}
}

// Leases must be judged by the database's clock. Even if the clocks of the nodes differ from it by 50 seconds, a site
// must stay where it is while its node renews the lease, and must move once the node stops renewing it.
func TestClocksDiffer(t *testing.T) {
	t.Parallel()
	for _, differs := range []string{"50 seconds", "-50 seconds"} {
		address := dbtest.URL(t)
		if !strings.HasPrefix(address, "postgres") {
			t.Skip("SQLite has one node")
		}
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		straight := dbtest.Open(t, address)
		for _, q := range []string{`CREATE SCHEMA late`, `CREATE FUNCTION late.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS
			$$ SELECT pg_catalog.clock_timestamp() + interval '` + differs + `' $$`} {
			if err := straight.Admin(t.Context(), q); err != nil {
				t.Fatal(err)
			}
		}
		q := u.Query()
		q.Set("search_path", "late,public,pg_catalog") // so that the server's clock differs from that of the nodes
		u.RawQuery = q.Encode()
		a, self := joined(t, u.String())
		b, _ := joined(t, u.String())
		if ahead, err := a.db.Sync(t.Context()); err != nil || ahead.Abs() < 40*time.Second {
			t.Fatalf("the clocks differ by %s, %v", ahead, err)
		}
		if err := a.Take(t.Context(), "site", Nothing); err != nil {
			t.Fatal(err)
		}
		const now = `CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)`
		var left int64 // in ms
		if err := a.db.QueryRow(t.Context(), `SELECT lease_until - `+now+` FROM nodes WHERE id = $1`, self.ID()).Scan(&left); err != nil {
			t.Fatal(err)
		}
		if left <= -20_000 || left > 20_000 { // it was 16 s a while ago
			t.Errorf("%s: a lease ends %d ms from now by the clock of the database", differs, left)
		}
		exec(t, a, `UPDATE nodes SET lease_until = `+now+` + 25000 WHERE id = $1`, self.ID())
		if err := b.Take(t.Context(), "site", Nothing); err == nil {
			t.Errorf("%s: another node took a site whose lease has not ended", differs)
		}
		exec(t, a, `UPDATE nodes SET lease_until = `+now+` - 25000 WHERE id = $1`, self.ID())
		if err := b.Take(t.Context(), "site", Nothing); err != nil {
			t.Errorf("%s: the lease has ended: %v", differs, err)
		}
	}
}
