package operator

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// At most one refresh runs at a time. Callers get the previous value meanwhile, and an error only if there is none.
func TestCached(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var looks atomic.Int64
		broken := errors.New("broken")
		fails := true
		k := cached[int64]{good: time.Minute, load: func(context.Context) (int64, error) {
			n := looks.Add(1)
			time.Sleep(time.Second)
			if fails {
				panic(broken)
			}
			return n, nil
		}}
		want := func(found, made int64, ok bool) {
			t.Helper()
			ctx, cancel := context.WithCancel(t.Context())
			got, at, err := k.get(ctx)
			cancel() // the caller leaves, but the load continues for the others
			synctest.Wait()
			if got != found || looks.Load() != made || (err == nil) != ok || at.IsZero() != (found == 0) {
				t.Fatalf("found %d at %v after %d looks, %v", got, at, looks.Load(), err)
			}
		}
		want(0, 1, true) // the first load continues
		want(0, 1, true)
		time.Sleep(2 * time.Second)
		if _, _, err := k.last(); err == nil {
			t.Fatal("a panic is no error")
		}
		fails = false
		want(0, 2, true)
		time.Sleep(2 * time.Second)
		want(2, 2, true)
		time.Sleep(time.Minute)
		fails = true
		want(2, 3, true) // outdated, shown during the refresh
		time.Sleep(2 * time.Second)
		want(2, 4, true)
		time.Sleep(2 * time.Second) // wait for the last load
	})
}
