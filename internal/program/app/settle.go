package app

import (
	"cmp"
	"context"
	"reflect"
	"slices"
	"time"

	"slipway/internal/platform/id"
	"slipway/internal/platform/panics"
)

// settleTime limits how long changed settings are read.
const settleTime = 10 * time.Second

// renewTime limits how long a program is started anew.
const renewTime = 5 * time.Minute

// settle has a program that runs take on what its site's settings say by now, as far as that
// needs no other process. Where it does, the program is marked as in need of a restart.
func (a *Apps) settle(p *program, known map[id.Site]row) {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := known[p.want.Site]
	revised := k.deployment == p.deployment && k.revision > p.want.Revision // one that is lower was read before its start
	moved := k.owner != "" && p.want.Owner != "" && k.owner != p.want.Owner
	if p.now != nil && (revised || moved) && time.Since(p.renewed) > revisionEvery && time.Now().After(p.unrenewed.until) {
		p.renewed = time.Now()
		a.work.Go(func() { a.renewRevision(p) })
	}
	now := k.settings
	if p.now == nil || p.settling || (now == "" || now == p.want.Settings) && k.updated == p.updated || time.Now().Before(p.unread.until) {
		return
	}
	p.settling = true
	run := p.run
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), settleTime)
		defer cancel()
		var want Wanted
		err := panics.Call(func() (err error) { want, err = a.c.Launch.Wanted(ctx, p.deployment); return err })
		p.mu.Lock()
		defer p.mu.Unlock()
		p.settling = false
		if err != nil {
			again := p.unread.fails()
			a.c.Log.Warn("changed settings of a program not read, will be retried", "deployment", p.deployment, "in", again, "err", err)
			return
		}
		p.unread = pause{}
		if p.now == nil || p.run != run { // the next one has them from its start
			return
		}
		p.stale, p.updated = needsProcess(p.want, want), k.updated
		p.want.Sleep, p.want.Drain, p.want.Health, p.want.HealthPath = want.Sleep, want.Drain, want.Health, want.HealthPath
		p.want.MaxBody, p.want.FirstByte, p.want.Settings = want.MaxBody, want.FirstByte, cmp.Or(now, p.want.Settings)
		p.want.Instances = want.Instances
		for in := range p.each {
			in.bound(want)
		}
	}()
}

// revisionEvery is how long one that could not be started anew goes on as it is.
const revisionEvery = 10 * time.Second

// againAfter is how soon after a start with changed settings the next ones take effect.
const againAfter = time.Second

// pause is how long to wait after a failure: a second at first, and twice as long after each further one.
type pause struct {
	last  time.Duration
	until time.Time
}

// longestPause bounds a pause: a fault of an operator ends, and a site's settings are to act soon after.
const longestPause = 2 * time.Minute

// fails returns the pause after one more failure.
func (p *pause) fails() time.Duration {
	p.last = min(max(2*p.last, time.Second), longestPause)
	p.until = time.Now().Add(p.last)
	return p.last
}

// renewRevision has a program that began with another revision, or for another owner, replaced by one with today's: no request is
// dropped.
func (a *Apps) renewRevision(p *program) {
	ctx, cancel := a.untilDown()
	defer cancel()
	ctx, done := context.WithTimeout(ctx, renewTime)
	defer done()
	err := a.Restart(ctx, p.deployment)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		p.renewed, p.unrenewed = time.Now().Add(againAfter-revisionEvery), pause{}
	} else if ctx.Err() == nil {
		again := max(revisionEvery, p.unrenewed.fails())
		a.c.Log.Warn("program not started anew with changed settings, will be retried",
			"deployment", p.deployment, "in", again, "err", err)
	}
}

// bound sets what the edge holds requests to.
func (in *instance) bound(want Wanted) {
	in.maxBody.Store(want.MaxBody)
	in.firstByte.Store(int64(want.FirstByte))
}

// needsProcess reports whether what runs differs from what is wanted in what only another process has.
func needsProcess(runs, want Wanted) bool {
	a, b := runs.Spec, want.Spec
	if runs.Stored > 0 {
		a.Limits.Storage = runs.Stored
	}
	sorted := func(env []string) []string { return slices.Sorted(slices.Values(env)) } // they come in no order
	return !slices.Equal(sorted(a.Env), sorted(b.Env)) || a.Limits != b.Limits || a.Shell != b.Shell || !reflect.DeepEqual(
		a.Argv,
		b.Argv,
	) || !reflect.DeepEqual(a.Ports, b.Ports) || !reflect.DeepEqual(a.Storage, b.Storage)
}
