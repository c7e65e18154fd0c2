package certs

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"slipway/internal/platform/db"
)

// run runs a process of an installation until stop is called.
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

// onSQLite keeps the test from PostgreSQL, where the installation's first process answers what the authority asks of the others, so that
// their orders don't fail.
func onSQLite(t *testing.T) { t.Setenv("SLIPWAY_TEST_DSN", "") }

// A restart orders no certificate before its time for names whose order failed, and which wait for the next attempt.
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
		return w.row(names[0]).state == Failed && w.row(names[1]).state == Failed // no edge answers for these processes
	})
	stop()
	before, failed := w.pebble.Orders.Load(), w.row(names[0])
	if before < int64(len(names)) {
		t.Fatalf("%d orders", before)
	}
	for range 3 {
		stop := w.run()
		later := w.add("later"+db.Random(4)+".customer.test", "blog") // is ordered, after the others were looked at
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

// Names whose order a stop interrupts are ordered again by the next process, once each.
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
