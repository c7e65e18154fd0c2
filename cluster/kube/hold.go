package kube

import (
	"context"
	"net"
	"sync"
	"time"

	"slipway/cluster/pod"
	"slipway/internal/platform/id"
)

const (
	// longestHold is how long a program is stopped at most, in case this process fails to release it.
	longestHold = 30 * time.Minute
	// holdPatience limits the attempts to reach a program.
	holdPatience = 20 * time.Second
)

// holds stop the programs of sites.
type holds struct {
	mu sync.Mutex // guards the fields below
	// share: total the sites whose storage is copied or replaced; owner its sites; edge their programs wait
	held map[id.Site]chan struct{} // closed once the site's programs may continue
	// share: total the programs that start; owner those that it may run; edge gone with the start
	starting map[id.Site]int
	started  chan struct{} // closed and replaced when a start has ended
}

func newHolds() *holds {
	return &holds{held: map[id.Site]chan struct{}{}, starting: map[id.Site]int{}, started: make(chan struct{})}
}

// enter waits until a site isn't held, and counts a start of its programs until done is called. waited reports whether
// it waited.
func (h *holds) enter(ctx context.Context, site id.Site) (done func(), waited bool, err error) {
	for ; ; waited = true {
		h.mu.Lock()
		wait := h.held[site]
		if wait == nil {
			h.starting[site]++
			h.mu.Unlock()
			return func() { h.leave(site) }, waited, nil
		}
		h.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, waited, context.Cause(ctx)
		}
	}
}

func (h *holds) leave(site id.Site) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.starting[site]--
	if h.starting[site] == 0 {
		delete(h.starting, site)
	}
	close(h.started)
	h.started = make(chan struct{})
}

// take holds a site exclusively, and returns once none of its programs is starting.
func (h *holds) take(site id.Site) (release func()) {
	done := make(chan struct{})
	h.mu.Lock()
	for h.held[site] != nil { // one hold at a time
		wait := h.held[site]
		h.mu.Unlock()
		<-wait
		h.mu.Lock()
	}
	h.held[site] = done
	for h.starting[site] > 0 {
		wait := h.started
		h.mu.Unlock()
		<-wait
		h.mu.Lock()
	}
	h.mu.Unlock()
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.held, site)
		close(done)
	}
}

// Hold stops all of a site's programs run by this engine, and thereby their writes, until release is called. Programs
// about to start wait. Requests wait rather than fail.
func (e *Engine) Hold(site id.Site) (release func()) {
	free := e.holds.take(site)
	e.mu.Lock()
	var all []*program
	for _, x := range e.programs {
		if x.spec.Site == site && !x.keeper {
			all = append(all, x)
		}
	}
	e.mu.Unlock()
	var stopped []net.Conn
	for _, x := range all {
		if c := x.hold(); c != nil {
			stopped = append(stopped, c)
		}
	}
	return func() {
		for _, c := range stopped {
			c.Close()
		}
		free()
	}
}

// hold stops a program until the returned connection is closed. It returns nil if the program has ended.
func (x *program) hold() net.Conn {
	for late := time.Now().Add(holdPatience); ; {
		ctx, cancel := context.WithTimeout(context.Background(), dialPatience)
		c, reply, err := x.ask(ctx, pod.Hold, longestHold.Milliseconds())
		cancel()
		switch {
		case err == nil && reply == pod.Yes:
			return c
		case err == nil:
			c.Close()
		}
		if time.Now().After(late) {
			x.e.c.Log.Warn("program not stopped: unreachable", "program", x.name, "err", err)
			return nil
		}
		select {
		case <-x.ended:
			return nil
		case <-time.After(10 * retry):
		}
	}
}
