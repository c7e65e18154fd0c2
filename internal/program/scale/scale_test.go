package scale

import (
	"testing"
	"time"
)

func TestNeeded(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		r          Range
		n, needing int
	}{
		{Range{}, 1000, 1},
		{Range{1, 4}, 0, 1},
		{Range{1, 4}, Target, 1},
		{Range{1, 4}, Target + 1, 2},
		{Range{1, 4}, 1000, 4},
		{Range{3, 4}, 0, 3},
	} {
		if got := c.r.Needed(c.n); got != c.needing {
			t.Errorf("%v.Needed(%d) = %d, want %d", c.r, c.n, got, c.needing)
		}
	}
}

// More instances must start at once. Fewer may run only if they were enough for the whole last five minutes, and then
// as many as those minutes needed.
func TestUpAtOnceDownLater(t *testing.T) {
	t.Parallel()
	var s Scale
	r, now := Range{1, 5}, time.Unix(0, 0)
	want := func(running, inFlight, want int) {
		t.Helper()
		if got := s.Want(r, running, inFlight, now); got != want {
			t.Fatalf("Want(%d running, %d in flight) after %s = %d, want %d", running, inFlight, now.Sub(time.Unix(0, 0)), got, want)
		}
	}
	want(1, 45, 5)
	want(5, 5, 5)
	now = now.Add(DownAfter - time.Second)
	want(5, 41, 5) // needs all of them again
	now = now.Add(2 * time.Second)
	want(5, 0, 5)
	now = now.Add(DownAfter / 2)
	want(5, 11, 5)
	now = now.Add(DownAfter/2 - 1)
	want(5, 0, 5)
	now = now.Add(1)
	want(5, 0, 2)
	want(2, 0, 2)
	now = now.Add(DownAfter)
	want(2, 0, 1)
}

// If the settings allow fewer instances, their number must be reduced at once.
func TestFewerAllowed(t *testing.T) {
	t.Parallel()
	var s Scale
	if got := s.Want(Range{1, 2}, 5, 100, time.Now()); got != 2 {
		t.Errorf("Want of at most 2 = %d", got)
	}
	if got := s.Want(Range{}, 5, 100, time.Now()); got != 1 {
		t.Errorf("Want of no range = %d", got)
	}
}

func TestRetriesLaterAndLater(t *testing.T) {
	t.Parallel()
	var s Scale
	r, now := Range{1, 5}, time.Unix(0, 0)
	for _, wait := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		s.Failed(now)
		now = now.Add(wait*time.Second - 1)
		if got := s.Want(r, 1, 100, now); got != 1 {
			t.Fatalf("Want before %ds = %d", wait, got)
		}
		now = now.Add(1)
		if got := s.Want(r, 1, 100, now); got != 5 {
			t.Fatalf("Want after %ds = %d", wait, got)
		}
	}
	s.Started()
	s.Failed(now)
	if got := s.Want(r, 1, 100, now.Add(time.Second)); got != 5 {
		t.Fatalf("Want a second after the first failure of a new row = %d", got)
	}
}
