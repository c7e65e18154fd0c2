package operator

import (
	"context"
	"sync"
	"time"

	"slipway/internal/platform/panics"
)

const (
	firstWait = 20 * time.Millisecond // how long a page waits for what it never had
	loadTime  = 5 * time.Minute
)

// cached holds a value that takes long to determine, such as the size of a directory. One
// load at a time runs in the background; pages show the value of the last one.
type cached[T any] struct {
	load func(context.Context) (T, error)
	good time.Duration // for how long a value is fresh

	mu    sync.Mutex // guards the rest
	found T
	at    time.Time     // when it was found; zero: never
	err   error         // of the last load
	under chan struct{} // closed when the load under way ends; nil: none is
}

// get returns the last value and when it was loaded; the time is zero during the first load.
// A stale value is loaded again. An error is that of the last load, if none has succeeded.
func (k *cached[T]) get(ctx context.Context) (found T, at time.Time, err error) {
	k.mu.Lock()
	if k.under == nil && time.Since(k.at) > k.good {
		k.under = make(chan struct{})
		// uncaught: find catches
		go k.find(context.WithoutCancel(ctx), k.under)
	}
	under, waits := k.under, k.at.IsZero()
	k.mu.Unlock()
	if waits && under != nil {
		select {
		case <-under:
		case <-ctx.Done():
		case <-time.After(firstWait):
		}
	}
	return k.last()
}

// last is get without looking.
func (k *cached[T]) last() (found T, at time.Time, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.at.IsZero() && k.under == nil {
		err = k.err
	}
	return k.found, k.at, err
}

func (k *cached[T]) find(ctx context.Context, done chan struct{}) {
	ctx, cancel := context.WithTimeout(ctx, loadTime)
	defer cancel()
	var found T
	err := panics.Call(func() (err error) { found, err = k.load(ctx); return err })
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err = err; err == nil {
		k.found, k.at = found, time.Now()
	}
	k.under = nil
	close(done)
}
