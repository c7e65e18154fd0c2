package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fair"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/id"
	"slipway/internal/platform/text"
	"slipway/internal/program/applog"
	"slipway/internal/program/php"
	"slipway/internal/program/runtime"
)

// startTime bounds a start up to the moment when the program runs; [Wanted.Health] bounds what follows.
const startTime = 2 * time.Minute

// launch starts the program and returns once it listens. now is a start for a deployment, which a site's share does not hold back. What
// had to wait, as for a restore, starts with what its site stands on by then.
func (p *program) launch(ctx context.Context, now bool) (in *instance, want Wanted, err error) {
	for {
		if in, want, err = p.tryLaunch(ctx, now); !errors.Is(err, runtime.ErrHeld) {
			return in, want, err
		}
		if err := p.apps.unquiet(ctx, want.Site); err != nil {
			return nil, want, err
		}
	}
}

func (p *program) tryLaunch(ctx context.Context, now bool) (_ *instance, want Wanted, err error) {
	a := p.apps
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	if err := a.look(ctx, p.deployment); err != nil {
		return nil, want, err
	}
	if want, err = a.c.Launch.Wanted(ctx, p.deployment); err != nil {
		return nil, want, err
	}
	if !now {
		if err := a.share(ctx, p, want.Site); err != nil {
			return nil, want, err
		}
	}
	p.mu.Lock()
	p.want = want
	p.live = p.live || want.Live // known from now on: where another one takes its place while it starts, it drains, and isn't a preview
	p.mu.Unlock()
	if a.c.Engine == nil {
		return nil, want, a.noEngine()
	}
	if a.quiet.of(want.Site) != nil { // launch waits
		return nil, want, runtime.ErrHeld
	}
	if err := a.claim(ctx, want); err != nil {
		return nil, want, err
	}
	if err := a.boundStorage(ctx, &want); err != nil {
		return nil, want, err
	}
	if !now {
		started, err := a.starts.Take(ctx, fair.Who{Owner: string(want.Owner), Site: string(want.Site)})
		if err != nil {
			return nil, want, fmt.Errorf("wait for other starts: %w", err)
		}
		defer started()
	}
	in, err := p.begin(ctx, want, false)
	return in, want, err
}

// begin starts an instance of what is wanted once there is room for it, and returns once it listens; beside says that others run.
func (p *program) begin(ctx context.Context, want Wanted, beside bool) (_ *instance, err error) {
	a := p.apps
	if err := a.room(ctx, p, want.Owner, !beside); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			a.up.Add(-1)
		}
	}()
	left, err := a.admit(ctx, want.Owner, p, !beside)
	if err != nil {
		return nil, err
	}
	a.logs.Owned(want.Site, want.Owner)
	want.Spec.ID, want.Spec.Fresh = db.NewID("run"), true
	fatal, said := new(atomic.Value), new(recent)
	want.Spec.Output = func(stream, line string) {
		if want.Secrets != nil {
			line = want.Secrets.Redact(line)
		}
		if text := php.Fatal(line); text != "" {
			fatal.Store(text)
		}
		said.add(line)
		a.logs.Add(want.Site, p.deployment, applog.Web, stream, line)
	}
	want.Spec.Losses = losses{p, want}
	running, err := a.startInRoom(ctx, p, want, beside)
	if err != nil {
		left()
		return nil, err
	}
	stored := a.storage.Begin(want.Site)
	gone := make(chan struct{})
	// uncaught: waits
	go func() { defer close(gone); <-running.Done(); stored(); left() }()
	in := &instance{
		id: want.Spec.ID, running: running, site: want.Site, begun: time.Now(), used: time.Now(),
		left: gone, out: make(chan struct{}), ended: make(chan struct{}), fatal: fatal, said: said,
	}
	in.bound(want)
	in.transport = p.transportTo(member{running, p, in}, want)
	probe, cancel := context.WithTimeout(context.WithoutCancel(ctx), want.Health)
	defer cancel()
	for {
		c, err := running.Dial(probe)
		if err == nil {
			_ = c.Close()
			return in, nil
		}
		select {
		case <-running.Done():
			return nil, said.explain(a.ended(running), want.Spec.Dir)
		case <-a.down:
			running.Stop(stopGrace)
			return nil, errClosing
		case <-probe.Done():
			running.Stop(0)
			return nil, fault.New(fault.Invalid, "application_unhealthy",
				fmt.Sprintf("The application does not listen on port %d after %s", runtime.Port, want.Health.Round(time.Second)),
				"it must listen on the port that the variable PORT names, at 127.0.0.1 or all addresses")
		case <-time.After(probeEvery):
		}
	}
}

// maxSpared is how many idle programs sleep at most for one start: what fits on no machine would send all to sleep in vain.
const maxSpared = 3

// startInRoom starts an instance where the machines have room for it: idle programs make some, as in room, unless others of its own
// run, beside which it is to be.
func (a *Apps) startInRoom(ctx context.Context, p *program, want Wanted, beside bool) (runtime.Program, error) {
	for spared := 0; ; spared++ {
		running, err := a.c.Engine.Start(ctx, want.Spec)
		if !errors.Is(err, runtime.ErrNoRoom) {
			return running, err
		}
		var idle *instance
		if !beside && spared < maxSpared {
			idle = a.spareOfMost(p, want.Owner)
		}
		if idle == nil {
			if !beside { // else the log says how many there are, and less often
				a.logs.System(want.Site, p.deployment, "Not started: "+err.Error())
			}
			full := *errFull
			full.Details = err.Error()
			return nil, &full
		}
		select {
		case <-idle.out:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// ended returns why a program ended before it was healthy: where the service stops, it is what ended it.
func (a *Apps) ended(running runtime.Program) error {
	select {
	case <-a.down:
		return errClosing
	default:
		return ended(running.Exit())
	}
}

const (
	codeCrashed = "application_crashed"
	seeLog      = "see its log"
	needsMemory = "raise the site's memory limit, or let the application use less"
)

func ended(e runtime.Exit) error {
	f := fault.New(fault.Invalid, codeCrashed, "The application exited: "+e.Reason, seeLog)
	if e.OutOfMemory {
		f.Details = needsMemory
	}
	return f
}

func reasonOf(err error) string {
	if f := fault.As(err); f != nil {
		return f.Message
	}
	return "The application could not be started"
}

// repeats is how long a program may answer with the same fatal error of PHP.
const repeats = 10 * time.Second

// healthy asks the program until it answers with anything but a server error. One that answers with such an error may only be on its way
// up, so it is asked until its time is over, less and less often; say hears of it meanwhile, once for each answer. A fatal error of PHP
// that is the same for repeats is not waited for any longer: it is in the code.
func (p *program) healthy(ctx context.Context, in *instance, say func(line string)) error {
	p.mu.Lock()
	want := p.want
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, want.Health)
	defer cancel()
	path := cmp.Or(want.HealthPath, "/")
	last := "it does not respond"
	var fatal string
	var since time.Time
	for pause := 50 * time.Millisecond; ; {
		status, err := in.transport.Ask(ctx, want.Host, path)
		switch {
		case err == nil && status < 500:
			in.hasAnswered()
			return nil
		case err == nil:
			pause = min(time.Second, pause*3/2)
			now, _ := in.fatal.Load().(string)
			if now != fatal {
				fatal, since = now, time.Now()
			}
			answers := fmt.Sprintf("answers %s with %d", path, status)
			if fatal != "" {
				answers += ": " + text.Clip(fatal, 300)
			}
			if fatal != "" && time.Since(since) >= repeats {
				return fault.New(fault.Invalid, "application_unhealthy", "The application "+answers,
					"the same error for "+repeats.String()+"; it must answer "+path+" with anything but a server error")
			}
			if now := "it " + answers; now != last {
				last = now
				if say != nil {
					all := want.Health.Round(time.Second)
					say(fmt.Sprintf("The application is not healthy yet: %s. It has %s in all to become healthy.", last, all))
				}
			}
		}
		select {
		case <-in.running.Done():
			return in.said.explain(p.apps.ended(in.running), want.Spec.Dir)
		case <-ctx.Done():
			return fault.New(fault.Invalid, "application_unhealthy",
				fmt.Sprintf("The application is not healthy after %s: %s", want.Health.Round(time.Second), last),
				"it must answer "+path+" with anything but a server error")
		case <-time.After(pause):
		}
	}
}

// share holds a site to so many programs at once that its addresses wake: what it serves is
// always among them, and what drains, because another one has taken its place, isn't counted.
func (a *Apps) share(ctx context.Context, p *program, site id.Site) error {
	a.mu.Lock()
	up := 0
	for _, other := range a.programs {
		if other == p {
			continue
		}
		other.mu.Lock()
		if other.want.Site == site && (other.now != nil || other.starting != nil) && other.drain.IsZero() {
			up++
		}
		other.mu.Unlock()
	}
	a.mu.Unlock()
	if up < perSite {
		return nil
	}
	serves, err := a.read(ctx, []id.Site{site})
	if err != nil {
		return err
	}
	if serves[site].deployment == p.deployment {
		return nil
	}
	return &fault.Error{
		Kind:       fault.Unavailable,
		Message:    fmt.Sprintf("%d deployments of this site are running already", perSite),
		Code:       codeFull,
		RetryAfter: 30 * time.Second,
	}
}

// perSite is how many programs a site's addresses keep awake at once.
const perSite = 10
