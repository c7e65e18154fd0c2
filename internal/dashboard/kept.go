package dashboard

import (
	"context"
	"fmt"
	"sync"
	"time"
)

const (
	patience = 20 * time.Millisecond // how long a page waits for what it never had
	longLook = 5 * time.Minute
)

// kept is what takes long to find out, such as how large a folder is. One look at a time
// goes on in the background; pages show what the last one found.
type kept[T any] struct {
	look func(context.Context) (T, error)
	good time.Duration // for how long nobody needs to look again

	mu    sync.Mutex // guards the rest
	found T
	at    time.Time     // when it was found; zero: never
	err   error         // of the last look
	under chan struct{} // closed when the look under way is over; nil: none is
}

// get returns what was found last and when, which is never while the first look goes on.
// What is old is looked for again. An error is the last look's, if there was no good one.
func (k *kept[T]) get(ctx context.Context) (found T, at time.Time, err error) {
	k.mu.Lock()
	if k.under == nil && time.Since(k.at) > k.good {
		k.under = make(chan struct{})
		go k.find(context.WithoutCancel(ctx), k.under)
	}
	under, waits := k.under, k.at.IsZero()
	k.mu.Unlock()
	if waits && under != nil {
		select {
		case <-under:
		case <-ctx.Done():
		case <-time.After(patience):
		}
	}
	return k.last()
}

// last is get without looking.
func (k *kept[T]) last() (found T, at time.Time, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.at.IsZero() && k.under == nil {
		err = k.err
	}
	return k.found, k.at, err
}

func (k *kept[T]) find(ctx context.Context, done chan struct{}) {
	ctx, cancel := context.WithTimeout(ctx, longLook)
	defer cancel()
	found, err := k.safely(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err = err; err == nil {
		k.found, k.at = found, time.Now()
	}
	k.under = nil
	close(done)
}

// safely makes an error of a panic: nobody else is there to catch it.
func (k *kept[T]) safely(ctx context.Context) (found T, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	return k.look(ctx)
}
