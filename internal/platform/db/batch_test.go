package db_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
)

// Concurrent writes share transactions. A failed write has no effect on the database or on other writes. Each write
// returns after it was committed.
func TestBatch(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(d.Admin(t.Context(), `CREATE TABLE notes (n BIGINT PRIMARY KEY, share TEXT NOT NULL)`))
	b := d.NewBatch()
	wake, stop := d.Listen("failed")
	defer stop()
	var after atomic.Int64
	no := errors.New("no")
	var all sync.WaitGroup
	const n = 400
	good := func(i int) bool { return i%10 != 3 && i%10 != 5 && i%10 != 7 }
	for i := range n {
		all.Go(func() {
			share := fmt.Sprint("share", i%3)
			err := b.Write(db.WithShare(t.Context(), share), func(ctx context.Context, tx *db.Tx) error {
				if _, err := tx.Exec(ctx, `INSERT INTO notes (n, share) VALUES ($1, $2)`, i, share); err != nil {
					return err
				}
				tx.AfterCommit(func() { after.Add(1) })
				switch i % 10 {
				case 5:
					panic("write 5")
				case 3:
					tx.Notify("failed")
					return no
				case 7: // the database rejects it
					_, err := tx.Exec(ctx, `INSERT INTO notes (n, share) VALUES ($1, $2)`, i, share)
					return err
				}
				return nil
			})
			switch {
			case i%10 == 3 && !errors.Is(
				err,
				no,
			), i%10 == 7 && !db.Duplicate(err), i%10 == 5 && (err == nil || !strings.Contains(
				err.Error(),
				"write 5",
			)), good(i) != (err == nil):
				t.Errorf("write %d: %v", i, err)
			}
			var found int
			if err := d.QueryRow(
				t.Context(),
				`SELECT count(*) FROM notes WHERE n = $1`,
				i,
			).Scan(&found); err != nil || (found == 1) != good(i) {
				t.Errorf("write %d left %d rows, %v", i, found, err)
			}
		})
	}
	all.Wait()
	if got := after.Load(); got != n*7/10 {
		t.Errorf("%d of %d commits were told of", got, n*7/10)
	}
	select {
	case <-wake:
		t.Error("a failed write sent a notification")
	case <-time.After(10 * time.Millisecond):
	}
}

// A queued write whose context ends never runs. A running write is waited for.
func TestBatchGivesUp(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	b := d.NewBatch()
	begun, free := make(chan struct{}), make(chan struct{})
	first := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		first <- b.Write(ctx, func(ctx context.Context, _ *db.Tx) error { close(begun); <-free; return ctx.Err() })
	}()
	<-begun
	cancel() // the running write continues
	short, end := context.WithCancel(t.Context())
	second := make(chan error, 1)
	ran := false
	go func() { second <- b.Write(short, func(context.Context, *db.Tx) error { ran = true; return nil }) }()
	end()
	if err := <-second; !errors.Is(err, context.Canceled) || ran {
		t.Errorf("a write that was given up: %v, it ran: %v", err, ran)
	}
	close(free)
	if err := <-first; err != nil {
		t.Errorf("a write that had begun: %v", err)
	}
	if err := b.Write(t.Context(), func(context.Context, *db.Tx) error { return nil }); err != nil {
		t.Errorf("the one after them: %v", err)
	}
}
