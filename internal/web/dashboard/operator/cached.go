package operator

import (
	"context"
	"sync"
	"time"

	"slipway/internal/platform/panics"
)

const (
	firstWait = 20 * time.Millisecond // how long a page waits for the first value
	loadTime  = 5 * time.Minute
)

// cached holds a slowly computed value, such as the size of a directory. One load at a time runs in the background, and
// pages show the last result.
type cached[T any] struct {
	load func(context.Context) (T, error)
	good time.Duration // how long a value is fresh

	mu    sync.Mutex // guards the rest
	found T
	at    time.Time     // time of the last value; zero: none
	err   error         // of the last load
	under chan struct{} // closed at the end of the running load; nil: none running
}

// get returns the last value and its time, which is zero until the first load has ended. It starts a load if the value
// is stale. err is the last load's error if none has succeeded.
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

// last returns the last value without starting a load.
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
	k.err = err
	if err == nil {
		k.found, k.at = found, time.Now()
	}
	k.under = nil
	close(done)
}
