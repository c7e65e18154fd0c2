package deploy

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"slipway/internal/account"
)

// turns lets n builds run at once in this process, fairly: a free place goes to the
// owner with the fewest running, among equals to the one whose last turn is longest ago,
// and then to the one that waits longest.
type turns struct {
	mu      sync.Mutex // guards what follows
	free    int
	running map[account.OwnerID]int
	waiting []*waiter
	given   int                     // turns so far
	last    map[account.OwnerID]int // the number of each owner's last turn, while it waits for more or runs
}

type waiter struct {
	owner account.OwnerID
	turn  chan struct{} // closed when it is theirs
}

func newTurns(n int) *turns {
	return &turns{free: n, running: map[account.OwnerID]int{}, last: map[account.OwnerID]int{}}
}

// take waits for a place. say is called once, with the number of those ahead, when there
// is a wait at all.
func (t *turns) take(ctx context.Context, owner account.OwnerID, say func(ahead int)) (release func(), err error) {
	w := &waiter{owner: owner, turn: make(chan struct{})}
	t.mu.Lock()
	t.waiting = append(t.waiting, w)
	t.next()
	ahead := t.ahead(w)
	t.mu.Unlock()
	select {
	case <-w.turn:
	default:
		say(ahead)
		select {
		case <-w.turn:
		case <-ctx.Done():
			t.mu.Lock()
			defer t.mu.Unlock()
			for i, x := range t.waiting {
				if x == w {
					t.waiting = append(t.waiting[:i], t.waiting[i+1:]...)
					return nil, context.Cause(ctx)
				}
			}
			t.give(owner) // the turn came at the same moment
			return nil, context.Cause(ctx)
		}
	}
	var once sync.Once
	return func() {
		once.Do(func() {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.give(owner)
		})
	}, nil
}

// give returns an owner's place. The caller holds mu.
func (t *turns) give(owner account.OwnerID) {
	t.free++
	if t.running[owner]--; t.running[owner] == 0 {
		delete(t.running, owner)
	}
	t.next()
}

// next hands out free places. The caller holds mu.
func (t *turns) next() {
	for t.free > 0 && len(t.waiting) > 0 {
		best := 0
		for i, w := range t.waiting {
			b := t.waiting[best]
			if cmp.Or(cmp.Compare(t.running[w.owner], t.running[b.owner]), cmp.Compare(t.last[w.owner], t.last[b.owner])) < 0 {
				best = i
			}
		}
		w := t.waiting[best]
		t.waiting = append(t.waiting[:best], t.waiting[best+1:]...)
		t.free--
		t.running[w.owner]++
		t.given++
		t.last[w.owner] = t.given
		close(w.turn)
	}
	for owner := range t.last {
		if t.running[owner] == 0 && !slices.ContainsFunc(t.waiting, func(w *waiter) bool { return w.owner == owner }) {
			delete(t.last, owner)
		}
	}
}

// ahead counts those that wait and came before. The caller holds mu.
func (t *turns) ahead(w *waiter) int {
	for i, x := range t.waiting {
		if x == w {
			return i
		}
	}
	return 0
}

// clock ends a deployment that has worked for too long. While it is stopped no time
// passes for it. One goroutine uses it.
type clock struct {
	left  time.Duration
	since time.Time
	timer *time.Timer
}

// newClock returns a running one that calls end when the time is over.
func newClock(d time.Duration, end func()) *clock {
	return &clock{left: d, since: time.Now(), timer: time.AfterFunc(d, end)}
}

func (c *clock) stop() {
	if c.timer.Stop() {
		c.left -= time.Since(c.since)
	}
}

func (c *clock) start() {
	c.since = time.Now()
	c.timer.Reset(c.left)
}
