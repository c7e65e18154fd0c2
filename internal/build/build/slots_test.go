package build

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"slipway/internal/platform/id"

	gocmp "github.com/google/go-cmp/cmp"
)

// queue is a test's view of slots: who waits at which place, who has had a turn.
type queue struct {
	*slots
	t      *testing.T
	told   sync.Mutex // guards the following fields: several waiters may be notified at once
	places map[string]int
	order  []string
	hold   map[string]func()
}

func newQueue(t *testing.T, n int) *queue {
	return &queue{slots: newSlots(n), t: t, places: map[string]int{}, hold: map[string]func(){}}
}

// ask makes a build of the owner wait for its turn. It must be called in a bubble.
func (q *queue) ask(name string, owner id.Owner) {
	go func() {
		release, err := q.take(q.t.Context(), owner, func(place int) {
			q.told.Lock()
			defer q.told.Unlock()
			q.places[name] = place
		})
		if err != nil {
			q.t.Error(err)
			return
		}
		q.told.Lock()
		defer q.told.Unlock()
		delete(q.places, name)
		q.order = append(q.order, name)
		q.hold[name] = release
	}()
	synctest.Wait()
}

func (q *queue) end(name string) {
	q.hold[name]()
	synctest.Wait()
}

// A free slot goes to the owner with the fewest running builds, then to the one whose last turn is longest ago, then to
// the build that waited longest. The announced places match this order.
func TestSlotsAreFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, 1)
		for _, name := range []string{"greedy 1", "greedy 2", "greedy 3", "greedy 4"} {
			q.ask(name, "greedy")
		}
		if d := gocmp.Diff(map[string]int{"greedy 2": 1, "greedy 3": 2, "greedy 4": 3}, q.places); d != "" {
			t.Errorf("places (-want +got):\n%s", d)
		}
		q.ask("modest 1", "modest")
		q.ask("modest 2", "modest")
		if d := gocmp.Diff(map[string]int{"modest 1": 1, "greedy 2": 2, "modest 2": 3, "greedy 3": 4, "greedy 4": 5}, q.places); d != "" {
			t.Errorf("places after somebody else came (-want +got):\n%s", d)
		}
		want := []string{"greedy 1", "modest 1", "greedy 2", "modest 2", "greedy 3", "greedy 4"}
		for _, name := range want {
			if q.order[len(q.order)-1] != name {
				t.Fatalf("the turns were %v, want %v", q.order, want)
			}
			for waiting, place := range q.places {
				if want[len(q.order)+place-1] != waiting {
					t.Errorf("%s was told place %d after %v", waiting, place, q.order)
				}
			}
			q.end(name)
		}
		if len(q.last)+len(q.running)+len(q.waiting) > 0 || q.free != 1 {
			t.Errorf("left: %+v", q.slots)
		}
	})
}

// With several slots, no owner gets a second one while another waits for a first.
func TestSlotsGoToThoseWithout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, 2)
		for _, name := range []string{"greedy 1", "greedy 2", "greedy 3"} {
			q.ask(name, "greedy")
		}
		q.ask("modest 1", "modest")
		if d := gocmp.Diff(map[string]int{"modest 1": 1, "greedy 3": 2}, q.places); d != "" {
			t.Errorf("places (-want +got):\n%s", d)
		}
		q.end("greedy 1")
		if d := gocmp.Diff([]string{"greedy 1", "greedy 2", "modest 1"}, q.order); d != "" {
			t.Errorf("turns (-want +got):\n%s", d)
		}
		for _, name := range []string{"greedy 2", "modest 1", "greedy 3"} {
			q.end(name)
		}
	})
}

// A build that stops waiting takes no slot from others, and those behind it move up.
func TestGivingUpAWaitLosesNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, 1)
		q.ask("first", "a")
		ctx, cancel := context.WithCancelCause(t.Context())
		gone := errors.New("gone")
		done := make(chan error, 1)
		go func() {
			_, err := q.take(ctx, "b", func(int) {})
			done <- err
		}()
		synctest.Wait()
		q.ask("behind", "c")
		if q.places["behind"] != 2 {
			t.Errorf("place %d behind the one that gives up", q.places["behind"])
		}
		cancel(gone)
		if err := <-done; !errors.Is(err, gone) {
			t.Fatalf("got %v", err)
		}
		synctest.Wait()
		if q.places["behind"] != 1 {
			t.Errorf("place %d after it gave up", q.places["behind"])
		}
		q.end("first")
		q.end("first") // a second call must not free another slot
		q.end("behind")
		if q.free != 1 {
			t.Fatalf("%d free, want 1", q.free)
		}
	})
}

// Computing the places of very many builds is cheap, and each gets one.
func TestManyWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, 1)
		ctx, cancel := context.WithCancel(t.Context())
		places := make([]int, 400)
		for i := range places {
			go q.take(ctx, id.Owner(string(rune('a'+i%7))), func(place int) { places[i] = place })
			synctest.Wait()
		}
		if places[1] == 0 || places[399] != maxForeseen+1 {
			t.Errorf("places %d and %d", places[1], places[399])
		}
		cancel()
		synctest.Wait()
	})
}
