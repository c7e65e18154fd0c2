// Package remote owns the programs of other nodes that visitors of this one ask for: the connections to them, and how long it is
// believed where they run.
package remote

import (
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"slipway/internal/edge/endpoint"
	"slipway/internal/edge/upstream"
	"slipway/internal/platform/id"
	"slipway/internal/program/applog"
	"slipway/internal/program/figures"
	"slipway/internal/program/relay"
	"slipway/internal/program/transport"
)

// How long it is believed where a site runs, and how long the connections to a program of another node are kept that nobody asks for.
const (
	believed   = time.Second
	remoteIdle = time.Minute
	relayIdle  = 2 * time.Second // of one connection: less than transport.Idle, after which the other end may go
	relayAge   = 3 * time.Second // of one connection: one that is in use holds what a restart is to replace
)

// Programs are those of other nodes that visitors of this one ask for. They are safe for concurrent use.
type Programs struct {
	relay   *relay.Dialer // nil reaches none
	figures *figures.Counter
	logs    *applog.Logs

	mu sync.Mutex // guards at
	// share: total the deployments of other nodes that were asked for in the last minute; owner its own; edge gone a minute after the last request
	at map[id.Deployment]*Program
}

// New returns Programs that d reaches; the figures and the log of a site hear of its requests.
func New(d *relay.Dialer, f *figures.Counter, l *applog.Logs) *Programs {
	return &Programs{relay: d, figures: f, logs: l, at: map[id.Deployment]*Program{}}
}

// Program is one on another node.
type Program struct {
	of         *Programs
	deployment id.Deployment
	address    string
	program    relay.Program
	http       *http.Transport
	tasks      http.RoundTripper // nil: it has none
	pool       *upstream.Pool
	ended      chan struct{} // closed when it gets no requests any more

	checked atomic.Int64 // when its node was last looked up, in nanoseconds since 1970
	used    atomic.Int64 // when it was last asked for
	spare   chan net.Conn
}

// Get returns what is known of a deployment's program on another node, and counts a use.
func (r *Programs) Get(deployment id.Deployment) *Program {
	r.mu.Lock()
	x := r.at[deployment]
	r.mu.Unlock()
	if x != nil {
		x.used.Store(time.Now().UnixNano())
	}
	return x
}

// put keeps x, and drops what nobody has asked for in a while.
func (r *Programs) put(x *Program) {
	now := time.Now()
	x.used.Store(now.UnixNano())
	r.mu.Lock()
	old := r.at[x.deployment]
	r.at[x.deployment] = x
	var idle []*Program
	for key, other := range r.at {
		if now.UnixNano()-other.used.Load() > int64(remoteIdle) {
			delete(r.at, key)
			idle = append(idle, other)
		}
	}
	r.mu.Unlock()
	for _, other := range idle {
		other.end()
	}
	if old != nil {
		old.end()
	}
}

// drop forgets x: its node has not answered, or has it no longer.
func (r *Programs) drop(x *Program) {
	r.mu.Lock()
	mine := r.at[x.deployment] == x
	if mine {
		delete(r.at, x.deployment)
	}
	r.mu.Unlock()
	if mine {
		x.end()
	}
}

func (x *Program) end() {
	close(x.ended)
	x.pool.CloseIdle()
	select {
	case c := <-x.spare:
		c.Close()
	default:
	}
}

// dial takes the connection that reach made, or makes one.
func (x *Program) dial(ctx context.Context) (net.Conn, error) {
	select {
	case c := <-x.spare:
		if upstream.Quiet(c) {
			return c, nil
		}
		c.Close() // its node is gone
	default:
	}
	c, _, err := x.of.relay.Dial(ctx, x.address, x.deployment)
	if err != nil && ctx.Err() == nil {
		x.of.drop(x)
	}
	return c, err
}

// Fresh reports whether requests may go there without asking anybody.
func (x *Program) Fresh() bool {
	return time.Now().UnixNano()-x.checked.Load() < int64(believed)
}

// Endpoint is the program for one request.
func (x *Program) Endpoint() *endpoint.Endpoint {
	r := x.of
	return &endpoint.Endpoint{
		Transport: x.http,
		Tasks:     x.tasks,
		Upstream:  x.pool,
		Ended:     x.ended,
		MaxBody:   x.program.MaxBody,
		FirstByte: x.program.FirstByte,
		Release:   func() {},
		Answered: func(status int, bytes int64, took time.Duration) {
			r.figures.Answered(id.Site(x.program.Site), status, bytes, took)
		},
		Failed: func(why string) { r.logs.System(id.Site(x.program.Site), x.deployment, why) },
	}
}

// Reach connects to a program of another node, which wakes it where it sleeps; woke says that this may just have happened.
func (r *Programs) Reach(ctx context.Context, address string, deployment id.Deployment) (x *Program, woke bool, err error) {
	if x := r.Get(deployment); x != nil && x.address == address {
		x.checked.Store(time.Now().UnixNano())
		return x, false, nil
	}
	c, p, err := r.relay.Dial(ctx, address, deployment)
	if err != nil {
		return nil, false, err
	}
	x = &Program{
		of: r, deployment: deployment, address: address, program: p, ended: make(chan struct{}), spare: make(chan net.Conn, 1),
	}
	x.spare <- c
	x.http = &http.Transport{
		DialContext:            func(ctx context.Context, _, _ string) (net.Conn, error) { return x.dial(ctx) },
		DisableKeepAlives:      true, // for what is unusual, such as a change of protocol
		DisableCompression:     true,
		MaxResponseHeaderBytes: transport.MaxHead,
	}
	if p.Tasks {
		x.tasks = &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return r.relay.DialTasks(ctx, x.address, x.deployment)
			},
			DisableKeepAlives:      true,
			DisableCompression:     true,
			MaxResponseHeaderBytes: transport.MaxHead,
		}
	}
	x.pool = upstream.New(upstream.Config{Dial: x.dial, Idle: relayIdle, Age: relayAge})
	x.checked.Store(time.Now().UnixNano())
	r.put(x)
	// A connection that nobody takes would keep the program awake.
	time.AfterFunc(relayIdle, func() {
		select {
		case c := <-x.spare:
			c.Close()
		default:
		}
	})
	return x, true, nil
}
