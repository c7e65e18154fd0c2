package certs

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/job"
)

// An attempt renews its lease only while it is the newest attempt for the name.
func TestRenewLease(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	write := func(fn func(tx *db.Tx) error) error { return d.Write(t.Context(), fn) }
	if err := write(func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(),
			`INSERT INTO certificates (host, kind, state, attempts, version, changed_at) VALUES ('a.test', 'custom', 'pending', 2, 1, 1)`)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for attempt, want := range map[int64]error{2: nil, 1: job.ErrLost} {
		err := write(func(tx *db.Tx) error { return renewLease(t.Context(), tx, "a.test", attempt, 77) })
		if !errors.Is(err, want) {
			t.Errorf("attempt %d: %v, want %v", attempt, err, want)
		}
	}
	var until int64
	if err := d.QueryRow(t.Context(), `SELECT lease_until FROM certificates`).Scan(&until); err != nil || until != 77 {
		t.Errorf("leased until %d, %v", until, err)
	}
}

// Leases use the database's clock: a node whose clock is an hour ahead or behind can't take an attempt that another
// node holds.
func TestLeasesByTheDatabasesClock(t *testing.T) {
	t.Parallel()
	for _, ahead := range []time.Duration{-time.Hour, time.Hour} { // offset of the database's clock from this machine's
		d := dbtest.New(t)
		d.Shift(ahead)
		s := &Certs{c: Config{DB: d, Workers: 4}}
		err := d.Write(t.Context(), func(tx *db.Tx) error {
			return s.askTx(t.Context(), tx, ask{host: "a.test", kind: kindSite})
		})
		if err != nil {
			t.Fatal(err)
		}
		if r, found, err := s.due(t.Context()); err != nil || !found || r.host != "a.test" {
			t.Fatalf("the due attempt: %+v %v %v", r, found, err)
		}
		if r, found, err := s.due(t.Context()); err != nil || found {
			t.Errorf("taken twice: %+v %v", r, err)
		}
		lock := NewStorage(d, nil)
		if got, err := lock.lease(t.Context(), "order", true); err != nil || !got {
			t.Fatal(got, err)
		}
		var until, locked db.Time
		err = d.QueryRow(t.Context(), `SELECT c.lease_until, l.until FROM certificates c, acme_locks l`).Scan(&until, &locked)
		if err != nil {
			t.Fatal(err)
		}
		for what, until := range map[string]db.Time{"attempt": until, "lock": locked} {
			if left := until.Sub(d.Now()); left <= 0 || left > time.Minute {
				t.Errorf("the %s is leased for %s", what, left)
			}
		}
	}
}

// A node that hangs inside a transaction about one name's certificate blocks no other name.
func TestStalledTransaction(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	if d.Single() {
		t.Skip("SQLite writes one transaction at a time")
	}
	s := &Certs{c: Config{DB: d}}
	asks := func(host string, then func()) error {
		return d.Write(t.Context(), func(tx *db.Tx) error {
			defer then()
			return s.askTx(t.Context(), tx, ask{host: host, kind: kindSite})
		})
	}
	stalled, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	once := sync.OnceFunc(func() { close(stalled) })
	go func() { ended <- asks("a.test", func() { once(); <-goOn }) }()
	<-stalled
	if err := asks("b.test", func() {}); err != nil {
		t.Error(err)
	}
	close(goOn)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	rows, err := d.Query(t.Context(), `SELECT host FROM certificates WHERE version > 0 ORDER BY version`)
	if hosts, err := db.Collect(rows, err, column); err != nil || strings.Join(hosts, " ") != "b.test a.test" {
		t.Errorf("in the order of their commits: %v, %v", hosts, err)
	}
}
