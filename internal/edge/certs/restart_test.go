package certs

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"slipway/internal/platform/db"
)

// run starts another process of the installation and returns a function that stops it.
func (w *world) run() (stop func()) {
	w.t.Helper()
	c, err := New(w.c)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Error(err)
		}
	}
}

// onSQLite runs the test on SQLite only. On PostgreSQL the installation's first process would answer the challenges of
// the others, and their orders wouldn't fail.
func onSQLite(t *testing.T) { t.Setenv("SLIPWAY_TEST_DSN", "") }

// A restart doesn't retry a name early whose order failed and whose next attempt is scheduled.
func TestRestartOrdersNothingAgain(t *testing.T) {
	onSQLite(t)
	w := start(t, func(w *world, c *Config) { c.Workers = -1 })
	w.c.Workers = 4
	w.site("blog")
	names := []string{"www.customer.test", "shop.customer.test"}
	for _, name := range names {
		w.add(name, "blog")
	}
	stop := w.run()
	w.until("each has had its attempt", func() bool {
		return w.row(names[0]).state == Failed && w.row(names[1]).state == Failed // no edge answers the challenges of these processes
	})
	stop()
	before, failed := w.pebble.Orders.Load(), w.row(names[0])
	if before < int64(len(names)) {
		t.Fatalf("%d orders", before)
	}
	for range 3 {
		stop := w.run()
		later := w.add("later"+db.Random(4)+".customer.test", "blog") // is ordered after the others have been considered
		w.until("a new name has had its attempt", func() bool { return w.row(later.Name).state == Failed })
		stop()
		before++
		if n := w.pebble.Orders.Load(); n != before {
			t.Errorf("%d orders after a restart, want %d", n, before)
		}
	}
	if now := w.row(names[0]); now.attempts != failed.attempts || now.nextAt != failed.nextAt {
		t.Errorf("after restarts its row is %+v, it was %+v", now, failed)
	}
}

// Orders interrupted by a stop are placed again by the next process, once per name.
func TestRestartRepeatsInterruptedOrdersOnce(t *testing.T) {
	onSQLite(t)
	w := start(t, func(w *world, c *Config) { c.Workers = -1 })
	w.c.Workers = 4
	w.site("blog")
	names := []string{"www.customer.test", "shop.customer.test"}
	for _, name := range names {
		w.add(name, "blog")
	}
	var hangs atomic.Bool
	hangs.Store(true)
	hung := make(chan struct{}, 100)
	over := make(chan struct{})
	t.Cleanup(func() { close(over) })
	w.pebble.Between(func(_ http.ResponseWriter, r *http.Request) bool {
		if hangs.Load() && strings.HasPrefix(r.URL.Path, "/chalZ/") {
			hung <- struct{}{}
			<-over
			return true
		}
		return false
	})
	stop := w.run()
	<-hung
	<-hung
	stop()
	before := w.pebble.Orders.Load()
	for _, name := range names {
		if r := w.row(name); r.state != Pending {
			t.Errorf("%s: %+v", name, r)
		}
	}
	hangs.Store(false)
	stop = w.run()
	w.until("both have had an attempt to its end", func() bool { return w.row(names[0]).state == Failed && w.row(names[1]).state == Failed })
	stop()
	if n := w.pebble.Orders.Load(); n != before+2 {
		t.Errorf("%d orders after %d", n, before)
	}
}
