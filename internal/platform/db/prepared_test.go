package db_test

import (
	"fmt"
	"sync"
	"testing"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
)

// Concurrent queries with the same text and different values return the right rows, also while the schema changes.
func TestStatementsAreReused(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	table(t, d)
	ctx := t.Context()
	for i := range 20 {
		if err := d.Admin(ctx, fmt.Sprintf("INSERT INTO t VALUES ('k%d', %d, TRUE, NULL)", i, i)); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 50 {
				want := (g + i) % 20
				var n int
				if err := d.QueryRow(ctx, "SELECT n FROM t WHERE id = $1", fmt.Sprint("k", want)).Scan(&n); err != nil || n != want {
					t.Errorf("got %d, %v; want %d", n, err, want)
				}
				// More different texts than are cached: the others work too.
				if err := d.QueryRow(
					ctx,
					fmt.Sprintf("SELECT n + %d FROM t WHERE id = $1", g*50+i),
					"k0",
				).Scan(&n); err != nil || n != g*50+i {
					t.Errorf("got %d, %v; want %d", n, err, g*50+i)
				}
			}
		})
	}
	if err := d.Admin(ctx, "ALTER TABLE t ADD COLUMN more TEXT NOT NULL DEFAULT ''"); err != nil {
		t.Error(err)
	}
	wg.Wait()
	// An invalid statement returns the same error each time.
	for range 2 {
		if err := d.QueryRow(ctx, "SELECT nothing FROM t").Scan(new(int)); err == nil {
			t.Error("a query for an unknown column succeeded")
		}
		if rows, err := d.Query(ctx, "SELECT nothing FROM t"); err == nil {
			rows.Close()
			t.Error("a query for an unknown column succeeded")
		}
	}
}

// A statement that the write connection has prepared also works in snapshots and on read connections.
func TestSnapshotsRunPreparedStatements(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	table(t, d)
	const q = "SELECT count(*) FROM t WHERE n >= $1"
	for range 10 {
		var n int
		if err := d.Write(t.Context(), func(tx *db.Tx) error { return tx.QueryRow(t.Context(), q, 0).Scan(&n) }); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := d.Snapshot(t.Context(), func(r db.Reader) error { return r.QueryRow(t.Context(), q, 0).Scan(&n) }); err != nil {
				t.Fatal(err)
			}
			if err := d.QueryRow(t.Context(), q, 0).Scan(&n); err != nil {
				t.Fatal(err)
			}
		}
	}
}
