package app

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"slipway/internal/platform/fault"
	"slipway/internal/platform/id"
)

// codeFull is the code of all errors that say that something is not started for as much as may run at once does.
const codeFull = "too_many_programs"

// errFull is the answer where as many programs run as may, and none of them is idle.
var errFull = &fault.Error{
	Kind:       fault.Unavailable,
	Message:    "Too many applications are running on this server",
	Code:       codeFull,
	RetryAfter: 10 * time.Second,
}

// isFull reports whether an error says that there was no room.
func isFull(err error) bool {
	f := fault.As(err)
	return f != nil && f.Code == codeFull
}

// spareTime is how long nobody may have asked for a program that is put to sleep for another.
const spareTime = 5 * time.Second

// room counts one more instance of an owner in. Where as many run as may, one that is idle,
// and is not p, makes room where it may: the owner's own, or one of an owner that runs more.
func (a *Apps) room(ctx context.Context, p *program, owner id.Owner, spare bool) error {
	for {
		// share: total Most (500) instances; owner sites.running; edge an idle one of the owner that runs the most sleeps, else 503
		if a.up.Add(1) <= int64(a.c.Most) {
			return nil
		}
		a.up.Add(-1)
		var idle *instance
		if spare {
			idle = a.spareOfMost(p, owner)
		}
		if idle == nil {
			return errFull
		}
		select {
		case <-idle.out:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// spareOfMost is spare for those of the owner that runs the most, of which one is idle: none
// that runs fewer than the one who asks is put to sleep for it.
func (a *Apps) spareOfMost(p *program, owner id.Owner) *instance {
	up := a.owners.All()
	most := up[owner]
	who := map[id.Owner]bool{}
	a.idlest(p, func(w Wanted) bool { who[w.Owner] = true; return false })
	others := slices.DeleteFunc(slices.Collect(maps.Keys(who)), func(o id.Owner) bool { return o == owner || up[o] <= most })
	slices.SortFunc(others, func(x, y id.Owner) int { return cmp.Or(cmp.Compare(up[y], up[x]), cmp.Compare(x, y)) })
	for _, o := range append(others, owner) {
		if idle := a.spare(p, func(w Wanted) bool { return w.Owner == o }); idle != nil {
			return idle
		}
	}
	return nil
}

// spare puts the program to sleep that nobody has asked for the longest, and at least for spareTime, of those that of holds for: before
// somebody who visits another site is refused, one sleeps earlier than its settings say. Those that never sleep and p are left alone. It
// returns the instance that ends, or nil where there is none.
func (a *Apps) spare(p *program, of func(Wanted) bool) *instance {
	for {
		victim, idle := a.idlest(p, of)
		if idle == nil {
			return nil
		}
		if victim.stop(idle, false, Sleeping) {
			return idle
		}
	}
}

func (a *Apps) idlest(not *program, of func(Wanted) bool) (victim *program, idle *instance) {
	all := a.all()
	since := time.Now().Add(-spareTime)
	for _, p := range all {
		p.mu.Lock()
		in, want := p.spareable(), p.want
		p.mu.Unlock()
		if in == nil || p == not || !of(want) {
			continue
		}
		in.mu.Lock()
		if in.active == 0 && !in.used.After(since) {
			victim, idle, since = p, in, in.used
		}
		in.mu.Unlock()
	}
	return victim, idle
}
