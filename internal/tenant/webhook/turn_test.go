package webhook

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/tenant/webhook/event"
)

// Emitting an event doesn't wait for a dispatcher that has locked the webhook, and the event is still sent.
func TestEventsDoNotWaitForTurns(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	if d.Single() {
		t.Skip("SQLite has one writer, who waits for nobody")
	}
	r := receive(t, func(w http.ResponseWriter, r *http.Request) {})
	w := redelivering(t, d, r)
	h := create(t, w, r.URL+"/here", "site.created")
	locked, release, ended := make(chan struct{}), make(chan struct{}), make(chan error)
	go func() {
		ended <- d.Write(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), `UPDATE webhooks SET id = id WHERE id = $1`, h.ID)
			close(locked)
			<-release
			return err
		})
	}()
	<-locked
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := d.Write(ctx, func(tx *db.Tx) error { return w.EmitTx(ctx, tx, anna, event.SiteCreated(someSite)) })
	close(release)
	if err != nil {
		t.Errorf("it waited: %v", err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	start(t, w)
	settle(t, w, h.ID, tried(1))
}

// With fewer slots than busy endpoints, endpoints that wait for their turn come before those whose requests have just
// ended, so that all get their share.
func TestTurnsAreFair(t *testing.T) {
	t.Parallel()
	const endpoints, each, slots = 20, 40, 4
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var order []string
		now, most := 0, 0
		w := timeless(t, func(r *http.Request) (*http.Response, error) {
			mu.Lock()
			now++
			most = max(most, now)
			mu.Unlock()
			time.Sleep(10 * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			now--
			order = append(order, r.URL.Path)
			return answer(200)
		})
		w.c.Slots = slots
		for i := range endpoints {
			create(t, w, fmt.Sprintf("https://example.test/%d", i), "site.created")
		}
		for range each {
			emit(t, w, event.SiteCreated(someSite))
		}
		stop := start(t, w)
		time.Sleep(time.Hour)
		synctest.Wait()
		stop()
		if len(order) != endpoints*each {
			t.Fatalf("%d requests, want %d", len(order), endpoints*each)
		}
		if most > slots {
			t.Errorf("%d requests at once, want %d", most, slots)
		}
		got := map[string]int{}
		for _, path := range order {
			got[path]++
			least, most := each, 0
			for i := range endpoints {
				n := got[fmt.Sprintf("/%d", i)]
				least, most = min(least, n), max(most, n)
			}
			if most-least > maxInFlight {
				t.Fatalf("one endpoint has had %d requests while another had %d: %v", most, least, got)
			}
		}
	})
}
