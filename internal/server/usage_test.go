package server

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"slipway/internal/edge/allowance"
	"slipway/internal/edge/visits"
	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/visit"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/limits"
	"slipway/internal/tenant/traffic"
	"slipway/internal/tenant/usage"
)

// capNode is the part of an edge that counts usage and enforces caps.
type capNode struct {
	usage  *usage.Usage
	lease  *allowance.Lease
	visits *visits.Counter
	site   *visits.Site
	kill   context.CancelFunc // like SIGKILL: nothing is reported afterwards
	stop   context.CancelFunc
	dead   atomic.Bool
	sent   atomic.Int64
	done   sync.WaitGroup
}

// mortal reports counted usage only while the node lives.
type mortal struct {
	*traffic.Recorder
	dead *atomic.Bool
}

func (m mortal) Record(ctx context.Context, b visit.Batch, group []visit.Counts) error {
	if m.dead.Load() {
		return context.Canceled
	}
	return m.Recorder.Record(ctx, b, group)
}

func startCapNode(t *testing.T, url string, most int64, n int) *capNode {
	d := dbtest.Open(t, url)
	l := limits.New(limits.Settings{Defaults: map[limits.Name]int64{limits.Bandwidth: most}})
	x := &capNode{usage: usage.New(usage.Config{DB: d, Limits: l})}
	a := allowance.New(allowance.Config{Lender: usage.Lender{Usage: x.usage, Node: fmt.Sprint("node", n)}, Renew: time.Second})
	x.lease = a.Set([]account.OwnerID{"own_ada"})["own_ada"]
	record := traffic.New(traffic.Config{DB: d, Usage: x.usage}).Recorder()
	x.visits = visits.New(visits.Config{
		Recorder: mortal{record, &x.dead}, Every: 300 * time.Millisecond, Marks: a, Log: slog.New(slog.DiscardHandler),
	})
	x.site = visits.NewSite("site_1", &visits.Owner{ID: "own_ada"})
	ctx, stop := context.WithCancel(context.Background())
	x.stop = stop
	x.kill = func() { x.dead.Store(true); stop() }
	wake, unlisten := d.Listen(usage.ReturnTopic)
	x.done.Go(func() { _ = x.visits.Run(ctx) })
	x.done.Go(func() { _ = a.Run(ctx, wake); unlisten() })
	return x
}

// Three nodes under load, one of which is killed, together admit no more than the limit plus the responses in progress
// when it was reached. The stored usage is what they sent, except for the killed node's last moments.
func TestCapHoldsOnThreeNodes(t *testing.T) {
	t.Parallel()
	const most, each, workers = 96 << 20, 20_000, 8
	url := dbtest.URL(t)
	var nodes []*capNode
	for n := range 3 {
		nodes = append(nodes, startCapNode(t, url, most, n))
	}
	d := dbtest.Open(t, url)
	if err := d.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), `INSERT INTO usage_caps (owner_id, meter, month, most, warned, armed, reached)
			VALUES ('own_ada', 'bandwidth.bytes', $1, $2, 0, TRUE, FALSE)`, limits.Month(db.Now()), int64(most))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	var sent, refused atomic.Int64
	ctx, end := context.WithCancel(t.Context())
	defer end()
	var load sync.WaitGroup
	serve := func(x *capNode) bool {
		r := x.lease.Admit(ctx)
		if r == nil {
			return false
		}
		for range 4 {
			r.Sent(each / 4)
		}
		sent.Add(each)
		x.sent.Add(each)
		x.visits.Count(x.site, 200, each, true)
		r.End()
		return true
	}
	for _, x := range nodes {
		for range workers {
			load.Go(func() {
				for ctx.Err() == nil && !x.dead.Load() {
					if !serve(x) {
						refused.Add(1)
					}
				}
			})
		}
	}
	until(t, "a third is sent", func() bool { return sent.Load() > most/3 })
	nodes[2].kill()
	until(t, "the others are refused", func() bool { return refused.Load() > 100 })
	stored := func() int64 {
		n, _, err := nodes[0].usage.Current(t.Context(), d, account.OwnerID("own_ada"), usage.Bandwidth)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	const beyond = 3 * workers * each // one response in progress per worker
	if n := sent.Load(); n > most+beyond {
		t.Errorf("%d bytes were sent, the limit is %d", n, int64(most))
	}
	end()
	load.Wait()
	nodes[2].done.Wait()
	for _, x := range nodes[:2] {
		x.stop()
		x.done.Wait()
	}
	if n, least := stored(), nodes[0].sent.Load()+nodes[1].sent.Load(); n < least || n > sent.Load() {
		t.Errorf("%d bytes are stored; %d were sent, %d of them by the nodes that live", n, sent.Load(), least)
	}
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(60 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not in a minute: ", what)
		}
	}
}
