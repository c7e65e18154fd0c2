package ratelimit_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"slipway/internal/platform/dbtest"
	"slipway/internal/web/ratelimit"
)

// storm sends n requests with one key from many goroutines to the limiters in turn, and counts those allowed.
func storm(t *testing.T, n, limit int, ls ...*ratelimit.Limiter) int {
	t.Helper()
	var passed, i atomic.Int64
	var wg sync.WaitGroup
	seen := sync.Map{} // remaining values of the allowed requests: each exactly once
	for range 20 {
		wg.Go(func() {
			for {
				k := int(i.Add(1))
				if k > n {
					return
				}
				w, err := ls[k%len(ls)].Take(t.Context(), "key:a", limit)
				if err != nil {
					t.Error(err)
					return
				}
				if w.Allowed {
					passed.Add(1)
					if _, twice := seen.LoadOrStore(w.Remaining, true); twice {
						t.Errorf("remaining %d was told twice", w.Remaining)
					}
				} else if w.Remaining != 0 {
					t.Errorf("refused with %d remaining", w.Remaining)
				}
			}
		})
	}
	wg.Wait()
	return int(passed.Load())
}

func TestExactlyTheLimitPasses(t *testing.T) {
	t.Parallel()
	if got := storm(t, 5000, 100, ratelimit.New(ratelimit.Config{})); got != 100 {
		t.Errorf("%d passed, want 100", got)
	}
}

func TestExactlyTheLimitPassesAcrossNodes(t *testing.T) {
	t.Parallel()
	url := dbtest.URL(t)
	var nodes []*ratelimit.Limiter
	for range 3 {
		nodes = append(nodes, ratelimit.New(ratelimit.Config{DB: dbtest.Open(t, url), Shared: true}))
	}
	if got := storm(t, 600, 100, nodes...); got != 100 {
		t.Errorf("%d passed, want 100", got)
	}
}

func TestWindow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(300 * time.Millisecond) // not at a whole second
		l := ratelimit.New(ratelimit.Config{})
		take := func(key string) ratelimit.Window {
			w, err := l.Take(t.Context(), key, 2)
			if err != nil {
				t.Fatal(err)
			}
			return w
		}
		start := time.Now()
		w := take("key:a")
		if !w.Allowed || w.Remaining != 1 || w.Limit != 2 || !w.Ends.Equal(start.Add(time.Minute)) || w.Reset() != start.Unix()+61 {
			t.Fatalf("first: %+v", w)
		}
		time.Sleep(59 * time.Second)
		if w = take("key:a"); !w.Allowed || w.Remaining != 0 {
			t.Fatalf("second: %+v", w)
		}
		if w = take("key:a"); w.Allowed || w.Wait() != 1 {
			t.Fatalf("third: %+v", w)
		}
		if w = take("key:b"); !w.Allowed {
			t.Fatalf("another key: %+v", w)
		}
		time.Sleep(time.Until(time.Unix(take("key:a").Reset(), 0)))
		if w = take("key:a"); !w.Allowed || w.Remaining != 1 {
			t.Fatalf("at the reset that was told: %+v", w)
		}
	})
}

func TestSharedWindowEndsAndIsPurged(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	l := ratelimit.New(ratelimit.Config{DB: d, Shared: true, Length: 300 * time.Millisecond})
	take := func() ratelimit.Window {
		w, err := l.Take(t.Context(), "key:a", 1)
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	if w := take(); !w.Allowed {
		t.Fatal("the first was refused")
	}
	take()
	w := take() // from memory
	if w.Allowed {
		t.Fatal("the third passed")
	}
	time.Sleep(time.Until(w.Ends)) // the test depends on the real clock
	if w := take(); !w.Allowed {
		t.Fatal("refused in a new window")
	}
	go l.Run(t.Context())
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		var n int
		if err := d.QueryRow(t.Context(), "SELECT count(*) FROM rate_windows").Scan(&n); err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("ended windows stay")
		}
	}
}

// A flood of addresses grows memory only up to a limit and doesn't affect users' keys.
func TestFloodOfKeys(t *testing.T) {
	t.Parallel()
	l := ratelimit.New(ratelimit.Config{Keys: 50})
	refused := 0
	for i := range 300_000 {
		if w, _ := l.Take(t.Context(), fmt.Sprint("addr:", i), 100); !w.Allowed {
			refused++
		}
	}
	if refused == 0 {
		t.Error("addresses beyond the bound each had a window of their own")
	}
	if w, _ := l.Take(t.Context(), "key:new", 100); !w.Allowed || w.Remaining != 99 {
		t.Errorf("a user's key suffers: %+v", w)
	}
	if w, _ := l.Take(t.Context(), "addr:0", 100); !w.Allowed {
		t.Errorf("one that was here before suffers: %+v", w)
	}
}

func TestDatabaseErrorIsTold(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	l := ratelimit.New(ratelimit.Config{DB: d, Shared: true})
	d.Close()
	if w, err := l.Take(t.Context(), "key:a", 100); err == nil || w.Limit != 100 || w.Reset() == 0 {
		t.Errorf("got %+v, %v", w, err)
	}
}
