package job

import (
	"context"
	"log/slog"
	"sync"
	"testing"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
)

// The timer and a notification of a cancellation may renew leases concurrently, also while the database fails. (The
// race detector finds missing locks.)
func TestRenewalsAtOnce(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex // guards turn
	turn := 0
	l := &Leases{
		DB: dbtest.New(t), Log: slog.New(slog.DiscardHandler),
		Renew: func(context.Context, *db.Tx, string, int64, db.Time) error {
			mu.Lock()
			defer mu.Unlock()
			if turn++; turn%2 == 0 {
				return context.DeadlineExceeded
			}
			return nil
		},
	}
	ctx, release := l.Hold(t.Context(), "x", 1)
	defer release()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 5 {
				_ = l.RenewAll(t.Context())
			}
		})
	}
	all.Wait()
	if err := context.Cause(ctx); err != nil {
		t.Errorf("the lease lasts, and its work ended with %v", err)
	}
}
