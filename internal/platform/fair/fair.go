// Package fair owns fair sharing: how a limited resource is divided between tenants.
//
// A Pool hands out places. Its total limits what the process uses, and limits per owner,
// site and visitor keep one of them from taking everything. Waiting requests are served in
// turn: first the owner with the fewest places, within it the site, within it the visitor. The
// package knows neither users nor SQL, and never starts a goroutine.
package fair

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
)

// Who identifies whom a place is counted for. Empty levels are counted together.
type Who struct {
	Owner   string // who pays for the site
	Site    string
	Visitor string // the client's network: an IPv4 address or an IPv6 /64
}

// Config holds the limits of a Pool. If places have weights (bytes, files), limits apply to the sum of weights, except
// those of waiting requests.
type Config struct {
	Places  int // held at once in total
	Owner   int // held by one owner. Optional: 0 means Places.
	Site    int // held by one site. Optional: 0 means Owner.
	Visitor int // held by one visitor of a site. Optional: 0 means Site.

	Waiting      int // requests that may wait in total. Optional: 0 means any number.
	OwnerWaiting int // waiting requests of one owner. Optional: 0 means any number.

	// Own makes the empty owner the service itself: limits per owner, site and visitor don't apply to it, and it gets
	// every second turn.
	Own bool
}

// ErrFull is returned if too many requests wait, or if a weight exceeds a limit.
var ErrFull = errors.New("all places are taken")

// ErrOwnerFull is returned if too many requests of one owner wait. It wraps ErrFull.
var ErrOwnerFull = fmt.Errorf("the owner has its share: %w", ErrFull)

// Pool hands out places. It is safe for concurrent use.
type Pool struct {
	c        Config
	mu       sync.Mutex // guards the fields below
	free     int
	waiting  int
	turns    uint64 // twice the number of turns given
	ownTurn  bool   // the last turn was the service's
	saving   bool   // free places are saved for a heavy request whose turn it is
	root     node
	recycled []*node // nodes for reuse
}

// node is an owner, one of its sites, or a visitor of that site. It exists while it holds places or waits.
type node struct {
	key      string
	parent   *node
	children map[string]*node
	queue    []*node   // children with waiting requests
	waiters  []*waiter // waiting requests, of a visitor
	waiting  int       // waiting requests here and below
	held     int
	last     uint64 // number of its last turn
}

type waiter struct {
	weight int
	turn   chan struct{} // closed when the place is granted
}

// New returns an unused Pool.
func New(c Config) *Pool {
	c.Places = max(1, c.Places)
	for _, b := range []struct{ bound, above *int }{{&c.Owner, &c.Places}, {&c.Site, &c.Owner}, {&c.Visitor, &c.Site}} {
		if *b.bound <= 0 {
			*b.bound = *b.above
		}
	}
	return &Pool{c: c, free: c.Places}
}

// Try takes a place if one is free for w now. release returns it and may be called more than once.
func (p *Pool) Try(w Who) (release func(), ok bool) { return p.TryN(w, 1) }

// TryN is [Pool.Try] for a place of the given weight.
func (p *Pool) TryN(w Who, weight int) (release func(), ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.visitor(w)
	if p.saving || p.free < weight || !p.fits(n, weight) {
		p.forget(n)
		return nil, false
	}
	p.hold(n, weight)
	return p.releaser(n, weight), true
}

// Take waits for a place for w. It returns ErrFull or ErrOwnerFull if too many requests wait, and ctx's cause if ctx
// ends.
func (p *Pool) Take(ctx context.Context, w Who) (release func(), err error) {
	return p.TakeN(ctx, w, 1)
}

// TakeN is [Pool.Take] for a place of the given weight. A weight beyond a limit is ErrFull.
func (p *Pool) TakeN(ctx context.Context, w Who, weight int) (release func(), err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	p.mu.Lock()
	n := p.visitor(w)
	if weight > p.most(n) {
		p.forget(n)
		p.mu.Unlock()
		return nil, ErrFull
	}
	me := &waiter{weight: weight, turn: make(chan struct{})}
	p.enqueue(n, me)
	p.grant()
	select {
	case <-me.turn:
		p.mu.Unlock()
		return p.releaser(n, weight), nil
	default:
	}
	var full error
	switch {
	case p.c.OwnerWaiting > 0 && n.parent.parent.waiting > p.c.OwnerWaiting:
		full = ErrOwnerFull
	case p.c.Waiting > 0 && p.waiting > p.c.Waiting:
		full = ErrFull
	}
	if full != nil {
		p.leave(n, me)
		p.mu.Unlock()
		return nil, full
	}
	p.mu.Unlock()
	select {
	case <-me.turn:
		return p.releaser(n, weight), nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-me.turn: // the place was granted at the same moment
		p.giveBack(n, weight)
	default:
		p.leave(n, me)
		p.grant() // a heavy request stopped waiting, so lighter ones may fit
	}
	return nil, context.Cause(ctx)
}

// Held returns how much of the pool is taken, and how many requests wait.
func (p *Pool) Held() (held, waiting int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.c.Places - p.free, p.waiting
}

// releaser returns a function that returns the place once.
func (p *Pool) releaser(n *node, weight int) func() {
	var once sync.Once
	return func() {
		once.Do(func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.giveBack(n, weight)
		})
	}
}

// The caller of the following functions holds mu.

// visitor returns w's leaf, which is removed when it neither holds nor waits.
func (p *Pool) visitor(w Who) *node {
	return p.child(p.child(p.child(&p.root, w.Owner), w.Site), w.Visitor)
}

func (p *Pool) child(parent *node, key string) *node {
	if n := parent.children[key]; n != nil {
		return n
	}
	n := &node{}
	if last := len(p.recycled) - 1; last >= 0 {
		n, p.recycled = p.recycled[last], p.recycled[:last]
	}
	// New visitors queue behind all waiting ones except the one served last, so that many occasional visitors can't
	// starve a frequent one.
	n.key, n.parent, n.last = key, parent, p.turns-min(p.turns, 1)
	if parent.children == nil {
		parent.children = map[string]*node{}
	}
	parent.children[key] = n
	return n
}

// forget removes a leaf and its ancestors if they neither hold nor wait.
func (p *Pool) forget(n *node) {
	for n.parent != nil && n.held == 0 && n.waiting == 0 && len(n.children) == 0 {
		parent := n.parent
		delete(parent.children, n.key)
		if len(p.recycled) < 64 {
			n.parent, n.waiters, n.queue = nil, n.waiters[:0], n.queue[:0]
			p.recycled = append(p.recycled, n)
		}
		n = parent
	}
}

// own reports whether a leaf belongs to the service itself.
func (p *Pool) own(n *node) bool { return p.c.Own && n.parent.parent.key == "" }

// most returns the highest weight that a leaf may ever hold.
func (p *Pool) most(n *node) int {
	if p.own(n) {
		return p.c.Places
	}
	return min(p.c.Places, p.c.Owner, p.c.Site, p.c.Visitor)
}

// bound returns how much a node at a depth may hold; depth 1 is an owner.
func (p *Pool) bound(n *node, depth int) int {
	if p.c.Own && depth == 1 && n.key == "" {
		return math.MaxInt
	}
	return [...]int{1: p.c.Owner, 2: p.c.Site, 3: p.c.Visitor}[depth]
}

// fits reports whether the limits of a leaf, its site and its owner leave room.
func (p *Pool) fits(n *node, weight int) bool {
	if p.own(n) {
		return true
	}
	for depth := 3; depth > 0; n, depth = n.parent, depth-1 {
		if n.held+weight > p.bound(n, depth) {
			return false
		}
	}
	return true
}

func (p *Pool) hold(n *node, weight int) {
	p.turns += 2
	p.free -= weight
	for ; n.parent != nil; n = n.parent {
		n.held += weight
		n.last = p.turns
	}
}

func (p *Pool) giveBack(n *node, weight int) {
	p.free += weight
	for above := n; above.parent != nil; above = above.parent {
		above.held -= weight
	}
	p.forget(n)
	p.grant()
}

func (p *Pool) enqueue(n *node, w *waiter) {
	n.waiters = append(n.waiters, w)
	p.waiting++
	for n.waiting++; n.parent != nil; n = n.parent {
		if n.waiting == 1 {
			n.parent.queue = append(n.parent.queue, n)
		}
		if n.parent.parent != nil {
			n.parent.waiting++
		}
	}
}

// leave removes a waiting request from the queue.
func (p *Pool) leave(n *node, w *waiter) {
	for i, other := range n.waiters {
		if other == w {
			n.waiters = append(n.waiters[:i], n.waiters[i+1:]...)
			p.dequeued(n)
			p.forget(n)
			return
		}
	}
}

// dequeued records that a leaf has one waiting request fewer.
func (p *Pool) dequeued(n *node) {
	p.waiting--
	for ; n.parent != nil; n = n.parent {
		n.waiting--
		if n.waiting > 0 {
			continue
		}
		for i, other := range n.parent.queue {
			if other == n {
				n.parent.queue = append(n.parent.queue[:i], n.parent.queue[i+1:]...)
				break
			}
		}
	}
}

// grant gives free places to the requests whose turn it is.
func (p *Pool) grant() {
	p.saving = false
	for p.free > 0 && p.waiting > 0 {
		n := p.next(&p.root, 1)
		if n == nil {
			return
		}
		if n.waiters[0].weight > p.free {
			p.saving = true
			return
		}
		w := n.waiters[0]
		n.waiters = append(n.waiters[:0], n.waiters[1:]...)
		p.dequeued(n)
		p.ownTurn = p.own(n)
		p.hold(n, w.weight)
		close(w.turn)
	}
}

// next returns the leaf below n whose turn it is, or nil if limits leave no room.
func (p *Pool) next(n *node, depth int) *node {
	var tried []*node
	for {
		var best *node
		for _, c := range n.queue {
			if c.held >= p.bound(c, depth) && !p.below(c, depth) || has(tried, c) {
				continue
			}
			if best == nil || p.before(c, best, depth) {
				best = c
			}
		}
		if best == nil {
			return nil
		}
		if depth == 3 {
			if p.fits(best, best.waiters[0].weight) {
				return best
			}
		} else if leaf := p.next(best, depth+1); leaf != nil {
			return leaf
		}
		tried = append(tried, best)
	}
}

// below reports whether a node belongs to the service itself, to which limits don't apply.
func (p *Pool) below(n *node, depth int) bool {
	for ; depth > 1; depth-- {
		n = n.parent
	}
	return p.c.Own && n.key == ""
}

// before reports whether a's turn comes before b's.
func (p *Pool) before(a, b *node, depth int) bool {
	if p.c.Own && depth == 1 && a.key != b.key && (a.key == "" || b.key == "") {
		return (a.key == "") != p.ownTurn
	}
	if a.held != b.held {
		return a.held < b.held
	}
	return a.last < b.last
}

func has(nodes []*node, n *node) bool {
	for _, other := range nodes {
		if other == n {
			return true
		}
	}
	return false
}
