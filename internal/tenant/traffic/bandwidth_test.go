package traffic

import (
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/limits"
)

// What an owner's sites send counts towards the owner's limit of the calendar month, also
// that of sites which are deleted later; at the limit all of the owner's sites are paused,
// and nobody else's, until the month ends or the limit rises.
func TestBandwidth(t *testing.T) {
	t.Parallel()
	w := &world{t: t, now: time.Date(2027, 3, 31, 23, 0, 0, 0, time.UTC)}
	d := dbtest.New(t)
	serve := func(most int64) *limits.Limits {
		l := limits.New(limits.Settings{Defaults: map[limits.Name]int64{limits.Bandwidth: most}})
		w.Traffic = New(Config{DB: d, Limits: l, Now: func() db.Time { return db.At(w.now) }})
		if err := w.reconsider(t.Context()); err != nil {
			t.Fatal(err)
		}
		return l
	}
	l := serve(1000)
	w.sites(ada, "site_a", "site_b")
	w.sites(eve, "site_e")
	used := func(owner account.OwnerID) int64 {
		t.Helper()
		u, err := l.UseOf(t.Context(), d, owner, limits.Bandwidth)
		if err != nil {
			t.Fatal(err)
		}
		return u.Used
	}
	paused := func() (n int) {
		t.Helper()
		if err := d.QueryRow(
			t.Context(),
			`SELECT count(*) FROM paused_sites WHERE month = $1`,
			limits.Month(db.At(w.now)),
		).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if err := w.Add(t.Context(), Batch{
		Since: w.now,
	}, map[string]Counts{
		"site_a":    {OK: 1, Bytes: 400},
		"site_b":    {OK: 1, Bytes: 500},
		"site_e":    {OK: 1, Bytes: 999},
		"site_gone": {Bytes: 5},
	}); err != nil {
		t.Fatal(err)
	}
	if used(ada) != 900 || used(eve) != 999 || paused() != 0 {
		t.Fatalf("%d, %d, %d paused", used(ada), used(eve), paused())
	}
	wake, stop := d.Listen(pausedTopic)
	defer stop()
	w.add("site_b", Counts{OK: 1, Bytes: 100})
	if used(ada) != 1000 || paused() != 2 {
		t.Errorf("%d, %d paused", used(ada), paused())
	}
	<-wake
	if err := d.Admin(t.Context(), `UPDATE sites SET deleted_at = 1 WHERE id = 'site_b'`); err != nil {
		t.Fatal(err)
	}
	if used(ada) != 1000 || paused() != 1 {
		t.Errorf("after a deletion: %d, %d paused", used(ada), paused())
	}
	l = serve(5000)
	if paused() != 0 {
		t.Error("paused although the limit was raised")
	}
	l = serve(1000)
	w.add("site_a", Counts{OK: 1, Bytes: 1})
	if paused() != 1 {
		t.Error("not paused although the limit was lowered")
	}
	w.now = w.now.Add(2 * time.Hour)
	if used(ada) != 0 || paused() != 0 {
		t.Errorf("in the next month: %d, %d paused", used(ada), paused())
	}
	w.now = w.now.Add(2 * keepDay)
	if err := w.reconsider(t.Context()); err != nil {
		t.Fatal(err)
	}
	var rows int
	if err := d.QueryRow(t.Context(), `SELECT count(*) FROM bandwidth`).Scan(&rows); err != nil || rows != 0 {
		t.Errorf("%d rows are left, %v", rows, err)
	}
}
