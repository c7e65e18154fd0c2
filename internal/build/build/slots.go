package build

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"

	"slipway/internal/platform/id"
)

// slots runs at most n builds at a time in this process. A free slot goes to the owner with the fewest running builds,
// then to the one whose last turn is longest ago, then to the build that has waited longest.
type slots struct {
	mu      sync.Mutex // guards the following fields
	free    int
	running []id.Owner // owners of the running builds, in the order of their start
	waiting []*waiter
	given   int // number of turns so far
	// share: total the owners with builds that run or wait; owner the builds go in turn, least running first; edge the build waits, and its log says at which place
	last map[id.Owner]int // number of each owner's last turn, while it has waiting or running builds
}

type waiter struct {
	owner id.Owner
	turn  chan struct{} // closed when the slot is assigned
	place chan int      // latest place in the queue, if changed
	known int           // last place sent
}

func newSlots(n int) *slots { return &slots{free: n, last: map[id.Owner]int{}} }

// take waits for a slot. While it waits, it calls say with each new place in the queue; 1 is next.
func (s *slots) take(ctx context.Context, owner id.Owner, say func(place int)) (release func(), err error) {
	w := &waiter{owner: owner, turn: make(chan struct{}), place: make(chan int, 1)}
	s.mu.Lock()
	s.waiting = append(s.waiting, w)
	s.next()
	s.mu.Unlock()
	for waits := true; waits; {
		select {
		case <-w.turn:
			waits = false
			continue
		default:
		}
		select {
		case <-w.turn:
			waits = false
		case place := <-w.place:
			say(place)
		case <-ctx.Done():
			s.leave(w)
			return nil, context.Cause(ctx)
		}
	}
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.give(owner)
	}), nil
}

// leave removes a waiter from the queue, or releases its slot if it just got one.
func (s *slots) leave(w *waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.waiting, w); i >= 0 {
		s.waiting = slices.Delete(s.waiting, i, i+1)
		s.next()
		return
	}
	s.give(w.owner)
}

// give releases an owner's slot. The caller holds mu.
func (s *slots) give(owner id.Owner) {
	s.free++
	i := slices.Index(s.running, owner)
	s.running = slices.Delete(s.running, i, i+1)
	s.next()
}

// next assigns free slots and sends new places to the builds that still wait. The caller holds mu.
func (s *slots) next() {
	for s.free > 0 && len(s.waiting) > 0 {
		i := s.best(s.waiting, s.running, s.last)
		w := s.waiting[i]
		s.waiting = slices.Delete(s.waiting, i, i+1)
		s.free--
		s.running = append(s.running, w.owner)
		s.given++
		s.last[w.owner] = s.given
		close(w.turn)
	}
	for owner := range s.last {
		if !slices.Contains(s.running, owner) && !slices.ContainsFunc(s.waiting, func(w *waiter) bool { return w.owner == owner }) {
			delete(s.last, owner)
		}
	}
	s.tell()
}

// best returns the index of the waiting build that gets the next slot.
func (s *slots) best(waiting []*waiter, running []id.Owner, last map[id.Owner]int) int {
	count := map[id.Owner]int{}
	for _, owner := range running {
		count[owner]++
	}
	best := 0
	for i, w := range waiting {
		b := waiting[best]
		if cmp.Or(cmp.Compare(count[w.owner], count[b.owner]), cmp.Compare(last[w.owner], last[b.owner])) < 0 {
			best = i
		}
	}
	return best
}

// maxForeseen caps the simulated turns. Builds after them get this number as their place.
const maxForeseen = 200

// tell computes the places, assuming that builds end in the order of their start, and sends each waiter its place if it
// changed. The caller holds mu.
func (s *slots) tell() {
	waiting, running, last, given := slices.Clone(s.waiting), slices.Clone(s.running), maps.Clone(s.last), s.given
	for place := 1; len(waiting) > 0 && place <= maxForeseen; place++ {
		if len(running) > 0 {
			running = running[1:]
		}
		i := s.best(waiting, running, last)
		w := waiting[i]
		waiting = slices.Delete(waiting, i, i+1)
		running = append(running, w.owner)
		given++
		last[w.owner] = given
		w.tell(place)
	}
	for _, w := range waiting {
		w.tell(maxForeseen + 1)
	}
}

// tell sends a place, and discards an older one that wasn't received.
func (w *waiter) tell(place int) {
	if place == w.known {
		return
	}
	w.known = place
	select {
	case <-w.place:
	default:
	}
	w.place <- place
}
