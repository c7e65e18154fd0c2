package app

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"slipway/internal/edge/endpoint"
	"slipway/internal/edge/upstream"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/id"
	"slipway/internal/platform/node"
	"slipway/internal/program/placement"
	"slipway/internal/program/relay"
	"slipway/internal/program/transport"
)

// How long it is believed where a site runs, and how long the connections to a program of another node are kept that nobody asks for.
const (
	believed   = time.Second
	remoteIdle = time.Minute
	relayIdle  = 2 * time.Second // of one connection: less than transport.Idle, after which the other end may go
	relayAge   = 3 * time.Second // of one connection: one that is in use holds what a restart is to replace
	relayRetry = 250 * time.Millisecond
)

// remotes are the programs of other nodes that visitors of this one ask for.
type remotes struct {
	mu sync.Mutex // guards at
	// share: total the deployments of other nodes that were asked for in the last minute; owner its own; edge gone a minute after the last request
	at map[id.Deployment]*remote
}

// remote is a program on another node.
type remote struct {
	apps       *Apps
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

// get returns what is known of a deployment's program on another node, and counts a use.
func (r *remotes) get(deployment id.Deployment) *remote {
	r.mu.Lock()
	x := r.at[deployment]
	r.mu.Unlock()
	if x != nil {
		x.used.Store(time.Now().UnixNano())
	}
	return x
}

// put keeps x, and drops what nobody has asked for in a while.
func (r *remotes) put(x *remote) {
	now := time.Now()
	x.used.Store(now.UnixNano())
	r.mu.Lock()
	old := r.at[x.deployment]
	if r.at == nil {
		r.at = map[id.Deployment]*remote{}
	}
	r.at[x.deployment] = x
	var idle []*remote
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
func (r *remotes) drop(x *remote) {
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

func (x *remote) end() {
	close(x.ended)
	x.pool.CloseIdle()
	select {
	case c := <-x.spare:
		c.Close()
	default:
	}
}

// dial takes the connection that reach made, or makes one.
func (x *remote) dial(ctx context.Context) (net.Conn, error) {
	select {
	case c := <-x.spare:
		if upstream.Quiet(c) {
			return c, nil
		}
		c.Close() // its node is gone
	default:
	}
	c, _, err := x.apps.c.Relay.Dial(ctx, x.address, x.deployment)
	if err != nil && ctx.Err() == nil {
		x.apps.remotes.drop(x)
	}
	return c, err
}

// fresh reports whether requests may go there without asking anybody.
func (x *remote) fresh() bool {
	return time.Now().UnixNano()-x.checked.Load() < int64(believed)
}

func (x *remote) endpoint() *endpoint.Endpoint {
	a := x.apps
	return &endpoint.Endpoint{
		Transport: x.http,
		Tasks:     x.tasks,
		Upstream:  x.pool,
		Ended:     x.ended,
		MaxBody:   x.program.MaxBody,
		FirstByte: x.program.FirstByte,
		Release:   func() {},
		Answered: func(status int, bytes int64, took time.Duration) {
			a.figures.Answered(id.Site(x.program.Site), status, bytes, took)
		},
		Failed: func(why string) { a.logs.System(id.Site(x.program.Site), x.deployment, why) },
	}
}

// reach connects to a program of another node, which wakes it where it sleeps.
func (a *Apps) reach(ctx context.Context, address string, deployment id.Deployment) (*remote, error) {
	if x := a.remotes.get(deployment); x != nil && x.address == address {
		x.checked.Store(time.Now().UnixNano())
		return x, nil
	}
	c, p, err := a.c.Relay.Dial(ctx, address, deployment)
	if err != nil {
		return nil, err
	}
	a.states.forget() // it is awake now
	x := &remote{
		apps: a, deployment: deployment, address: address, program: p, ended: make(chan struct{}), spare: make(chan net.Conn, 1),
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
				return a.c.Relay.DialTasks(ctx, x.address, x.deployment)
			},
			DisableKeepAlives:      true,
			DisableCompression:     true,
			MaxResponseHeaderBytes: transport.MaxHead,
		}
	}
	x.pool = upstream.New(upstream.Config{Dial: x.dial, Idle: relayIdle, Age: relayAge})
	x.checked.Store(time.Now().UnixNano())
	a.remotes.put(x)
	// A connection that nobody takes would keep the program awake.
	time.AfterFunc(relayIdle, func() {
		select {
		case c := <-x.spare:
			c.Close()
		default:
		}
	})
	return x, nil
}

// Acquire returns the deployment's program for one request, wherever it runs, and starts it first where it
// sleeps. It waits for WakeTime at most; what it can't wake is an Unavailable fault.
func (a *Apps) Acquire(ctx context.Context, deployment id.Deployment) (*endpoint.Endpoint, error) {
	a.sure(ctx)
	if e, ok := a.awake(deployment); ok {
		return e, nil
	}
	if a.c.Places == nil {
		return a.acquire(ctx, deployment)
	}
	bounded, done := context.WithTimeoutCause(ctx, a.c.WakeTime, errWakeTimeout)
	defer done()
	for {
		e, err := a.acquireAnywhere(bounded, deployment)
		if err == nil || !again(err) {
			return e, err
		}
		select { // its node may be about to die, or to give it away
		case <-time.After(relayRetry):
		case <-bounded.Done():
			return nil, cmp.Or(context.Cause(ctx), error(errWakeTimeout))
		}
	}
}

// again reports whether who asks again may find it otherwise: nothing of a request has been sent.
func again(err error) bool {
	f := fault.As(err)
	return errors.Is(err, relay.ErrUnreached) || f != nil && (f.Code == placement.NodeDraining || f.Code == errClosing.Code)
}

// acquireAnywhere tries once.
func (a *Apps) acquireAnywhere(ctx context.Context, deployment id.Deployment) (*endpoint.Endpoint, error) {
	err := a.look(ctx, deployment)
	var away *placement.Away
	if errors.As(err, &away) {
		return a.acquireAt(ctx, away, deployment)
	}
	if err != nil {
		// The database doesn't answer: what is known goes on.
		if x := a.remotes.get(deployment); x != nil && fault.As(err) == nil {
			return x.endpoint(), nil
		}
		return nil, err
	}
	if a.c.Engine != nil && a.c.Places.Takes() {
		e, err := a.acquire(ctx, deployment)
		if errors.As(err, &away) { // another node was quicker
			return a.acquireAt(ctx, away, deployment)
		}
		return e, err
	}
	// This node runs no programs, or none any more: any other that does will take it.
	all, err := node.List(ctx, a.c.DB)
	if err != nil {
		return nil, err
	}
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	last := error(a.noEngine())
	if a.c.Engine != nil {
		e, err := a.acquire(ctx, deployment)
		if err == nil {
			return e, nil
		}
		last = err
	}
	for _, n := range all {
		if n.ID == a.node || n.State != node.Up || n.Address == "" || !slices.Contains(n.Roles, "worker") || a.c.Relay == nil {
			continue
		}
		x, err := a.reach(ctx, n.Address, deployment)
		if err == nil {
			return x.endpoint(), nil
		}
		if f := fault.As(err); f != nil && f.Code == placement.OnAnotherNode { // this node is about to give it away
			err = relay.ErrUnreached
		}
		last = err
	}
	return nil, last
}

// acquireAt returns the program of a site that another node has.
func (a *Apps) acquireAt(ctx context.Context, away *placement.Away, deployment id.Deployment) (*endpoint.Endpoint, error) {
	if away.State == node.Down || away.Address == "" || a.c.Relay == nil {
		return nil, away
	}
	x, err := a.reach(ctx, away.Address, deployment)
	switch {
	case err == nil:
		return x.endpoint(), nil
	case errors.Is(err, relay.ErrUnreached) && away.Pinned: // nobody else may have it
		return nil, &fault.Error{
			Kind: fault.Unavailable, Code: placement.NodeDown, Message: "The node " + away.Name + ", which has the site's files, doesn't answer",
			RetryAfter: 5 * time.Second,
		}
	case fault.As(err) != nil && fault.As(err).Code == placement.OnAnotherNode: // it has moved this moment
		return nil, relay.ErrUnreached
	}
	return nil, err
}
