package app

import (
	"context"
	"slices"
	"time"

	"slipway/internal/platform/fault"
	"slipway/internal/platform/id"
	"slipway/internal/platform/panics"
	"slipway/internal/program/figures"
)

// Restart starts the deployment's program anew beside the one that runs, and lets it take
// its place once it is healthy: nobody waits and no request is dropped. One that crashed is
// started at once. Where it sleeps, or falls asleep meanwhile, nothing is done: the next start is new anyway.
func (a *Apps) Restart(ctx context.Context, deployment id.Deployment) error {
	a.mu.Lock()
	p := a.programs[deployment]
	a.mu.Unlock()
	if p == nil {
		return nil
	}
	select { // one after the other
	case p.restart <- struct{}{}:
		defer func() { <-p.restart }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	old, err := p.standing(ctx)
	if err != nil {
		return err
	}
	if old == nil {
		p.mu.Lock()
		crashed := p.state == Crashed
		p.mu.Unlock()
		if !crashed {
			return nil
		}
		release, err := a.Start(ctx, deployment, nil)
		if err == nil {
			release()
		}
		return err
	}
	p.mu.Lock()
	run, n := p.run, 1+len(p.more)
	p.mu.Unlock()
	in, want, err := p.launch(ctx, true)
	if err != nil {
		return err
	}
	if err = p.healthy(ctx, in, nil); err == nil {
		in.transport.Warm(ctx)
	}
	var more []*instance
	if n = min(n, want.Instances.Max); err == nil && n > 1 {
		more, _ = p.besides(ctx, want, n-1) // fewer will do until there is room
	}
	p.mu.Lock()
	slept := err == nil && p.now == nil && p.state == Sleeping && !p.gone
	switch {
	case err != nil, slept:
	case p.now == nil, p.run != run, p.gone:
		err = errMeanwhile
	default:
		for old := range p.each {
			a.work.Go(func() { a.retire(old, want.Drain) })
		}
		p.want, p.now, p.more, p.stale = want, in, more, false
		p.run++
		p.restarts++
		a.figures.Note(want.Site, func(f *figures.Figures) { f.Restarts++ })
		p.set(Running, "")
		p.apps.logs.System(want.Site, deployment, "Restarted")
	}
	p.mu.Unlock()
	for _, x := range append(more, in) {
		panics.Go(func() { p.watch(x) }) // counts it out in any case
		if err != nil || slept {
			x.running.Stop(0)
		}
	}
	return err
}

// errMeanwhile is a restart's end where the program ended or was stopped meanwhile.
var errMeanwhile = &fault.Error{
	Kind: fault.Conflict, Message: "The application ended or was stopped during the restart", Code: "application_stopped",
}

// standing returns the instance that runs once no start is under way: one that was begun before may have today's variables or not.
func (p *program) standing(ctx context.Context) (*instance, error) {
	for {
		p.mu.Lock()
		in, try := p.now, p.starting
		p.mu.Unlock()
		if try == nil {
			return in, nil
		}
		select {
		case <-try.done:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// retire ends an instance that serves no new requests, once those under way have ended.
func (a *Apps) retire(in *instance, drain time.Duration) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	late := time.NewTimer(drain)
	defer late.Stop()
	for over := false; !over && in.busy(); {
		select {
		case <-tick.C:
		case <-late.C:
			over = true
		case <-a.down:
			over = true
		}
	}
	in.running.Stop(stopGrace)
}

// vacate replaces an instance whose machine is to be empty: as Restart does, or, where two can't be at once, by the next start.
func (p *program) vacate(in *instance) {
	ctx, cancel := p.apps.untilDown()
	defer cancel()
	ctx, done := context.WithTimeout(ctx, p.apps.c.WakeTime)
	defer done()
	p.mu.Lock()
	alone, drain, runs := keeps(p.want.Spec), p.want.Drain, p.now == in || slices.Contains(p.more, in)
	p.mu.Unlock()
	if !runs || p.replace(ctx, in) { // it may have been replaced, and have requests that it still answers
		return
	}
	if !alone && p.apps.Restart(ctx, p.deployment) == nil {
		return
	}
	p.mu.Lock()
	mine := p.now == in && len(p.more) == 0
	if mine {
		p.now = nil
		p.set(Sleeping, "")
	}
	p.mu.Unlock()
	if mine {
		p.apps.retire(in, drain)
	}
}

// Renew ends what runs of a site here: what it stands on has been replaced. Programs start
// again with the next request, those that never sleep and workers at once.
func (a *Apps) Renew(site id.Site) {
	for _, p := range a.all() {
		p.mu.Lock()
		try, of := p.starting, p.want.Site
		p.mu.Unlock()
		if of != site {
			continue
		}
		p.end()
		if try != nil { // it has the old variables, and may wait for whoever calls
			a.work.Go(func() {
				<-try.done
				p.end()
			})
		}
	}
	a.endWorkers(site)
}

// endWorkers ends the workers of a site here, which begin again soon.
func (a *Apps) endWorkers(site id.Site) {
	a.workers.mu.Lock()
	defer a.workers.mu.Unlock()
	for _, w := range a.workers.running {
		if w.task.Site == site {
			w.stop()
		}
	}
}
