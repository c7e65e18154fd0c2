package webhook

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/job"
	"slipway/internal/platform/wait"
	"slipway/internal/tenant/operation"
	"slipway/internal/tenant/webhook/delivery"
	"slipway/internal/tenant/webhook/event"
)

// working returns webhooks on a new database whose jobs run.
func working(t *testing.T, r *receiver) *Webhooks {
	t.Helper()
	return redelivering(t, dbtest.New(t), r)
}

// redelivering returns webhooks whose jobs run.
func redelivering(t *testing.T, d *db.DB, r *receiver) *Webhooks {
	t.Helper()
	w := newWebhooks(t, d, r, func(c *Config) { c.Operations = operation.New(operation.Config{DB: d}) })
	j := job.New(job.Config{DB: d, Queues: map[string]int{"default": 2}})
	w.Work(j)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- j.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return w
}

func ended(t *testing.T, w *Webhooks, id operation.ID) operation.Operation {
	t.Helper()
	var o operation.Operation
	wait.Until(t, "the operation has ended", func() bool {
		var err error
		if o, err = w.c.Operations.Get(t.Context(), anna, id); err != nil {
			t.Fatal(err)
		}
		return o.CompletedAt != 0
	})
	return o
}

func TestRedeliverOne(t *testing.T) {
	t.Parallel()
	r := receive(t, nil)
	w := newWebhooks(t, dbtest.New(t), r, nil)
	h := create(t, w, r.URL, "site.created")
	start(t, w)
	emit(t, w, event.SiteCreated(someSite))
	first := settle(t, w, h.ID, func(d Delivery) bool { return d.State == "succeeded" })
	var again delivery.ID
	redeliver := func(hook ID, id delivery.ID) error {
		return w.c.DB.Write(t.Context(), func(tx *db.Tx) (err error) {
			again, err = w.RedeliverTx(t.Context(), tx, anna, hook, id)
			return err
		})
	}
	if err := redeliver(h.ID, first.ID); err != nil {
		t.Fatal(err)
	}
	d := settle(t, w, h.ID, func(d Delivery) bool { return d.ID == again && d.State == "succeeded" })
	got := r.wait(t, 2)
	if d.Repeats != first.ID || d.EventID != first.EventID || got[0].body != got[1].body ||
		got[0].header.Get("Webhook-Id") != got[1].header.Get("Webhook-Id") ||
		delivery.ID(got[1].header.Get("X-Service-Delivery")) != again {
		t.Errorf("%+v repeats %+v", d, first)
	}
	other := create(t, w, r.URL+"/other", "site.created")
	for name, err := range map[string]error{
		"another webhook's": redeliver(other.ID, first.ID),
		"unknown":           redeliver(h.ID, "dlv_x"),
		"unknown webhook":   redeliver("hook_x", first.ID),
	} {
		if !fault.Is(err, fault.NotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Redelivering sends everything that failed or was missed since a time once more, once per event, except what has been
// delivered meanwhile.
func TestRedeliverAll(t *testing.T) {
	t.Parallel()
	var well atomic.Bool
	r := receive(t, func(rw http.ResponseWriter, _ *http.Request) {
		if !well.Load() {
			rw.WriteHeader(410)
		}
	})
	w := working(t, r)
	h := create(t, w, r.URL, "site.created", "site.deleted")
	emit(t, w, event.SiteCreated(someSite))
	stop := start(t, w)
	settle(t, w, h.ID, func(d Delivery) bool { return d.State == "failed" })
	for range 1200 { // more than two batches, missed while the webhook is disabled
		emit(t, w, event.SiteCreated(someSite))
	}
	emit(t, w, event.SiteDeleted(someSite))
	all := func(f Filter) (op operation.Operation, err error) {
		err = w.c.DB.Write(t.Context(), func(tx *db.Tx) error { op, err = w.RedeliverAllTx(t.Context(), tx, anna, h.ID, f); return err })
		return op, err
	}
	if _, err := all(Filter{Since: 1}); !fault.Is(err, fault.Conflict) {
		t.Errorf("while it is disabled: %v", err)
	}
	well.Store(true)
	var op *operation.Operation
	err := w.c.DB.Write(t.Context(), func(tx *db.Tx) (err error) {
		_, op, err = w.EnableTx(t.Context(), tx, anna, h.ID, 1)
		return err
	})
	if err != nil || op == nil {
		t.Fatalf("%+v, %v", op, err)
	}
	if o := ended(t, w, op.ID); o.Status != operation.Success || string(o.Result) != `{"count":1202,"skipped":0}` {
		t.Errorf("operation %+v, result %s", o, o.Result)
	}
	got := r.wait(t, 1203)
	seen := map[string]int{}
	for _, q := range got[1:] {
		seen[q.header.Get("Webhook-Id")]++
	}
	if len(seen) != 1202 {
		t.Errorf("%d events came, want 1202", len(seen))
	}
	settle(t, w, h.ID, func(d Delivery) bool { return d.State == "succeeded" })
	again, err := all(Filter{Since: 1})
	if err != nil {
		t.Fatal(err)
	}
	if o := ended(t, w, again.ID); string(o.Result) != `{"count":0,"skipped":1202}` {
		t.Errorf("a second time: %s", o.Result)
	}
	only, err := all(Filter{Since: 1, State: "succeeded", Events: []string{"site.deleted"}})
	if err != nil {
		t.Fatal(err)
	}
	if o := ended(t, w, only.ID); string(o.Result) != `{"count":1,"skipped":0}` {
		t.Errorf("one event: %s", o.Result)
	}
	for name, f := range map[string]Filter{
		"no since":      {},
		"future":        {Since: db.Now().Add(time.Hour)},
		"until before":  {Since: 5, Until: 4},
		"pending":       {Since: 1, State: "pending"},
		"unknown state": {Since: 1, State: "x"},
		"unknown event": {Since: 1, Events: []string{"x"}},
	} {
		if _, err := all(f); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	r.wait(t, 1204)
	stop()
}

func TestSearch(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t, dbtest.New(t), nil, nil)
	h := create(t, w, "https://example.test/", "site.created", "site.deleted")
	emit(t, w, event.SiteCreated(someSite), event.SiteDeleted(someSite), event.SiteCreated(someSite))
	err := w.c.DB.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(
			t.Context(),
			`UPDATE webhook_deliveries SET id = $1, state = 'skipped', finished_at = 1, created_at = 5 WHERE event_id IN (SELECT id FROM webhook_events WHERE name = 'site.deleted')`,
			db.FirstID("dlv", 5),
		)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		f    Filter
		want string
	}{
		"all":         {Filter{}, "deleted created created"},
		"pending":     {Filter{State: "pending"}, "created created"},
		"failed":      {Filter{State: "failed"}, "deleted"},
		"succeeded":   {Filter{State: "succeeded"}, ""},
		"event":       {Filter{Events: []string{"site.created"}}, "created created"},
		"since":       {Filter{Since: 6}, "created created"},
		"until":       {Filter{Until: 6}, "deleted"},
		"all at once": {Filter{State: "failed", Events: []string{"site.deleted"}, Since: 5, Until: 6}, "deleted"},
	} {
		for limit := 1; limit < 5; limit++ {
			var got []string
			for page := 1; page < 5; page++ {
				list, total, err := w.Search(t.Context(), anna, h.ID, tt.f, page, limit)
				if err != nil || total != len(strings.Fields(tt.want)) {
					t.Fatalf("%s: total %d, %v", name, total, err)
				}
				for _, d := range list {
					got = append(got, strings.TrimPrefix(d.Event, "site."))
				}
			}
			slices.Reverse(got)
			if strings.Join(got, " ") != tt.want {
				t.Errorf("%s by %d: %v, want %s", name, limit, got, tt.want)
			}
		}
	}
	if _, _, err := w.Search(t.Context(), anna, h.ID, Filter{State: "x"}, 1, 1); !fault.Is(err, fault.Invalid) {
		t.Errorf("unknown state: %v", err)
	}
}

// A search by event name reads a limited, newest part of the log, and an older part can be chosen.
func TestSearchIsBounded(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t, dbtest.New(t), nil, nil)
	h := create(t, w, "https://example.test/", "site.created", "site.deleted")
	emit(t, w, event.SiteDeleted(someSite), event.SiteCreated(someSite))
	err := w.c.DB.Write(t.Context(), func(tx *db.Tx) error {
		ctx := t.Context()
		if _, err := tx.Exec(ctx, `UPDATE webhook_deliveries SET id = $1, created_at = 5 WHERE event_id IN (SELECT id FROM webhook_events WHERE name = 'site.deleted')`, db.FirstID(
			"dlv",
			5,
		)); err != nil {
			return err
		}
		var event string
		if err := tx.QueryRow(ctx, `SELECT id FROM webhook_events WHERE name = 'site.created'`).Scan(&event); err != nil {
			return err
		}
		return addDeliveries(ctx, tx, event, slices.Repeat([]ID{h.ID}, searched), "offered", db.Now())
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		f    Filter
		want int
	}{
		"all":                        {Filter{}, searched + 2},
		"a frequent one":             {Filter{Events: []string{"site.created"}}, searched},
		"an old one":                 {Filter{Events: []string{"site.deleted"}}, 0},
		"an old one, up to then":     {Filter{Events: []string{"site.deleted"}, Until: 6}, 1},
		"pending":                    {Filter{State: "pending"}, 2},
		"an old one that is pending": {Filter{State: "pending", Events: []string{"site.deleted"}}, 1},
	} {
		if _, total, err := w.Search(t.Context(), anna, h.ID, tt.f, 1, 1); err != nil || total != tt.want {
			t.Errorf("%s: %d deliveries, want %d; %v", name, total, tt.want, err)
		}
	}
}
