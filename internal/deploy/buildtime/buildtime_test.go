package buildtime

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/limits"
)

// A meter counts from its last start, and nothing while it is stopped.
func TestMeter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var m Meter
		if m.Lap() != 0 {
			t.Error("it counts before it was started")
		}
		m.Start()
		time.Sleep(time.Minute)
		m.Start()
		time.Sleep(time.Second)
		if got := m.Lap(); got != time.Second {
			t.Errorf("%s since the last start", got)
		}
		time.Sleep(2 * time.Second)
		if got := m.Lap(); got != 2*time.Second {
			t.Errorf("%s since the last lap", got)
		}
		m.Stop()
		time.Sleep(time.Second)
		if got := m.Lap(); got != 0 {
			t.Errorf("%s while it is stopped", got)
		}
	})
}

// Builds add up for their owner, of this month alone, and even when what asked for them has ended.
func TestMinutes(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	ended, end := context.WithCancel(t.Context())
	end()
	note := func(owner account.OwnerID, site string, took time.Duration) {
		t.Helper()
		if err := Note(ended, d, owner, site, took); err != nil {
			t.Fatal(err)
		}
	}
	note("own_a", "site_1", 50*time.Second)
	note("own_a", "site_1", 40*time.Second)
	note("own_a", "site_2", 59*time.Second)
	note("own_a", "site_3", 0) // it never had a slot
	note("own_a", "site_3", -time.Hour)
	note("own_b", "site_4", time.Hour)
	for owner, want := range map[account.OwnerID]int64{"own_a": 2, "own_b": 60, "own_c": 0} {
		if got, err := Minutes(t.Context(), d, owner); err != nil || got != want {
			t.Errorf("%s: %d minutes, %v; want %d", owner, got, err, want)
		}
	}
	for site, want := range map[string]bool{"site_1": true, "site_3": false, "site_4": false} { // the last is another's
		if got, err := Any(t.Context(), d, "own_a", site); err != nil || got != want {
			t.Errorf("%s was built: %v, %v", site, got, err)
		}
	}
}

// What lies a year back counts no longer, what lies longer back is forgotten.
func TestForget(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	now := db.Now()
	err := d.Write(t.Context(), func(tx *db.Tx) error {
		for _, days := range []int{0, 360, 440} {
			at := now.Add(-time.Duration(days) * 24 * time.Hour)
			if _, err := tx.Exec(
				t.Context(),
				`INSERT INTO build_time (owner_id, month, site_id, ms) VALUES ('own_a', $1, 'site_1', 60000)`,
				limits.Month(at),
			); err != nil {
				return err
			}
		}
		return ForgetTx(t.Context(), tx)
	})
	if err != nil {
		t.Fatal(err)
	}
	var rows int
	if err := d.QueryRow(t.Context(), `SELECT count(*) FROM build_time`).Scan(&rows); err != nil || rows != 2 {
		t.Errorf("%d months are left, %v; want 2", rows, err)
	}
	if got, err := Minutes(t.Context(), d, "own_a"); err != nil || got != 1 {
		t.Errorf("%d minutes, %v; want those of this month, 1", got, err)
	}
}
