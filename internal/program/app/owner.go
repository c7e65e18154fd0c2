package app

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/limits"
)

// owners counts what runs, for each owner.
type owners struct {
	mu sync.Mutex                // guards up
	up map[account.OwnerID]int64 // share: total those that run programs; owner one entry; edge gone with the last program
}

// Running returns how many programs and commands of an owner run on this machine.
func (a *Apps) Running(owner account.OwnerID) int64 {
	a.owners.mu.Lock()
	defer a.owners.mu.Unlock()
	return a.owners.up[owner]
}

// RunningOf is Running as limits count it.
func (a *Apps) RunningOf(_ context.Context, _ db.Reader, owner account.OwnerID) (int64, error) {
	return a.Running(owner), nil
}

// enter counts a command in, which left counts out, if the server and its owner have room
// for it.
func (a *Apps) enter(ctx context.Context, owner account.OwnerID) (left func(), err error) {
	if err := a.room(ctx, nil, owner); err != nil {
		return nil, err
	}
	out, err := a.admit(ctx, owner, nil)
	if err != nil {
		a.up.Add(-1)
		return nil, err
	}
	return sync.OnceFunc(func() { out(); a.up.Add(-1) }), nil
}

// admit counts one more of what an owner runs, up to the owner's limit: where that is reached,
// one that is idle here, and is not p, makes room. What other nodes run counts as they said within the last two seconds.
func (a *Apps) admit(ctx context.Context, owner account.OwnerID, p *program) (left func(), err error) {
	for {
		most := int64(a.c.Most)
		if a.c.Limits != nil {
			if most, err = a.c.Limits.LimitOf(ctx, a.c.DB, owner, limits.Programs); err != nil {
				return nil, err
			}
		}
		others := a.runningElsewhere(owner)
		up, ok := a.owners.enter(owner, most-others)
		if ok {
			return func() { a.owners.leave(owner) }, nil
		}
		idle := a.spare(p, func(w Wanted) bool { return w.Owner == owner })
		if idle == nil {
			return nil, &fault.Error{
				Kind: fault.Unavailable, Message: fmt.Sprintf("%d programs of this account are running already", up+others),
				Details: "stop sites or let them sleep, or ask the operator for more", Code: codeFull, RetryAfter: 30 * time.Second,
			}
		}
		select {
		case <-idle.left:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// enter counts one more in, if an owner has fewer than most.
func (o *owners) enter(owner account.OwnerID, most int64) (up int64, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.up[owner] >= most {
		return o.up[owner], false
	}
	if o.up == nil {
		o.up = map[account.OwnerID]int64{}
	}
	o.up[owner]++
	return o.up[owner], true
}

// all returns how many each owner runs.
func (o *owners) all() map[account.OwnerID]int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.up)
}

func (o *owners) leave(owner account.OwnerID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.up[owner]--; o.up[owner] <= 0 {
		delete(o.up, owner)
	}
}
