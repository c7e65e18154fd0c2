package build

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

// A free place goes to the owner with the fewest running, then to the longest wait.
func TestTurnsAreFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := newSlots(2)
		order := make(chan string, 10)
		hold := map[string]chan func(){"greedy": make(chan func(), 10), "modest": make(chan func(), 10)}
		ask := func(owner string) {
			go func() {
				release, err := turns.take(t.Context(), owner, func(int) {})
				if err != nil {
					t.Error(err)
					return
				}
				order <- owner
				hold[owner] <- release
			}()
			synctest.Wait()
		}
		for range 4 {
			ask("greedy")
		}
		ask("modest")
		if len(order) != 2 {
			t.Fatalf("%d run at once, want 2", len(order))
		}
		(<-hold["greedy"])()
		synctest.Wait()
		<-order
		<-order
		if got := <-order; got != "modest" {
			t.Fatalf("the free place went to %s, although it has one running already", got)
		}
		for range 3 {
			(<-hold["greedy"])()
			synctest.Wait()
		}
		(<-hold["modest"])()
		synctest.Wait()
		if turns.free != 2 || len(turns.waiting) != 0 || len(turns.running) != 0 {
			t.Fatalf("%d free, %d wait, running %v", turns.free, len(turns.waiting), turns.running)
		}
	})
}

func TestGivingUpAWaitLosesNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := newSlots(1)
		release, err := turns.take(t.Context(), "a", nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		gone := errors.New("gone")
		done := make(chan error, 1)
		said := -1
		go func() {
			_, err := turns.take(ctx, "b", func(n int) { said = n })
			done <- err
		}()
		synctest.Wait()
		cancel(gone)
		if err := <-done; !errors.Is(err, gone) || said != 0 {
			t.Fatalf("got %v, told %d ahead", err, said)
		}
		release()
		release() // twice gives one place back
		if turns.free != 1 {
			t.Fatalf("%d free, want 1", turns.free)
		}
	})
}
