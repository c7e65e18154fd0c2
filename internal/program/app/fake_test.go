package app

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"slipway/internal/edge/endpoint"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/id"
	"slipway/internal/program/runtime"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/limits"
)

// fakeEngine runs programs that are goroutines. Tests set its behaviour before a start.
type fakeEngine struct {
	mu        sync.Mutex // guards the following fields
	started   []*fakeProgram
	refuse    error         // the error that Start returns
	room      int           // the number of programs that fit at once; 0: any number
	boot      time.Duration // the time until a program listens; below 0: it never does
	status    int           // the status of its answers; 0: 200
	dieIn     time.Duration // a program ends this long after its start; 0: it does not end
	dieDialed bool          // a program ends at the first connection
}

func (e *fakeEngine) Start(ctx context.Context, s runtime.Spec) (runtime.Program, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.refuse != nil {
		return nil, e.refuse
	}
	running := 0
	for _, p := range e.started {
		if p.running() {
			running++
		}
	}
	if e.room > 0 && running >= e.room {
		return nil, fmt.Errorf("%w: 0/3 nodes are available", runtime.ErrNoRoom)
	}
	p := &fakeProgram{spec: s, status: e.status, dieDialed: e.dieDialed, listens: time.Now().Add(e.boot), done: make(chan struct{}), leaves: make(chan struct{})}
	if e.boot < 0 {
		p.listens = time.Now().Add(1000 * time.Hour)
	}
	if e.dieIn > 0 {
		time.AfterFunc(e.dieIn, func() { p.end(runtime.Exit{Code: 1, Reason: "exit code 1"}) })
	}
	e.started = append(e.started, p)
	return p, nil
}

var (
	exitOne     = runtime.Exit{Code: 1, Reason: "exit code 1"}
	outOfMemory = runtime.Exit{Code: 137, Reason: "out of memory", OutOfMemory: true}
)

func (e *fakeEngine) starts() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.started)
}

func (e *fakeEngine) last() *fakeProgram {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.started[len(e.started)-1]
}

type fakeProgram struct {
	spec      runtime.Spec
	dieDialed bool
	listens   time.Time
	done      chan struct{}
	leaves    chan struct{}

	mu     sync.Mutex // guards the following fields
	status int
	hangs  bool // the program answers nothing
	exit   runtime.Exit
	over   bool
	stops  int
	grace  time.Duration // the grace period of the first Stop
	late   bool          // the program is out of memory, but its exit says so only after Stop
}

func (p *fakeProgram) end(x runtime.Exit) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.over {
		p.over, p.exit = true, x
		close(p.done)
	}
}

func (p *fakeProgram) Dial(context.Context) (net.Conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over || time.Now().Before(p.listens) {
		return nil, runtime.ErrNotListening
	}
	ours, theirs := net.Pipe()
	if p.dieDialed {
		p.over, p.exit = true, runtime.Exit{Code: 1, Reason: "exit code 1"}
		close(p.done)
	}
	go p.serve(theirs)
	return ours, nil
}

func (p *fakeProgram) serve(c net.Conn) {
	defer c.Close()
	r := bufio.NewReader(c)
	for {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		p.mu.Lock()
		status, hangs := p.status, p.hangs
		p.mu.Unlock()
		if hangs {
			<-p.done
			return
		}
		if status == 0 {
			status = 200
		}
		resp := http.Response{StatusCode: status, ProtoMajor: 1, ProtoMinor: 1, Request: req}
		if resp.Write(c) != nil {
			return
		}
	}
}

// hang makes the program answer nothing from now on.
func (p *fakeProgram) hang() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hangs = true
}

// answer makes the program answer with another status from now on.
func (p *fakeProgram) answer(status int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status = status
}

func (p *fakeProgram) Stop(grace time.Duration) {
	p.mu.Lock()
	p.stops++
	if p.grace == 0 {
		p.grace = grace
	}
	exit := runtime.Exit{Reason: "signal SIGTERM"}
	if p.late {
		exit = outOfMemory
	}
	p.mu.Unlock()
	p.end(exit)
}

func (p *fakeProgram) Leaves() <-chan struct{} { return p.leaves }

func (p *fakeProgram) Done() <-chan struct{} { return p.done }

func (p *fakeProgram) Exit() runtime.Exit {
	<-p.done // as Stop of a real program does
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.exit
}

func (p *fakeProgram) Usage() runtime.Usage { return runtime.Usage{Memory: 1 << 20} }

func (p *fakeProgram) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// world has Apps on a fakeEngine, and knows which deployment each site serves.
type world struct {
	t      *testing.T
	apps   *Apps
	engine *fakeEngine
	mu     sync.Mutex // guards want
	want   Wanted
	known  map[id.Site]row

	read       int   // the number of attempts to read its settings
	unreadable error // the error of such an attempt; nil: none
}

func newWorld(t *testing.T) *world {
	w := &world{
		t: t, engine: &fakeEngine{}, known: map[id.Site]row{"site": {"site", "one", "live", "", 0, "", 0}},
		want: Wanted{Site: "site", Host: "app.test", Health: time.Minute, Sleep: 15 * time.Minute, Drain: 30 * time.Second},
	}
	w.apps = New(Config{Engine: w.engine, Launch: wants(func(_ context.Context, deployment string) (Wanted, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.read++
		want := w.want
		if w.unreadable != nil {
			return want, w.unreadable
		}
		want.Deployment = id.Deployment(deployment)
		want.Live = w.known[want.Site].deployment == want.Deployment
		return want, nil
	})})
	t.Cleanup(w.apps.close)
	return w
}

// look makes Apps look at its programs once.
func (w *world) look() {
	w.apps.mu.Lock()
	var all []*program
	for _, p := range w.apps.programs {
		all = append(all, p)
	}
	w.apps.mu.Unlock()
	w.apps.moveAll(all, w.known)
}

// pass lets time pass and calls look each second.
func (w *world) pass(d time.Duration) {
	for ; d > 0; d -= time.Second {
		time.Sleep(time.Second)
		w.look()
	}
}

func (w *world) acquire(deployment id.Deployment) *endpoint.Endpoint {
	w.t.Helper()
	e, err := w.apps.Acquire(w.t.Context(), deployment)
	if err != nil {
		w.t.Fatalf("Acquire(%s) = %v", deployment, err)
	}
	return e
}

func (w *world) wantState(deployment id.Deployment, want State) {
	w.t.Helper()
	if got := w.apps.Status(deployment); got.State != want {
		w.t.Errorf("state of %s = %s (%s), want %s", deployment, got.State, got.Message, want)
	}
}

func code(err error) string {
	var f *fault.Error
	if errors.As(err, &f) {
		return f.Code
	}
	return ""
}

// said returns the messages that the service wrote to the site's log.
func (w *world) said() (list []string) {
	for _, e := range w.apps.logs.Waiting() {
		if e.Stream == "system" {
			list = append(list, e.Message)
		}
	}
	return list
}

func (p *fakeProgram) Open(string) (*os.File, bool, error) { return nil, false, os.ErrNotExist }

// wants implements Launch for sites without previews.
type wants func(ctx context.Context, deployment string) (Wanted, error)

func (f wants) Wanted(ctx context.Context, deployment id.Deployment) (Wanted, error) {
	return f(ctx, string(deployment))
}
func (wants) TidyPreviews(context.Context) error { return nil }

// allowance implements the limits of owners.
type allowance struct {
	most   func() int64 // the number of programs that an owner may run
	stores func(ctx context.Context, owner account.OwnerID) (limits.Use, error)
}

func (a allowance) LimitOf(context.Context, db.Reader, account.OwnerID, limits.Name) (int64, error) {
	return a.most(), nil
}

func (a allowance) UseOf(ctx context.Context, _ db.Reader, owner account.OwnerID, _ limits.Name) (limits.Use, error) {
	return a.stores(ctx, owner)
}

// stored returns how much a site stores.
type stored func(site string) int64

func (stored) ForgetStorage(id.Site) error { return nil }

func (stored) StorageSites() ([]id.Site, error) { return []id.Site{"site", "other", "gone"}, nil }

func (f stored) StorageSize(_ context.Context, site id.Site) (int64, error) {
	return f(string(site)), nil
}

func (f stored) StorageDir(site id.Site) (string, bool) { return "", f(string(site)) > 0 }

func (stored) StorageShared() bool { return false }

func (stored) StorageFault() error { return nil }
