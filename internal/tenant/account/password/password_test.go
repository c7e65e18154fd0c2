package password

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fair"
	"slipway/internal/platform/fault"
)

// A network that floods the sign-in waits for its own requests. Passwords from other networks are checked next.
func TestHashesAreShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := New(0)
		places := max(2, runtime.NumCPU())
		var all []func()
		for range places / 2 { // hashes of other networks are in progress
			done, err := h.places.Take(t.Context(), fair.Who{Owner: "net:others"})
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, done)
		}
		ctx, cancel := context.WithCancel(db.WithShare(t.Context(), "net:greedy"))
		var wait sync.WaitGroup
		for range places/2 + 20 { // as many as may run and wait
			wait.Go(func() {
				if done, err := h.places.Take(ctx, fair.Who{Owner: db.Share(ctx)}); err == nil {
					<-ctx.Done()
					done()
				}
			})
		}
		synctest.Wait()
		var f *fault.Error
		if _, err := h.argon(ctx, "x", []byte("saltsalt"), 1, 8, 1, 16); !errors.As(err, &f) || f.Kind != fault.Unavailable {
			t.Errorf("one more of the network: %v, want an Unavailable fault", err)
		}
		all[0]()
		if _, err := h.argon(db.WithShare(t.Context(), "net:quiet"), "x", []byte("saltsalt"), 1, 8, 1, 16); err != nil {
			t.Errorf("another network: %v", err)
		}
		cancel()
		for _, done := range all {
			done()
		}
		wait.Wait()
	})
}
