package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"slipway/internal/db"
	"slipway/internal/fault"
	"slipway/internal/runtime"
)

// program is the program of one deployment.
type program struct {
	apps       *Apps
	deployment string

	mu       sync.Mutex // guards what follows
	want     Wanted
	now      *instance     // nil while nothing runs
	starting chan struct{} // closed when the start under way has ended; nil when none is
	state    State
	since    time.Time
	message  string
	restarts int
	failures int       // starts and early ends in a row
	retry    time.Time // not before
	refused  error     // of the last start; nil when it came up
	live     bool      // the site serves it, when the loop last looked
	drain    time.Time // when it ends although requests are under way; zero: it does not
}

// instance is one run of a program.
type instance struct {
	running   runtime.Program
	transport *http.Transport
	begun     time.Time

	mu      sync.Mutex // guards what follows
	active  int
	used    time.Time
	stopped bool // by us
}

// How soon a program that ended is started again: at once the first time, then after a
// second, two, four, up to a minute. One that ran for healthyTime counts as new.
const (
	firstRetry  = time.Second
	lastRetry   = time.Minute
	healthyTime = 30 * time.Second
)

// stopGrace is the time a program has to exit by itself when it is put to sleep.
const stopGrace = 10 * time.Second

// probeEvery is how often a program that comes up is asked whether it listens.
const probeEvery = 3 * time.Millisecond

// errCrashed returns the error of requests while a program that crashed waits for its next start.
func errCrashed(why string, after time.Duration) error {
	return &fault.Error{Kind: fault.Unavailable, Message: "The application crashed", Details: why, Code: "application_crashed", RetryAfter: max(time.Second, after)}
}

func (a *Apps) program(deployment string) (*program, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closing {
		return nil, &fault.Error{Kind: fault.Unavailable, Message: "The server is restarting", Code: "draining", RetryAfter: time.Second}
	}
	p := a.programs[deployment]
	if p == nil {
		if len(a.programs) >= a.c.Most {
			return nil, &fault.Error{Kind: fault.Unavailable, Message: "Too many applications are running on this server", Code: "too_many_programs", RetryAfter: 10 * time.Second}
		}
		p = &program{apps: a, deployment: deployment, state: Sleeping, since: time.Now()}
		a.programs[deployment] = p
	}
	return p, nil
}

// Acquire returns the deployment's program for one request, and starts it first where it
// sleeps. It waits for WakeTime at most; what it can't wake is an Unavailable fault.
func (a *Apps) Acquire(ctx context.Context, deployment string) (*Endpoint, error) {
	p, err := a.program(deployment)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, a.c.WakeTime,
		&fault.Error{Kind: fault.Unavailable, Message: "The application did not start in time", Code: "wake_timeout", RetryAfter: 5 * time.Second})
	defer cancel()
	for {
		in, wait, err := p.take(false)
		switch {
		case err != nil:
			return nil, err
		case in != nil:
			return in.endpoint(), nil
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Start brings the deployment's program up and returns once it has shown that it is
// healthy, or with a fault that says why it is not. Until release is called it does not
// go to sleep.
func (a *Apps) Start(ctx context.Context, deployment string) (release func(), err error) {
	p, err := a.program(deployment)
	if err != nil {
		return nil, err
	}
	for {
		in, wait, err := p.take(true)
		if err != nil {
			return nil, err
		}
		if in != nil {
			if err := p.healthy(ctx, in); err != nil {
				in.release()
				return nil, err
			}
			return in.release, nil
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		p.mu.Lock()
		err, down := p.refused, p.now == nil
		p.mu.Unlock()
		if down && err != nil {
			return nil, err
		}
	}
}

// take returns the instance that runs, held, or a channel that is closed when the start
// under way has ended, beginning one where none is. now does not wait for a back-off.
func (p *program) take(now bool) (*instance, <-chan struct{}, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.now != nil {
		p.now.hold()
		return p.now, nil, nil
	}
	if p.starting != nil {
		return nil, p.starting, nil
	}
	if wait := time.Until(p.retry); wait > 0 && !now {
		return nil, nil, errCrashed(p.message, wait)
	}
	p.starting = make(chan struct{})
	p.set(Starting, "")
	go p.start(p.starting)
	return nil, p.starting, nil
}

func (p *program) set(s State, message string) {
	p.state, p.since, p.message = s, time.Now(), message
}

// start runs the program and waits until it listens, then closes done.
func (p *program) start(done chan struct{}) {
	a := p.apps
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute) // no request's own: others wait for it too
	defer cancel()
	in, want, err := p.launch(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	defer close(done)
	p.starting, p.refused = nil, err
	if err != nil {
		a.c.Log.WarnContext(ctx, "application not started", "deployment", p.deployment, "err", err)
		p.failed(reasonOf(err))
		return
	}
	p.want, p.now = want, in
	p.set(Running, "")
	go p.watch(in)
}

// failed notes a start that failed or a program that ended by itself; mu is held.
func (p *program) failed(why string) {
	p.failures++
	p.retry = time.Now().Add(min(lastRetry, firstRetry<<min(p.failures-1, 6)))
	p.set(Crashed, why)
	p.apps.logs.system(p.want.Site, p.deployment, why)
}

// launch starts the program and returns once it listens.
func (p *program) launch(ctx context.Context) (*instance, Wanted, error) {
	a := p.apps
	want, err := a.c.Wanted(ctx, p.deployment)
	if err != nil {
		return nil, want, err
	}
	p.mu.Lock()
	p.want = want
	p.mu.Unlock()
	if a.c.Engine == nil {
		return nil, want, &fault.Error{Kind: fault.Unavailable, Message: "Applications can't run on this server", Details: a.c.Why, Code: "no_runtime"}
	}
	want.Spec.ID = db.NewID("run")
	want.Spec.Output = func(stream, line string) { a.logs.add(want.Site, p.deployment, stream, line) }
	running, err := a.c.Engine.Start(ctx, want.Spec)
	if err != nil {
		return nil, want, err
	}
	in := &instance{running: running, begun: time.Now(), used: time.Now()}
	in.transport = &http.Transport{
		DialContext:         func(ctx context.Context, _, _ string) (net.Conn, error) { return running.Dial(ctx) },
		MaxIdleConns:        256,
		MaxIdleConnsPerHost: 256,
		IdleConnTimeout:     30 * time.Second,
		DisableCompression:  true,
		Proxy:               nil,
	}
	until := time.Now().Add(want.Health)
	for {
		c, err := running.Dial(ctx)
		if err == nil {
			_ = c.Close()
			return in, want, nil
		}
		select {
		case <-running.Done():
			return nil, want, ended(running.Exit())
		case <-ctx.Done():
		case <-time.After(probeEvery):
		}
		if ctx.Err() != nil || time.Now().After(until) {
			running.Stop(0)
			return nil, want, &fault.Error{Kind: fault.Invalid, Code: "application_unhealthy",
				Message: fmt.Sprintf("The application does not listen on port %d after %s", runtime.Port, want.Health.Round(time.Second)),
				Details: "it must listen on the port that the variable PORT names, at 127.0.0.1 or all addresses"}
		}
	}
}

func ended(e runtime.Exit) error {
	f := &fault.Error{Kind: fault.Invalid, Message: "The application exited: " + e.Reason, Code: "application_crashed", Details: "its log says why"}
	if e.OutOfMemory {
		f.Details = "raise the site's memory limit, or let the application use less"
	}
	return f
}

func reasonOf(err error) string {
	if f := fault.As(err); f != nil {
		return f.Message
	}
	return "The application could not be started"
}

// healthy asks the program until it answers with anything but a server error.
func (p *program) healthy(ctx context.Context, in *instance) error {
	p.mu.Lock()
	want := p.want
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, want.Health)
	defer cancel()
	path := want.HealthPath
	if path == "" {
		path = "/"
	}
	last := "it does not answer"
	for {
		status, err := in.ask(ctx, want.Host, path)
		switch {
		case err == nil && status < 500:
			return nil
		case err == nil:
			last = fmt.Sprintf("it answers %s with %d", path, status)
		}
		select {
		case <-in.running.Done():
			return ended(in.running.Exit())
		case <-ctx.Done():
			return &fault.Error{Kind: fault.Invalid, Code: "application_unhealthy",
				Message: fmt.Sprintf("The application is not healthy after %s: %s", want.Health.Round(time.Second), last),
				Details: "it must answer " + path + " with anything but a server error"}
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (in *instance) ask(ctx context.Context, host, path string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+host+path, nil)
	if err != nil {
		return 0, err
	}
	req.Header.Set("User-Agent", "Slipway-Health/1")
	req.Header.Set("X-Forwarded-Proto", "https")
	resp, err := in.transport.RoundTrip(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10)
	return resp.StatusCode, nil
}

// watch notices the end of an instance.
func (p *program) watch(in *instance) {
	<-in.running.Done()
	in.transport.CloseIdleConnections()
	in.mu.Lock()
	stopped := in.stopped
	in.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.now == in {
		p.now = nil
	}
	if stopped {
		return
	}
	p.restarts++
	if time.Since(in.begun) > healthyTime {
		p.failures = 0
	}
	p.failed(reasonOf(ended(in.running.Exit())))
	if p.failures == 1 {
		p.retry = time.Now() // once at once: it may have been one bad request
	}
}

// hold counts a request in, release counts it out.
func (in *instance) hold() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.active++
}

func (in *instance) release() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.active--
	in.used = time.Now()
}

func (in *instance) endpoint() *Endpoint {
	return &Endpoint{Transport: in.transport, Ended: in.running.Done(), Release: sync.OnceFunc(in.release)}
}

// stop ends the instance that runs, if it is in and still idle where it must be.
func (p *program) stop(in *instance, evenBusy bool, to State) bool {
	p.mu.Lock()
	if p.now != in || in == nil {
		p.mu.Unlock()
		return false
	}
	in.mu.Lock()
	if in.active > 0 && !evenBusy {
		in.mu.Unlock()
		p.mu.Unlock()
		return false
	}
	in.stopped = true
	in.mu.Unlock()
	p.now = nil
	p.set(to, "")
	p.failures, p.retry, p.drain = 0, time.Time{}, time.Time{}
	p.mu.Unlock()
	in.running.Stop(stopGrace)
	return true
}

func (p *program) status() Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := Process{State: p.state, Since: p.since, Deployment: p.deployment, Restarts: p.restarts, Message: p.message}
	if p.now != nil {
		u := p.now.running.Usage()
		s.Memory, s.CPU = u.Memory, u.CPU
	}
	return s
}

// Restart starts the deployment's program anew beside the one that runs, and lets it take
// its place once it is healthy: nobody waits and no request is dropped. Where none runs it
// does nothing, since the next start is new anyway.
func (a *Apps) Restart(ctx context.Context, deployment string) error {
	a.mu.Lock()
	p := a.programs[deployment]
	a.mu.Unlock()
	if p == nil {
		return nil
	}
	p.mu.Lock()
	old := p.now
	p.mu.Unlock()
	if old == nil {
		return nil
	}
	in, want, err := p.launch(ctx)
	if err != nil {
		return err
	}
	if err := p.healthy(ctx, in); err != nil {
		in.running.Stop(0)
		return err
	}
	p.mu.Lock()
	if p.now != old { // it ended or was stopped meanwhile
		p.mu.Unlock()
		in.running.Stop(stopGrace)
		return errors.New("the application was stopped meanwhile")
	}
	p.want, p.now = want, in
	p.restarts++
	p.set(Running, "")
	p.mu.Unlock()
	go p.watch(in)
	go a.retire(old, want.Drain)
	return nil
}

// retire ends an instance that serves no new requests, once those under way have ended.
func (a *Apps) retire(in *instance, drain time.Duration) {
	in.mu.Lock()
	in.stopped = true
	in.mu.Unlock()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for until := time.Now().Add(drain); time.Now().Before(until); {
		in.mu.Lock()
		idle := in.active == 0
		in.mu.Unlock()
		if idle {
			break
		}
		<-tick.C
	}
	in.running.Stop(stopGrace)
}
