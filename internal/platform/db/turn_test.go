package db

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"slipway/internal/platform/fair"
)

// A share with a hundred requests delays another share, and the service itself, by only one turn.
func TestTurnsAreTakenOverShares(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newSlots(1, 1)
		first, err := q.Take(t.Context(), fair.Who{})
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var got []string
		ask := func(share string, times int) {
			for range times {
				go func() {
					release, err := q.Take(t.Context(), fair.Who{Owner: share})
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					got = append(got, share)
					mu.Unlock()
					time.Sleep(time.Second) // fake time: holds the slot for a while
					release()
				}()
				synctest.Wait()
			}
		}
		ask("greedy", 100)
		ask("b", 1)
		ask("c", 2)
		ask("", 2)
		first()
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(got) != 105 || !slices.Equal(got[:7], []string{"greedy", "", "b", "", "c", "greedy", "c"}) {
			t.Errorf("turns were taken in the order %q", got[:min(len(got), 8)])
		}
		if held, waiting := q.Held(); held != 0 || waiting != 0 {
			t.Errorf("left over: %d held, %d waiting", held, waiting)
		}
	})
}

// A share never holds more slots than its limit, and a canceled request leaves nothing behind.
func TestTurnsBoundAShare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newSlots(4, 2)
		greedy := fair.Who{Owner: "greedy"}
		var held []func()
		for range 2 {
			release, err := q.Take(t.Context(), greedy)
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, release)
		}
		short, cancel := context.WithTimeoutCause(t.Context(), time.Second, errBusy)
		defer cancel()
		if _, err := q.Take(short, greedy); !errors.Is(err, errBusy) {
			t.Fatalf("a third place: %v", err)
		}
		for range 2 {
			release, err := q.Take(t.Context(), fair.Who{Owner: "other"})
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, release)
		}
		for _, release := range held {
			release()
			release() // a second call has no effect
		}
		if held, waiting := q.Held(); held != 0 || waiting != 0 {
			t.Errorf("left over: %d held, %d waiting", held, waiting)
		}
	})
}
