package db_test

import (
	"fmt"
	"sync"
	"testing"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
)

// One text with many values, from many goroutines, while the schema changes: everybody
// reads what they asked for.
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
				// More texts than are kept: the rest runs all the same.
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
	// A text with an error in it has the same error each time.
	for range 2 {
		if err := d.QueryRow(ctx, "SELECT nothing FROM t").Scan(new(int)); err == nil {
			t.Error("there is no such column")
		}
		if rows, err := d.Query(ctx, "SELECT nothing FROM t"); err == nil {
			rows.Close()
			t.Error("there is no such column")
		}
	}
}

// A statement that the writer has prepared runs in snapshots too, and one of the readers'.
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
