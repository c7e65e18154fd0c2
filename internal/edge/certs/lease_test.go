package certs

import (
	"errors"
	"testing"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/job"
)

// An attempt keeps its lease only while it is the newest one for the name.
func TestRenewLease(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	write := func(fn func(tx *db.Tx) error) error { return d.Write(t.Context(), fn) }
	if err := write(func(tx *db.Tx) error {
		_, err := tx.Exec(
			t.Context(),
			`INSERT INTO certificates (host, kind, state, attempts, version, changed_at) VALUES ('a.test', 'custom', 'pending', 2, 1, 1)`,
		)
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
