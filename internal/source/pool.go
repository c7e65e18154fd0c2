package source

import (
	"context"
	"slices"
	"sync"
	"time"

	"slipway/internal/fault"
)

// pool bounds how many gits work at once, for all and for each owner, so that neither
// memory nor processes grow with the number of requests. Among those that wait, the first
// whose owner has a place left goes first.
type pool struct {
	mu      sync.Mutex // guards all below
	free    int
	each    int // places of one owner
	queue   int // how many of one owner may wait; 0 means any number
	total   int // how many may wait in all; 0 means any number
	running map[string]int
	waiting []*turn
}

type turn struct {
	owner string
	come  chan struct{}
}

func newPool(places, each, queue, total int) *pool {
	return &pool{free: places, each: each, queue: queue, total: total, running: map[string]int{}}
}

// take waits for a place. It refuses, in words, where too many wait already.
func (p *pool) take(ctx context.Context, owner string) (release func(), err error) {
	p.mu.Lock()
	t := &turn{owner, make(chan struct{})}
	p.waiting = append(p.waiting, t)
	p.next()
	if slices.Contains(p.waiting, t) {
		mine := 0
		for _, w := range p.waiting {
			if w.owner == owner {
				mine++
			}
		}
		switch {
		case p.queue > 0 && mine > p.queue:
			err = &fault.Error{Kind: fault.Limited, Code: "too_many_repositories", Message: "Too many concurrent repository reads",
				Details: "wait until one of them finishes", RetryAfter: 5 * time.Second}
		case p.total > 0 && len(p.waiting) > p.total:
			err = &fault.Error{Kind: fault.Unavailable, Code: "repositories_busy", Message: "Too many repositories are being read at the moment",
				Details: "try again in a few seconds", RetryAfter: 10 * time.Second}
		}
		if err != nil {
			p.leave(t)
			p.mu.Unlock()
			return nil, err
		}
	}
	p.mu.Unlock()
	done := sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.give(owner)
	})
	select {
	case <-t.come:
		return done, nil
	case <-ctx.Done():
		p.mu.Lock()
		defer p.mu.Unlock()
		if slices.Contains(p.waiting, t) {
			p.leave(t)
		} else {
			p.give(owner) // the place came at the same moment
		}
		return nil, context.Cause(ctx)
	}
}

// leave ends a wait. The caller holds mu.
func (p *pool) leave(t *turn) {
	p.waiting = slices.DeleteFunc(p.waiting, func(w *turn) bool { return w == t })
}

// give returns a place. The caller holds mu.
func (p *pool) give(owner string) {
	p.free++
	if p.running[owner]--; p.running[owner] == 0 {
		delete(p.running, owner)
	}
	p.next()
}

// next hands out free places. The caller holds mu.
func (p *pool) next() {
	for p.free > 0 {
		i := slices.IndexFunc(p.waiting, func(t *turn) bool { return p.running[t.owner] < p.each })
		if i < 0 {
			return
		}
		t := p.waiting[i]
		p.leave(t)
		p.free--
		p.running[t.owner]++
		close(t.come)
	}
}
