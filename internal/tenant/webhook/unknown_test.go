package webhook

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/tenant/webhook/event"
)

// After commits whose response is lost, every delivery is still sent, and each attempt is stored and counted once.
func TestUnknownCommits(t *testing.T) {
	t.Parallel()
	const events = 60
	var on atomic.Bool
	faults := dbtest.Every(5, db.Silent, db.Gone, db.Dropped, db.Muted)
	d := dbtest.New(t, func(c *db.Config) {
		if strings.HasPrefix(c.URL, "sqlite:") { // in this process: no response can be lost, and leases end with it
			faults = dbtest.Every(5, db.Gone, db.Dropped)
		}
		c.Faults = dbtest.Faults(func() db.Fault {
			if !on.Load() {
				return db.Sound
			}
			return faults()
		})
	})
	var mu sync.Mutex
	got := map[string]int{}
	all := make(chan struct{})
	w := newWebhooks(t, d, nil, func(c *Config) {
		c.Poll, c.Lease = 50*time.Millisecond, 2*time.Second // claims whose response is lost return after the lease
		c.Out = &http.Client{Transport: trip(func(r *http.Request) (*http.Response, error) {
			io.Copy(io.Discard, r.Body)
			mu.Lock()
			defer mu.Unlock()
			if got[r.Header.Get("Webhook-Id")]++; len(got) == events {
				select {
				case <-all:
				default:
					close(all)
				}
			}
			return answer(200)
		})}
	})
	h := create(t, w, "https://example.test/", "site.created")
	for range events {
		emit(t, w, event.SiteCreated(someSite))
	}
	on.Store(true)
	stop := start(t, w)
	defer stop()
	select {
	case <-all:
	case <-time.After(time.Minute):
		mu.Lock()
		defer mu.Unlock()
		t.Fatalf("%d of %d deliveries were sent", len(got), events)
	}
	deadline := time.Now().Add(time.Minute)
	for {
		var left, attempts, counted, numbers int
		err := d.QueryRow(t.Context(), `
			SELECT (SELECT count(*) FROM webhook_deliveries WHERE state <> 'succeeded'),
				(SELECT count(*) FROM webhook_attempts WHERE NOT late),
				(SELECT CAST(COALESCE(SUM(succeeded + failed), 0) AS BIGINT) FROM webhook_hours WHERE hook_id = $1),
				(SELECT count(DISTINCT delivery_id) FROM webhook_attempts)`, h.ID).Scan(&left, &attempts, &counted, &numbers)
		if err != nil {
			t.Fatal(err)
		}
		if left == 0 {
			if attempts != events || counted != events || numbers != events {
				t.Errorf("%d attempts of %d deliveries, %d counted, want %d of each", attempts, numbers, counted, events)
			}
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d deliveries have not ended", left)
		}
		time.Sleep(10 * time.Millisecond) // poll interval
	}
}
