package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"slipway/internal/edge/endpoint"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/id"
	"slipway/internal/platform/panics"
	"slipway/internal/program/figures"
	"slipway/internal/program/runtime"
	"slipway/internal/program/scale"
	"slipway/internal/program/transport"
)

// program is the program of one deployment.
type program struct {
	apps       *Apps
	deployment id.Deployment

	mu       sync.Mutex // guards what follows
	want     Wanted
	now      *instance   // nil while nothing runs
	more     []*instance // run beside now, where the site's settings allow several
	run      int         // which start now and more are of: they have the same files and variables
	scale    scale.Scale
	growing  bool      // another one is being started beside them
	stayed   time.Time // when the log last said why there are no more
	starting *attempt  // nil when no start is under way
	state    State
	since    time.Time
	message  string
	restarts int
	failures int               // starts and early ends in a row
	retry    time.Time         // not before
	full     error             // why the last start found no room, where it did not
	gone     bool              // no longer in programs: whoever holds it asks for the deployment again
	live     bool              // the site serves it, when the loop last looked
	away     bool              // another node has its site: now gets no new requests
	stale    bool              // now was started with other settings than want would be
	settling bool              // changed settings are being read
	updated  db.Time           // of the site, when they last were
	written  []runtime.Written // see Process
	renewed  time.Time         // when it was last started anew because of its revision
	// unread and unrenewed are the pauses after settings couldn't be read, or it couldn't be started anew with them.
	unread, unrenewed pause
	drain             time.Time // when it ends although requests are under way; zero: it does not

	restart chan struct{} // holds one while a Restart is under way
}

// attempt is one start, which everybody who asks meanwhile waits for.
type attempt struct {
	done  chan struct{} // closed when it has ended
	err   error         // why it failed; to be read once done is closed
	quiet bool          // no start: the site's requests wait, see Quiet
}

// instance is one run of a program.
type instance struct {
	id        string // of its run
	running   runtime.Program
	transport transport.Transport
	site      id.Site
	begun     time.Time
	maxBody   atomic.Int64    // bytes
	firstByte atomic.Int64    // nanoseconds
	left      <-chan struct{} // closed when it no longer counts to its owner's
	fatal     *atomic.Value   // the last fatal error of PHP that it printed, as a string
	said      *recent         // what it printed before it was healthy
	answered  atomic.Bool     // it has answered
	hung      atomic.Value    // why it was ended although it ran, as a string
	out       chan struct{}   // closed when it no longer counts to all that run
	ended     chan struct{}   // closed when it has ended and no request gets it any more

	once sync.Once // closes ended

	mu     sync.Mutex // guards what follows
	active int
	used   time.Time
	told   time.Time // when the log last said why a request got no answer
	failed time.Time // when a request last got none
}

// How soon a program that ended is started again: at once the first time, then after a
// second, two, four, up to a minute. One that ran for healthyTime counts as new.
const (
	firstRetry  = time.Second
	lastRetry   = time.Minute
	healthyTime = 30 * time.Second
	crashLoop   = 3 // ends in a row that are called so
	// displacedTime is how long a program has run whose end by its machine is no crash: one that none keeps is tried less and less often.
	displacedTime = 5 * time.Second
)

// stopGrace is the time a program has to exit by itself when it is put to sleep.
const stopGrace = 10 * time.Second

// probeEvery is how often a program that comes up is asked whether it listens.
const probeEvery = 3 * time.Millisecond

// errCrashed returns the error of requests while a program that crashed waits for its next start.
func errCrashed(why string, after time.Duration) error {
	return &fault.Error{
		Kind: fault.Unavailable, Message: "The application crashed", Details: why, Code: "application_crashed",
		RetryAfter: max(time.Second, after),
	}
}

// program returns a deployment's program, which may have gone again before it is locked.
func (a *Apps) program(deployment id.Deployment) (*program, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closing {
		return nil, errClosing
	}
	p := a.programs[deployment]
	if p == nil {
		p = &program{apps: a, deployment: deployment, state: Sleeping, since: time.Now(), restart: make(chan struct{}, 1)}
		a.programs[deployment] = p
	}
	return p, nil
}

// all returns the programs that are known now, in no order.
func (a *Apps) all() []*program {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Collect(maps.Values(a.programs))
}

// errWakeTimeout is the answer to a request that has waited long enough.
var errWakeTimeout = &fault.Error{
	Kind: fault.Unavailable, Message: "The application did not start in time", Code: "wake_timeout", RetryAfter: 5 * time.Second,
}

// acquire returns the deployment's program for one request, on this node.
func (a *Apps) acquire(ctx context.Context, deployment id.Deployment) (*endpoint.Endpoint, error) {
	p, in, err := a.held(ctx, deployment)
	if err != nil {
		return nil, err
	}
	return p.endpoint(in), nil
}

// held returns the instance of a deployment on this node, held for one request, and starts it first where it sleeps.
func (a *Apps) held(ctx context.Context, deployment id.Deployment) (*program, *instance, error) {
	late := time.NewTimer(a.c.WakeTime)
	defer late.Stop()
	for {
		p, err := a.program(deployment)
		if err != nil {
			return nil, nil, err
		}
		in, try, err := p.take(false)
		switch {
		case err != nil:
			return nil, nil, err
		case in != nil:
			return p, in, nil
		case try == nil: // forgotten this moment
			continue
		}
		if try.quiet { // this wait is not the program's
			select {
			case <-try.done:
				late.Reset(a.c.WakeTime)
				continue
			case <-time.After(quietTime):
				return nil, nil, errWakeTimeout
			case <-a.down:
				return nil, nil, errClosing
			case <-ctx.Done():
				return nil, nil, context.Cause(ctx)
			}
		}
		select {
		case <-try.done:
			if isElsewhere(try.err) {
				return nil, nil, try.err
			}
		case <-late.C:
			return nil, nil, errWakeTimeout
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		}
	}
}

// Awake returns the deployment's program for one request if it runs, without waiting for anything.
func (a *Apps) Awake(deployment id.Deployment) (*endpoint.Endpoint, bool) {
	if !a.c.Places.Sure(a.compared.Load()) {
		return nil, false
	}
	if e, ok := a.awake(deployment); ok {
		return e, true
	}
	if a.c.Relay == nil {
		return nil, false
	}
	if x := a.remotes.Get(deployment); x != nil && x.Fresh() {
		return x.Endpoint(), true
	}
	return nil, false
}

func (a *Apps) awake(deployment id.Deployment) (*endpoint.Endpoint, bool) {
	a.mu.Lock()
	p, closing := a.programs[deployment], a.closing
	a.mu.Unlock()
	if p == nil || closing {
		return nil, false
	}
	p.mu.Lock()
	in := p.now
	if in == nil || p.gone || p.away || a.missesStorage(p.want.Spec) != nil {
		p.mu.Unlock()
		return nil, false
	}
	if a.quiet.of(p.want.Site) != nil {
		p.mu.Unlock()
		return nil, false
	}
	in = p.pick()
	p.mu.Unlock()
	return p.endpoint(in), true
}

// Start brings the deployment's program up and returns once it has shown that it is healthy, or with a fault that says why it is not,
// after one start. Until release is called it does not go to sleep.
//
// say hears of what keeps it from being healthy, as long as that may pass. Optional.
func (a *Apps) Start(ctx context.Context, deployment id.Deployment, say func(line string)) (release func(), err error) {
	for tried := false; ; {
		p, err := a.program(deployment)
		if err != nil {
			return nil, err
		}
		if tried {
			p.mu.Lock()
			down, why := p.now == nil && p.starting == nil, p.message
			p.mu.Unlock()
			if down {
				return nil, fault.New(fault.Invalid, "application_crashed", cmp.Or(why, "The application ended"), seeLog)
			}
		}
		in, try, err := p.take(true)
		if err != nil {
			return nil, err
		}
		if in != nil {
			if err := p.healthy(ctx, in, say); err != nil {
				in.release()
				p.unhealthy(in)
				return nil, err
			}
			in.transport.Warm(ctx)
			p.raise(ctx, a.serving(in.site))
			return sync.OnceFunc(in.release), nil
		}
		if try == nil { // forgotten this moment
			continue
		}
		select {
		case <-try.done:
			if try.err != nil {
				return nil, try.err
			}
			tried = !try.quiet
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// unhealthy ends a program that does not answer well, unless visitors have it already.
func (p *program) unhealthy(in *instance) {
	p.mu.Lock()
	live := p.live
	p.mu.Unlock()
	if !live {
		p.stop(in, false, Sleeping)
	}
}

// take returns the instance that runs, held, or the start under way, beginning one where
// none is; neither where the program is gone. now does not wait for a back-off.
func (p *program) take(now bool) (*instance, *attempt, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone {
		return nil, nil, nil
	}
	if wait := p.apps.quiet.of(p.want.Site); wait != nil && p.starting == nil {
		return nil, &attempt{done: wait, quiet: true}, nil
	}
	if p.now != nil && p.away {
		return nil, nil, errElsewhere
	}
	if p.now != nil {
		if err := p.apps.missesStorage(p.want.Spec); err != nil {
			return nil, nil, err
		}
		return p.pick(), nil, nil
	}
	if p.starting != nil {
		return nil, p.starting, nil
	}
	if wait := time.Until(p.retry); wait > 0 && !now {
		if p.full != nil {
			return nil, nil, p.full
		}
		return nil, nil, errCrashed(p.message, wait)
	}
	p.starting, p.drain = &attempt{done: make(chan struct{})}, time.Time{}
	p.set(Starting, "")
	try := p.starting
	p.apps.work.Go(func() { p.start(try, now) })
	return nil, try, nil
}

func (p *program) set(s State, message string) {
	p.state, p.since, p.message = s, time.Now(), message
}

// start runs the program and waits until it listens.
func (p *program) start(try *attempt, now bool) {
	a := p.apps
	var in *instance
	var want Wanted
	err := panics.Call(func() (err error) {
		in, want, err = p.launch(context.Background(), now) // no request's own: others wait for it too
		return err
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	defer close(try.done)
	p.starting, try.err, p.full = nil, err, nil
	if err != nil {
		if isElsewhere(err) || errors.Is(err, errClosing) { // nothing is wrong with it, and the next one who asks may find it otherwise
			p.set(Sleeping, "")
			return
		}
		a.c.Log.Warn("application not started", "site", want.Site, "deployment", p.deployment, "err", err)
		if isFull(err) { // nothing is wrong with it
			p.full, p.retry = err, time.Now().Add(firstRetry)
			p.set(Sleeping, "")
			return
		}
		why := reasonOf(err)
		if f := fault.As(err); f != nil && f.Code == codeCrashed && f.Details != seeLog && f.Details != needsMemory {
			why += ": " + f.Details
		}
		p.failed(why)
		p.tellEnd(p.message, false)
		return
	}
	p.want, p.now, p.more, p.stale, p.away = want, in, nil, false, false
	p.run++
	if !p.drain.IsZero() { // another took its place meanwhile: what waited for it is answered first
		p.drain = time.Now().Add(want.Drain)
	}
	p.set(Running, "")
	if !now {
		a.figures.Note(want.Site, func(f *figures.Figures) { f.Wakes++ })
	}
	panics.Go(func() { p.watch(in) })
	p.fit(time.Now(), 0)
}

// failed notes a start that failed or a program that ended by itself; mu is held.
func (p *program) failed(why string) {
	p.failures++
	wait := p.backoff()
	p.retry = time.Now().Add(wait)
	p.scale.Hold(p.retry.Add(wait)) // one at a time until it runs again
	if p.failures >= crashLoop {
		why = fmt.Sprintf("%s, %d times in a row", why, p.failures)
	}
	p.set(Crashed, why)
	if p.failures >= crashLoop {
		why = fmt.Sprintf("%s; the next attempt is in %s at the earliest", why, wait)
	}
	p.apps.logs.System(p.want.Site, p.deployment, why)
}

// backoff returns how long is waited after so many failures.
func (p *program) backoff() time.Duration { return min(lastRetry, firstRetry<<min(p.failures-1, 6)) }

// tellEnd has people told of a program that ended by itself: of the first time that it needed more memory
// than it has, and once of a crash loop. mu is held.
func (p *program) tellEnd(why string, memory bool) {
	a, site, failures := p.apps, p.want.Site, p.failures
	if memory && failures == 1 {
		a.work.Go(func() { a.alerts.OutOfMemory(context.Background(), site, p.deployment) })
	}
	if failures == crashLoop {
		a.work.Go(func() { a.alerts.Crashed(context.Background(), site, p.deployment, failures, why) })
	}
}

// watch notices the end of an instance.
func (p *program) watch(in *instance) {
	defer in.end()
	panics.Go(func() { p.keepAlive(in) })
	if l, ok := in.running.(runtime.Leaver); ok {
		select {
		case <-l.Leaves():
			p.apps.work.Go(func() { p.vacate(in) })
		case <-in.running.Done():
		}
	}
	<-in.running.Done()
	in.transport.CloseIdleConnections()
	<-in.left // who waits for its place is let in by the owner's count next, and would end another
	p.apps.up.Add(-1)
	close(in.out)
	p.mu.Lock()
	defer p.mu.Unlock()
	exit := in.running.Exit()
	why := reasonOf(ended(exit))
	if hung, _ := in.hung.Load().(string); hung != "" {
		why = hung
	}
	if p.lost(in, why, exit.OutOfMemory) { // others go on
		return
	}
	if p.now != in { // it was stopped by us, or replaced; a cluster tells late of one that was out of memory before
		if exit.OutOfMemory {
			p.apps.logs.System(in.site, p.deployment, why)
			p.apps.work.Go(func() { p.apps.alerts.OutOfMemory(context.Background(), in.site, p.deployment) })
		}
		return
	}
	p.now = nil
	p.restarts++
	p.apps.figures.Note(in.site, func(f *figures.Figures) { f.Restarts++ })
	if exit.Displaced && time.Since(in.begun) > displacedTime {
		p.set(Sleeping, "")
		p.apps.logs.System(p.want.Site, p.deployment, why)
		return
	}
	if time.Since(in.begun) > healthyTime {
		p.failures = 0
	}
	p.failed(why)
	p.tellEnd(p.message, exit.OutOfMemory)
	if p.failures == 1 {
		p.retry = time.Now() // once at once: it may have been one bad request
	}
}

// hasAnswered notes that the program answers.
func (in *instance) hasAnswered() {
	if !in.answered.Swap(true) {
		in.said.end()
	}
}

// end says that no request gets it any more.
func (in *instance) end() { in.once.Do(func() { close(in.ended) }) }

// hold counts a request in, release counts it out.
func (in *instance) hold() {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.active == 0 {
		in.used = time.Now() // the time without requests is no waiting
	}
	in.active++
}

func (in *instance) release() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.active--
	in.used = time.Now()
}

func (in *instance) busy() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.active > 0
}

func (p *program) endpoint(in *instance) *endpoint.Endpoint {
	e := &endpoint.Endpoint{
		Transport: in.transport,
		Upstream:  in.transport.Upstream,
		Tasks:     in.transport.Tasks,
		Ended:     in.ended,
		MaxBody:   in.maxBody.Load(),
		FirstByte: time.Duration(in.firstByte.Load()),
		Release:   sync.OnceFunc(in.release),
		Answered: func(status int, bytes int64, took time.Duration) {
			in.hasAnswered()
			p.apps.figures.Answered(in.site, status, bytes, took)
		},
		Failed: func(why string) { p.unanswered(in, why) },
	}
	if files := in.transport.Files; files != nil {
		e.Serve = files.Serve
	}
	return e
}

// failedEvery is how often the log of a site says why a request got no answer.
const failedEvery = time.Second

// unanswered notes why a request got no answer.
func (p *program) unanswered(in *instance, why string) {
	in.mu.Lock()
	in.failed = time.Now()
	due := time.Since(in.told) >= failedEvery
	if due {
		in.told = time.Now()
	}
	in.mu.Unlock()
	if due {
		p.apps.logs.System(in.site, p.deployment, why)
	}
}

// stop ends what runs, if in is the first of it and all of it is still idle where it must be. One that runs beside the first ends
// alone. It does not wait for the end: the next start need not.
func (p *program) stop(in *instance, evenBusy bool, to State) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.more, in); i >= 0 {
		return p.dropBeside(i, evenBusy)
	}
	if p.now != in || in == nil {
		return false
	}
	if busy, _ := p.load(); busy > 0 && !evenBusy {
		return false
	}
	for x := range p.each {
		p.apps.work.Go(func() { x.running.Stop(stopGrace) })
	}
	p.now, p.more = nil, nil
	p.set(to, "")
	p.failures, p.retry, p.drain = 0, time.Time{}, time.Time{}
	return true
}

// end stops all that runs, even busy.
func (p *program) end() {
	for in := p.first(); in != nil && !p.stop(in, true, Sleeping); in = p.first() {
	}
}

func (p *program) status() Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := Process{State: p.state, Since: p.since, Deployment: p.deployment, Restarts: p.restarts, Message: p.message}
	s.Written = slices.Clone(p.written)
	for in := range p.each {
		u := in.running.Usage()
		s.Memory, s.CPU, s.NeedsRestart = s.Memory+u.Memory, s.CPU+u.CPU, p.stale
		s.Instances++
	}
	return s
}

// transportTo returns the way of requests to what was started.
func (p *program) transportTo(running runtime.Program, want Wanted) transport.Transport {
	return transport.New(transport.Config{
		Program: running, Site: want.Site, Owner: want.Owner, PHP: want.PHP, Dir: want.Spec.Dir, Copies: p.apps.copies, Log: p.apps.c.Log,
		Workers: want.Spec.Workers(), Spool: p.apps.c.Spool, Notes: notes{p, want.Site},
	})
}

// notes is a site's log, for what serves it.
type notes struct {
	p    *program
	site id.Site
}

// Say writes a line.
func (n notes) Say(line string) { n.p.apps.logs.System(n.site, n.p.deployment, line) }
