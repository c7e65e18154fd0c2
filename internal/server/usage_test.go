package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"slipway/internal/edge/allowance"
	"slipway/internal/edge/visits"
	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/seal"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/limits"
	"slipway/internal/tenant/notify"
	"slipway/internal/tenant/traffic"
	"slipway/internal/tenant/usage"
	"slipway/internal/tenant/webhook"
)

// capNode is what an edge has of counting and of caps.
type capNode struct {
	usage  *usage.Usage
	lease  *allowance.Lease
	visits *visits.Counter
	site   *visits.Site
	kill   context.CancelFunc // as SIGKILL would: nothing is handed over any more
	stop   context.CancelFunc
	dead   atomic.Bool
	sent   atomic.Int64
	done   sync.WaitGroup
}

// mortal hands over what was counted while the node lives.
type mortal struct {
	*edgeVisits
	dead *atomic.Bool
}

func (m mortal) Record(ctx context.Context, b visits.Batch, group []visits.Counts) error {
	if m.dead.Load() {
		return context.Canceled
	}
	return m.edgeVisits.Record(ctx, b, group)
}

func startCapNode(t *testing.T, url string, most int64, n int) *capNode {
	d := dbtest.Open(t, url)
	l := limits.New(limits.Settings{Defaults: map[limits.Name]int64{limits.Bandwidth: most}})
	x := &capNode{usage: usage.New(usage.Config{DB: d, Limits: l})}
	a := allowance.New(allowance.Config{Lender: usage.Lender{Usage: x.usage, Node: fmt.Sprint("node", n)}, Renew: time.Second})
	x.lease = a.Set([]account.OwnerID{"own_ada"})["own_ada"]
	record := &edgeVisits{Traffic: traffic.New(traffic.Config{DB: d, Usage: x.usage}), source: usage.ProcessSource("edge")}
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

// Three nodes under load, one of them killed: what they admit in all is never more than the limit but for the responses
// that were under way when it was reached, and what is stored is what they sent but for the killed node's last moments.
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
		n, err := nodes[0].usage.Month(t.Context(), d, account.OwnerID("own_ada"), usage.Bandwidth)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	const beyond = 3 * workers * each // each worker's response may be under way
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

// An owner's webhooks are told of a share of a limit, in the transaction that finds it reached.
func TestUsageEvent(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	sealer, err := seal.Load(filepath.Join(t.TempDir(), "secrets.key"))
	if err != nil {
		t.Fatal(err)
	}
	hooks := webhook.New(webhook.Config{DB: d, Seal: sealer})
	u := usageNotices{notify.New(notify.Config{DB: d}), hooks}
	if err := d.Write(t.Context(), func(tx *db.Tx) error {
		_, err := hooks.CreateTx(t.Context(), tx, "own_ada", webhook.NewWebhook{URL: "https://ada.test/", Events: []string{"usage.threshold"}})
		return errors.Join(err, u.TellUsageTx(t.Context(), tx, "own_ada", usage.Warning{
			Name: limits.Bandwidth, Percent: 75, Used: 80, Limit: 100, Month: 202703,
		}), u.TellUsageTx(t.Context(), tx, "own_eve", usage.Warning{Name: limits.Bandwidth, Percent: 50, Used: 80, Limit: 100, Month: 202703}))
	}); err != nil {
		t.Fatal(err)
	}
	rows, err := d.Query(t.Context(), `SELECT e.body FROM webhook_events e JOIN webhook_deliveries d ON d.event_id = e.id`)
	bodies, err := db.Collect(rows, err, func(s db.Scanner) (body string, err error) { return body, s.Scan(&body) })
	want := `"usage":{"limit":"bandwidth.bytes","month":"2027-03","percent":75,"used":80,"allowed":100}`
	if err != nil || len(bodies) != 1 || !strings.Contains(bodies[0], want) {
		t.Errorf("%v: %q, want one with %s", err, bodies, want)
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
