package throttle

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"slipway/internal/platform/fair"
	"slipway/internal/platform/id"
)

// An owner's responses share the rate equally, and another owner's don't slow them down.
func TestShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const rate = 8 * Step
		owners := New().Set(map[id.Owner]int64{"ada": rate, "eve": rate})
		begun := time.Now()
		ended := make(chan time.Duration, 3)
		send := func(o id.Owner, bytes int) {
			r, ok := owners[o].Take(t.Context(), fair.Who{Owner: string(o)})
			if !ok {
				t.Error("no place is free")
				return
			}
			defer r.End()
			for ; bytes > 0; bytes -= Step {
				if err := r.Wait(Step); err != nil {
					t.Error(err)
				}
			}
			ended <- time.Since(begun)
		}
		go send("ada", 10*rate)
		go send("ada", 10*rate)
		go send("eve", 10*rate)
		if got := <-ended; got < 8*time.Second || got > 10*time.Second {
			t.Errorf("an owner with one response: after %s, want 9 s", got)
		}
		first, second := <-ended, <-ended
		if first < 17*time.Second || second > 20*time.Second {
			t.Errorf("two responses of one owner: after %s and %s, want 18 and 19 s", first, second)
		}
	})
}

// When a limit is raised, slowed responses continue at full speed. A response whose visitor left stops waiting.
func TestLifted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all := New()
		throttle := all.Set(map[id.Owner]int64{"ada": 1})["ada"]
		ctx, leave := context.WithCancel(t.Context())
		leaving, _ := throttle.Take(ctx, fair.Who{Owner: "ada"})
		staying, _ := throttle.Take(t.Context(), fair.Who{Owner: "ada"})
		left, lifted := make(chan error, 1), make(chan error, 1)
		_ = leaving.Wait(Step) // the burst that an owner may take at once
		go func() { left <- leaving.Wait(Step) }()
		go func() { lifted <- staying.Wait(Step) }()
		synctest.Wait()
		leave()
		if err := <-left; err == nil {
			t.Error("who has left waits")
		}
		if same := all.Set(map[id.Owner]int64{"ada": 2})["ada"]; same != throttle {
			t.Error("another rate is another throttle")
		}
		begun := time.Now()
		all.Set(nil)
		if err := <-lifted; err != nil || time.Since(begun) != 0 {
			t.Errorf("after %s: %v", time.Since(begun), err)
		}
		if err := staying.Wait(Step); err != nil || time.Since(begun) != 0 {
			t.Errorf("and then after %s: %v", time.Since(begun), err)
		}
	})
}

// The number of slowed responses at once is limited per owner and per visitor.
func TestPlaces(t *testing.T) {
	t.Parallel()
	owners := New().Set(map[id.Owner]int64{"ada": 1, "eve": 1})
	took := 0
	var last *Response
	for n := range 200 {
		if r, ok := owners["ada"].Take(t.Context(), fair.Who{Owner: "ada", Site: "s", Visitor: string(rune('a' + n%20))}); ok {
			took++
			last = r
		}
	}
	if took != 64 {
		t.Errorf("%d responses at once, want 64", took)
	}
	if _, ok := owners["eve"].Take(t.Context(), fair.Who{Owner: "eve"}); !ok {
		t.Error("another owner has no place")
	}
	last.End()
	if _, ok := owners["ada"].Take(t.Context(), fair.Who{Owner: "ada"}); !ok {
		t.Error("the place of a response that is over isn't free")
	}
	alone := 0
	for range 64 {
		if _, ok := owners["eve"].Take(t.Context(), fair.Who{Owner: "eve", Site: "s", Visitor: "one"}); ok {
			alone++
		}
	}
	if alone != 16 {
		t.Errorf("one visitor has %d responses at once, want 16", alone)
	}
}
