package usage

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/id"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/limits"
)

// sites inserts the rows of existing sites.
func (w *world) sites(owner id.Owner, ids ...string) {
	w.t.Helper()
	ok(w.t, w.c.DB.Write(w.t.Context(), func(tx *db.Tx) error {
		for _, id := range ids {
			if _, err := tx.Exec(w.t.Context(), `
				INSERT INTO sites (id, owner_id, name, slug, type, runtime, status, status_reason, repository, branch, framework, build, credential,
					needs_redeploy, live_deployment, live_release, live_version, created_at, updated_at, deleted_at)
				VALUES ($1, $2, $1, $1, 'static', 'static', 'active', '', '', '', '', '{}', '', FALSE, '', '', 0, 0, 0, 0)`, id, owner); err != nil {
				return err
			}
		}
		return nil
	}))
}

// serve changes the default bandwidth limit, as a restart with other settings does.
func (w *world) serve(limit int64) *limits.Limits {
	w.t.Helper()
	l := limits.New(limits.Settings{Defaults: map[limits.Name]int64{limits.Bandwidth: limit}})
	w.Usage = at(New(Config{DB: w.c.DB, Limits: l}), func() db.Time { return w.clock })
	ok(w.t, w.reconsider(w.t.Context()))
	return l
}

func (w *world) paused() (n int) {
	w.t.Helper()
	ok(w.t, w.c.DB.QueryRow(w.t.Context(), `SELECT count(*) FROM paused_sites WHERE begins <= $1 AND ends > $1`, w.clock).Scan(&n))
	return n
}

// At the limit all of the owner's sites are paused, and no others, until the month ends or the limit is raised. A
// deleted site's usage still counts.
func TestBandwidthPauses(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.clock = db.At(time.Date(2027, 3, 31, 22, 0, 0, 0, time.UTC))
	l := w.serve(1000)
	w.sites(ada, "site_a", "site_b")
	w.sites(eve, "site_e")
	edge := NewSource("edge/1")
	send := func(owner id.Owner, site id.Site, n int64) {
		t.Helper()
		edge.Add(w.clock, owner, Bandwidth, site, n)
		ok(t, w.Write(t.Context(), edge))
	}
	used := func(owner id.Owner) int64 {
		t.Helper()
		u, err := l.UseOf(t.Context(), w.c.DB, owner, limits.Bandwidth)
		ok(t, err)
		return u.Used
	}
	send(ada, "site_a", 400)
	send(ada, "site_b", 500)
	send(eve, "site_e", 999)
	if used(ada) != 900 || used(eve) != 999 || w.paused() != 0 {
		t.Fatalf("%d, %d, %d paused", used(ada), used(eve), w.paused())
	}
	wake, stop := w.c.DB.Listen(pausedTopic)
	defer stop()
	send(ada, "site_b", 100)
	if used(ada) != 1000 || w.paused() != 2 {
		t.Errorf("%d, %d paused", used(ada), w.paused())
	}
	<-wake
	ok(t, w.c.DB.Admin(t.Context(), `UPDATE sites SET deleted_at = 1 WHERE id = 'site_b'`))
	if used(ada) != 1000 || w.paused() != 1 {
		t.Errorf("after a deletion: %d, %d paused", used(ada), w.paused())
	}
	l = w.serve(5000)
	if w.paused() != 0 {
		t.Error("paused although the limit was raised")
	}
	l = w.serve(1000)
	send(ada, "site_a", 1)
	if w.paused() != 1 {
		t.Error("not paused although the limit was lowered")
	}
	w.Usage = at(New(Config{DB: w.c.DB, Limits: limits.New(limits.Settings{Defaults: map[limits.Name]int64{limits.Bandwidth: 5000}})}), func() db.Time { return w.clock })
	ok(t, w.resume(t.Context()))
	if w.paused() != 0 { // as Run does continuously
		t.Error("paused although a larger plan was chosen")
	}
	l = w.serve(1000)
	w.clock = w.clock.Add(3 * hour)
	if used(ada) != 0 || w.paused() != 0 {
		t.Errorf("in the next month: %d, %d paused", used(ada), w.paused())
	}
	// The last hours of a month are sealed in the next month but count for their own.
	ok(t, w.Tidy(t.Context()))
	w.clock = w.clock.Add(3 * hour)
	ok(t, w.Tidy(t.Context()))
	if used(ada) != 0 {
		t.Errorf("%d after sealing", used(ada))
	}
	w.clock = w.clock.Add(2 * keepSites)
	ok(t, w.Tidy(t.Context()))
	var rows int
	ok(t, w.c.DB.QueryRow(t.Context(), `SELECT count(*) FROM usage_caps`).Scan(&rows))
	if rows != 0 {
		t.Errorf("%d rows are left", rows)
	}
}

// armed returns the owners for whom nodes take loans.
func (w *world) armed() []id.Owner {
	w.t.Helper()
	rows, err := w.c.DB.Query(w.t.Context(), `SELECT owner_id FROM capped_owners WHERE begins <= $1 AND ends > $1`, w.clock)
	armed, err := db.Collect(rows, err, scanOwner)
	ok(w.t, err)
	return armed
}

type heard struct{ all []Warning }

func (x *heard) TellUsageTx(_ context.Context, _ *db.Tx, _ id.Owner, w Warning) error {
	x.all = append(x.all, w)
	return nil
}

// At the limit, sites are slowed down if the owner's limits say so, and paused otherwise. A changed setting switches
// between the two.
func TestBandwidthThrottles(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.sites(ada, "site_a")
	edge := NewSource("edge/1")
	told := &heard{}
	serve := func(rate int64) {
		t.Helper()
		l := limits.New(limits.Settings{Defaults: map[limits.Name]int64{limits.Bandwidth: 1000, limits.Throttle: rate}})
		w.Usage = at(New(Config{DB: w.c.DB, Limits: l}), func() db.Time { return w.clock })
		w.Connect(told)
		ok(t, w.resume(t.Context()))
	}
	is := func(when string, paused int, rate int64, reached bool) {
		t.Helper()
		var got int64
		var spent bool
		err := w.c.DB.QueryRow(t.Context(), `SELECT rate, reached FROM throttled_owners WHERE owner_id = $1 AND begins <= $2 AND ends > $2`, ada, w.clock).Scan(&got, &spent)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			t.Fatal(err)
		}
		if n := w.paused(); n != paused || got != rate || spent != reached {
			t.Errorf("%s: %d sites are paused, the rate is %d, reached: %t; want %d, %d, %t", when, n, got, spent, paused, rate, reached)
		}
	}
	serve(limits.LeastThrottle)
	edge.Add(w.clock, ada, Bandwidth, "site_a", 999)
	ok(t, w.Write(t.Context(), edge))
	is("near the limit", 0, limits.LeastThrottle, false)
	edge.Add(w.clock, ada, Bandwidth, "site_a", 1)
	ok(t, w.Write(t.Context(), edge))
	is("at the limit", 0, limits.LeastThrottle, true)
	if n := len(told.all); n == 0 || told.all[n-1].Percent != 100 || told.all[n-1].Throttle != limits.LeastThrottle {
		t.Errorf("the owner was told %+v", told.all)
	}
	edge.Add(w.clock, ada, Bandwidth, "site_a", 500)
	ok(t, w.Write(t.Context(), edge))
	if n, _, err := w.Current(t.Context(), w.c.DB, ada, Bandwidth); err != nil || n != 1500 {
		t.Errorf("%d bytes are counted, those sent slowly among them: %v", n, err)
	}
	serve(limits.MostThrottle)
	is("with a higher rate", 0, limits.MostThrottle, true)
	serve(0)
	is("without a rate", 1, 0, false)
}

// Nodes take loans from the first byte for owners with a small limit. Owners with a small individual limit are found by
// name and others are left alone; if the default is small, all owners are found.
func TestSmallLimits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		settings limits.Settings
		want     int
	}{
		{limits.Settings{}, 0},
		{limits.Settings{Users: map[string]map[limits.Name]int64{"small@example.test": {limits.Bandwidth: 1000}}}, 1},
		{limits.Settings{Teams: map[string]map[limits.Name]int64{"small@example.test": {limits.Bandwidth: 1000}}}, 0}, // no such team
		{limits.Settings{Defaults: map[limits.Name]int64{limits.Bandwidth: 1000}}, 3},
	} {
		w := newWorld(t, limits.New(c.settings))
		accounts := account.New(account.Config{DB: w.c.DB})
		small := id.Owner("")
		for _, email := range []string{"ada@example.test", "small@example.test", "grace@example.test"} {
			u, err := accounts.CreateUser(t.Context(), email, "", false)
			ok(t, err)
			if email == "small@example.test" {
				small = u.Owner
			}
		}
		ok(t, (Lender{w.Usage, "one"}).Arm(t.Context(), small))
		if len(w.armed()) != min(c.want, 1) { // as soon as it has a site
			t.Errorf("%+v: nodes borrow for %v", c.settings, w.armed())
		}
		for range 2 { // running again finds no owner twice
			ok(t, w.armSmall(t.Context(), w.clock))
		}
		armed := w.armed()
		if len(armed) != c.want || c.want == 1 && armed[0] != small {
			t.Errorf("%+v: nodes borrow for %v, want %d", c.settings, armed, c.want)
		}
	}
}
