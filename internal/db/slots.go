package db

import (
	"context"
	"sync"
)

type shareKey struct{}

// WithShare says on whose behalf writes under ctx are made. Shares take turns at writing,
// so that one user's many writes delay another's by one write at most. Writes without a
// share are the service's own: they get every other turn.
func WithShare(ctx context.Context, share string) context.Context {
	return context.WithValue(ctx, shareKey{}, share)
}

func shareOf(ctx context.Context) string {
	share, _ := ctx.Value(shareKey{}).(string)
	return share
}

// turns hands out the places for writing: one on SQLite, several on PostgreSQL. Whoever
// waits is served in turn over shares, and within a share in the order of asking.
type slots struct {
	mu    sync.Mutex // guards what follows
	free  int        // places that nobody holds
	most  int        // places that one share may hold at once
	lanes map[string]*lane
	order []*lane // those with somebody waiting, the next in turn first
	own   bool    // the last turn was the service's own
}

// lane is one share that holds places or waits for them.
type lane struct {
	share   string
	held    int
	waiting []chan struct{} // closed when the place is theirs
}

func newSlots(places, most int) *slots {
	return &slots{free: max(1, places), most: max(1, most), lanes: map[string]*lane{}}
}

// take waits for a place and returns what gives it back.
func (t *slots) take(ctx context.Context) (release func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	share := shareOf(ctx)
	t.mu.Lock()
	l := t.lanes[share]
	if l == nil {
		l = &lane{share: share}
		t.lanes[share] = l
	}
	mine := make(chan struct{})
	if l.waiting = append(l.waiting, mine); len(l.waiting) == 1 {
		t.order = append(t.order, l)
	}
	t.grant()
	t.mu.Unlock()
	release = sync.OnceFunc(func() { t.release(l) })
	select {
	case <-mine:
		return release, nil
	case <-ctx.Done():
		if !t.leave(l, mine) {
			release() // the place came at the same moment
		}
		return nil, context.Cause(ctx)
	}
}

// leave takes a waiter out of its lane. It reports false when the place is theirs already.
func (t *slots) leave(l *lane, mine chan struct{}) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, w := range l.waiting {
		if w == mine {
			l.waiting = append(l.waiting[:i], l.waiting[i+1:]...)
			t.tidy(l)
			return true
		}
	}
	return false
}

func (t *slots) release(l *lane) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l.held--
	t.free++
	t.tidy(l)
	t.grant()
}

// grant hands free places to whoever is next. The caller holds mu.
func (t *slots) grant() {
	for t.free > 0 {
		i := t.next()
		if i < 0 {
			return
		}
		l := t.order[i]
		t.order = append(t.order[:i], t.order[i+1:]...)
		close(l.waiting[0])
		l.waiting = l.waiting[1:]
		l.held++
		t.free--
		t.own = l.share == ""
		if len(l.waiting) > 0 {
			t.order = append(t.order, l)
		}
	}
}

// next is the place in order of the lane whose turn it is, or -1.
func (t *slots) next() int {
	first := -1
	for i, l := range t.order {
		if l.share == "" && !t.own {
			return i
		}
		if first < 0 && (l.share == "" || l.held < t.most) {
			first = i
		}
	}
	return first
}

// tidy forgets a lane that neither holds nor waits. The caller holds mu.
func (t *slots) tidy(l *lane) {
	if len(l.waiting) > 0 {
		return
	}
	for i, o := range t.order {
		if o == l {
			t.order = append(t.order[:i], t.order[i+1:]...)
			break
		}
	}
	if l.held == 0 && t.lanes[l.share] == l {
		delete(t.lanes, l.share)
	}
}

// Waiting returns how many writes wait for their turn. It is for tests.
func (d *DB) Waiting() (n int) {
	d.slots.mu.Lock()
	defer d.slots.mu.Unlock()
	for _, l := range d.slots.order {
		n += len(l.waiting)
	}
	return n
}
