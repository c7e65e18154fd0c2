package app

import (
	"context"
	"fmt"
	"sync"
	"time"

	"slipway/internal/fault"
)

// owners counts what runs, for each owner.
type owners struct {
	mu sync.Mutex // guards up
	up map[string]int64
}

// Running returns how many programs and commands of an owner run on this machine.
func (a *Apps) Running(owner string) int64 {
	a.owners.mu.Lock()
	defer a.owners.mu.Unlock()
	return a.owners.up[owner]
}

// enter counts a command in, which left counts out, if the server and its owner have room
// for it.
func (a *Apps) enter(ctx context.Context, owner string) (left func(), err error) {
	if !a.room() {
		return nil, errFull
	}
	out, err := a.admit(ctx, owner)
	if err != nil {
		a.up.Add(-1)
		return nil, err
	}
	return sync.OnceFunc(func() { out(); a.up.Add(-1) }), nil
}

// admit counts one more of what an owner runs, up to the owner's limit.
func (a *Apps) admit(ctx context.Context, owner string) (left func(), err error) {
	most := int64(a.c.Most)
	if a.c.MostOf != nil {
		if most, err = a.c.MostOf(ctx, owner); err != nil {
			return nil, err
		}
	}
	o := &a.owners
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.up[owner] >= most {
		return nil, &fault.Error{Kind: fault.Unavailable, Message: fmt.Sprintf("%d programs of this account are running already", o.up[owner]),
			Details: "stop sites or let them sleep, or ask the operator for more", Code: "too_many_programs", RetryAfter: 30 * time.Second}
	}
	if o.up == nil {
		o.up = map[string]int64{}
	}
	o.up[owner]++
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.up[owner]--; o.up[owner] <= 0 {
			delete(o.up, owner)
		}
	}, nil
}
