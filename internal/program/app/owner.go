package app

import (
	"context"
	"fmt"
	"sync"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/limits"
)

// Running returns how many programs and commands of an owner run on this machine.
func (a *Apps) Running(owner account.OwnerID) int64 {
	return a.owners.Of(owner)
}

// RunningOf is Running as limits count it.
func (a *Apps) RunningOf(_ context.Context, _ db.Reader, owner account.OwnerID) (int64, error) {
	return a.Running(owner), nil
}

// enter counts a command in, which left counts out, if the server and its owner have room for it.
func (a *Apps) enter(ctx context.Context, owner account.OwnerID) (left func(), err error) {
	if err := a.room(ctx, nil, owner, true); err != nil {
		return nil, err
	}
	out, err := a.admit(ctx, owner, nil, true)
	if err != nil {
		a.up.Add(-1)
		return nil, err
	}
	return sync.OnceFunc(func() { out(); a.up.Add(-1) }), nil
}

// admit counts one more of what an owner runs, up to the owner's limit: where that is reached,
// one that is idle here, and is not p, makes room where it may. What other nodes run counts as they said within the last two seconds.
func (a *Apps) admit(ctx context.Context, owner account.OwnerID, p *program, spare bool) (left func(), err error) {
	for {
		most := int64(a.c.Most)
		if a.c.Limits != nil {
			if most, err = a.c.Limits.LimitOf(ctx, a.c.DB, owner, limits.Programs); err != nil {
				return nil, err
			}
		}
		others := a.runningElsewhere(owner)
		up, ok := a.owners.Enter(owner, most-others)
		if ok {
			return func() { a.owners.Leave(owner) }, nil
		}
		var idle *instance
		if spare {
			idle = a.spare(p, func(w Wanted) bool { return w.Owner == owner })
		}
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
