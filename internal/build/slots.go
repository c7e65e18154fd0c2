package build

import (
	"cmp"
	"context"
	"slices"
	"sync"
)

// slots lets n builds run at once in this process, fairly: a free place goes to the
// owner with the fewest running, among equals to the one whose last turn is longest ago,
// and then to the one that waits longest.
type slots struct {
	mu      sync.Mutex // guards what follows
	free    int
	running map[string]int
	waiting []*waiter
	given   int            // turns so far
	last    map[string]int // the number of each owner's last turn, while it waits for more or runs
}

type waiter struct {
	owner string
	turn  chan struct{} // closed when it is theirs
}

func newSlots(n int) *slots {
	return &slots{free: n, running: map[string]int{}, last: map[string]int{}}
}

// take waits for a place. say is called once, with the number of those ahead, when there
// is a wait at all.
func (s *slots) take(ctx context.Context, owner string, say func(ahead int)) (release func(), err error) {
	w := &waiter{owner: owner, turn: make(chan struct{})}
	s.mu.Lock()
	s.waiting = append(s.waiting, w)
	s.next()
	ahead := s.ahead(w)
	s.mu.Unlock()
	select {
	case <-w.turn:
	default:
		say(ahead)
		select {
		case <-w.turn:
		case <-ctx.Done():
			s.mu.Lock()
			defer s.mu.Unlock()
			for i, x := range s.waiting {
				if x == w {
					s.waiting = append(s.waiting[:i], s.waiting[i+1:]...)
					return nil, context.Cause(ctx)
				}
			}
			s.give(owner) // the turn came at the same moment
			return nil, context.Cause(ctx)
		}
	}
	var once sync.Once
	return func() {
		once.Do(func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.give(owner)
		})
	}, nil
}

// give returns an owner's place. The caller holds mu.
func (s *slots) give(owner string) {
	s.free++
	if s.running[owner]--; s.running[owner] == 0 {
		delete(s.running, owner)
	}
	s.next()
}

// next hands out free places. The caller holds mu.
func (s *slots) next() {
	for s.free > 0 && len(s.waiting) > 0 {
		best := 0
		for i, w := range s.waiting {
			b := s.waiting[best]
			if cmp.Or(cmp.Compare(s.running[w.owner], s.running[b.owner]), cmp.Compare(s.last[w.owner], s.last[b.owner])) < 0 {
				best = i
			}
		}
		w := s.waiting[best]
		s.waiting = append(s.waiting[:best], s.waiting[best+1:]...)
		s.free--
		s.running[w.owner]++
		s.given++
		s.last[w.owner] = s.given
		close(w.turn)
	}
	for owner := range s.last {
		if s.running[owner] == 0 && !slices.ContainsFunc(s.waiting, func(w *waiter) bool { return w.owner == owner }) {
			delete(s.last, owner)
		}
	}
}

// ahead counts those that wait and came before. The caller holds mu.
func (s *slots) ahead(w *waiter) int {
	for i, x := range s.waiting {
		if x == w {
			return i
		}
	}
	return 0
}
