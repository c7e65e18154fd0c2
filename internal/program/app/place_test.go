package app

import (
	"context"
	"crypto/tls"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"slipway/internal/platform/id"

	"slipway/internal/platform/fault"
	"slipway/internal/platform/node"
	"slipway/internal/program/placement"
	"slipway/internal/program/relay"
	"slipway/internal/program/runtime"
)

// twoNodes returns Apps on two nodes that know each other.
func twoNodes(t *testing.T, change ...func(*Config)) (f *fleet, selves []*node.Self) {
	t.Helper()
	f = newFleet(t, 0)
	if f.db.Single() {
		t.Skip("SQLite has one node")
	}
	for range 2 {
		self, err := node.New(node.Config{DB: f.db, Dir: t.TempDir(), Blobs: "s3://files", SiteDomain: "sites.test"})
		if err == nil {
			err = self.Join(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		selves = append(selves, self)
		f.add(append(change, func(c *Config) { c.Places, c.Node = placement.New(f.db, self, false), self.ID() })...)
	}
	return f, selves
}

// known inserts the row of the deployment, by which its site is found.
func (f *fleet) known() {
	f.exec(`INSERT INTO deployments (id, site_id, owner_id, label, status, cause, branch, title, clear_cache, commit_hash, commit_message,
			commit_author, framework, plan, release, runtime, rollback_of, error, stages, attempt, cancel, created_at, started_at, completed_at)
		VALUES ('one', 'site', 'owner', 'one', 'success', 'api', 'main', '', FALSE, '', '', '', '', '', '', 'node', '', '', '[]', 0, '', 1, 1, 1)`)
}

// A program runs on one node. When that node has not renewed its lease, the other node may run the program, and the
// first one must end its copy before it answers again.
func TestProgramMovesWhenItsNodeIsLost(t *testing.T) {
	t.Parallel()
	f, selves := twoNodes(t)
	a, b := f.nodes[0], f.nodes[1]
	e, err := a.Acquire(t.Context(), "one")
	f.ok(err)
	e.Release()
	if _, err := b.Acquire(t.Context(), "one"); fault.As(err) == nil || fault.As(err).Code != placement.OnAnotherNode {
		t.Fatalf("the second node says %v", err)
	}
	if n := f.engines[1].starts(); n != 0 {
		t.Fatalf("the second node started it %d times", n)
	}
	f.exec(`UPDATE nodes SET lease_until = 1 WHERE id = $1`, selves[0].ID())
	e, err = b.Acquire(t.Context(), "one")
	f.ok(err)
	e.Release()
	a.compared.Store(-1) // it has a new lease, but has not compared its placements since
	if _, ok := a.Awake("one"); ok {
		t.Error("with its new lease the first node sends requests to what another one has taken")
	}
	a.sure(t.Context())
	if a.compared.Load() != 0 {
		t.Error("the first node has not compared its placements")
	}
	if _, ok := a.Awake("one"); ok {
		t.Error("the first node still sends requests to its program")
	}
	if _, err := a.Acquire(t.Context(), "one"); fault.As(err) == nil || fault.As(err).Code != placement.OnAnotherNode {
		t.Errorf("the first node says %v", err)
	}
	f.until("the first node has ended it", func() bool {
		f.ok(a.compare(t.Context(), true))
		return !f.engines[0].last().running()
	})
	if !f.engines[1].last().running() {
		t.Error("the second node's program was ended too")
	}
}

// A request for a program of a node that does not answer must wait for as long as that node may be dead. It must stop
// waiting once the node has renewed its lease, because then only the connection between the two nodes is cut.
func TestCutBetweenNodes(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections and sends nothing
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	f, selves := twoNodes(t, func(c *Config) {
		c.WakeTime, c.Relay = 2*time.Minute, &relay.Dialer{TLS: &tls.Config{ServerName: "node", MinVersion: tls.VersionTLS13}}
	})
	f.exec(`UPDATE nodes SET address = $1`, l.Addr().String())
	f.known()
	e, err := f.nodes[0].Acquire(t.Context(), "one")
	f.ok(err)
	e.Release()
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = selves[0].Run(ctx) }) // renews the lease of the first node
	t.Cleanup(running.Wait)
	t.Cleanup(stop)
	_, err = f.nodes[1].Acquire(t.Context(), "one")
	if f := fault.As(err); f == nil || f.Code != placement.NodeDown || !strings.Contains(f.Message, "can't reach") || f.RetryAfter == 0 {
		t.Errorf("got %v", err)
	}
	// Later requests must not wait, until this node takes the program over. After that the other node cannot take it
	// back.
	for waited := time.Now(); ; {
		begun := time.Now()
		e, err = f.nodes[1].Acquire(t.Context(), "one")
		if err == nil {
			break
		}
		if f := fault.As(err); f == nil || f.Code != placement.NodeDown || time.Since(waited) > 2*time.Minute {
			t.Fatalf("got %v", err)
		}
		if took := time.Since(begun); time.Since(waited) > 15*time.Second && took > 5*time.Second {
			t.Errorf("a request waited for %s in vain", took)
		}
		time.Sleep(50 * time.Millisecond)
	}
	e.Release()
	if taken, err := placement.New(f.db, selves[0], false).TakeCut(t.Context(), "site", placement.Place{Node: selves[1].ID()}); taken || err != nil {
		t.Errorf("the first node took the site back: %t, %v", taken, err)
	}
	f.exec(`UPDATE placements SET node = $1, cut_from = '', stores = TRUE`, selves[0].ID())
	if taken, err := placement.New(f.db, selves[1], false).TakeCut(t.Context(), "site", placement.Place{Node: selves[0].ID()}); taken || err != nil {
		t.Errorf("one that stores is taken: %t, %v", taken, err)
	}
	f.exec(`UPDATE placements SET stores = FALSE`)
	// A node that is dead does not renew its lease, so another one must take over.
	stop()
	running.Wait()
	e, err = f.nodes[1].Acquire(t.Context(), "one")
	f.ok(err)
	e.Release()
}

// When a node refuses what another one asks for, it must not count a request: the program that it still runs may go to
// sleep.
func TestRefusedReachHoldsNothing(t *testing.T) {
	t.Parallel()
	f, selves := twoNodes(t)
	a := f.nodes[0]
	e, err := a.Acquire(t.Context(), "one")
	f.ok(err)
	e.Release()
	f.known()
	f.exec(`UPDATE placements SET node = $1`, selves[1].ID())
	if _, _, err := a.Reach(t.Context(), "one", false); fault.As(err) == nil || fault.As(err).Code != placement.OnAnotherNode {
		t.Fatalf("the first node says %v", err)
	}
	p, err := a.program("one")
	f.ok(err)
	p.now.mu.Lock()
	defer p.now.mu.Unlock()
	if p.now.active != 0 {
		t.Errorf("%d requests are held, want 0", p.now.active)
	}
}

// Programs that an owner runs on one node must count on the other node too, because the limit applies to the owner
// across all nodes.
func TestLimitCountsAllNodes(t *testing.T) {
	t.Parallel()
	f, _ := twoNodes(t, func(c *Config) { c.Most, c.Relay = 1, &relay.Dialer{} })
	a, b := f.nodes[0], f.nodes[1]
	hears := func() { // as if b had asked a over the network
		b.states.mu.Lock()
		defer b.states.mu.Unlock()
		b.states.by, b.states.next = map[string]stated{}, time.Now().Add(time.Hour)
		f.ok(addStates(b.states.by, a.States()))
	}
	hears()
	left, err := b.admit(t.Context(), "owner", nil, true)
	f.ok(err)
	left()
	e, err := a.Acquire(t.Context(), "one")
	f.ok(err)
	e.Release()
	hears()
	if n := b.runningElsewhere("owner"); n != 1 {
		t.Errorf("the second node counts %d programs, want 1", n)
	}
	if _, err := b.admit(t.Context(), "owner", nil, true); fault.As(err) == nil || fault.As(err).Code != codeFull || !strings.Contains(err.Error(), "1 programs") {
		t.Errorf("the second node starts another one: %v", err)
	}
	if n := b.runningElsewhere("somebody else"); n != 0 {
		t.Errorf("another owner has %d", n)
	}
}

// Stored files must pin a site to its node: no other node may start it, however long its own node is away, and no node
// may start it with empty folders if files are known to exist.
func TestStoragePinsASite(t *testing.T) {
	t.Parallel()
	f, selves := twoNodes(t, func(c *Config) {
		inner := c.Launch
		c.Launch = wants(func(ctx context.Context, deployment string) (Wanted, error) {
			w, err := inner.Wanted(ctx, id.Deployment(deployment))
			w.Spec.Storage = []runtime.Storage{{Path: "data"}}
			return w, err
		})
		c.Storage = stored(func(string) int64 { return 0 })
	})
	f.exec(`INSERT INTO app_storage (site_id, bytes, capped_bytes, measured_at) VALUES ('site', 10, 0, 1)`)
	if _, err := f.nodes[0].Acquire(t.Context(), "one"); fault.As(err) == nil || fault.As(err).Code != placement.NodeDown {
		t.Fatalf("the program started with empty folders: %v", err)
	}
	f.exec(`DELETE FROM app_storage`)
	f.nodes[0].forget(f.nodes[0].programs["one"])
	e, err := f.nodes[0].Acquire(t.Context(), "one")
	f.ok(err)
	e.Release()
	f.exec(`UPDATE nodes SET lease_until = 1 WHERE id = $1`, selves[0].ID())
	if _, err := f.nodes[1].Acquire(t.Context(), "one"); fault.As(err) == nil || fault.As(err).Code != placement.NodeDown {
		t.Errorf("another node starts it: %v", err)
	}
}
