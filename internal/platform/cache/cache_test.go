package cache

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"slipway/internal/platform/panics"
	"slipway/internal/platform/wait"
)

// The cache keeps the most recently used values, up to its limit.
func TestCache(t *testing.T) {
	t.Parallel()
	c := New[int, string](100, 25)
	for i := range 20 {
		c.put("", i, fmt.Sprint(i), 10)
		if v, ok := c.Get(0); !ok || v != "0" {
			t.Fatalf("the one used last is gone after %d", i)
		}
	}
	if c.cost > 100 || len(c.at) != 10 || c.owners[""].order.Len() != 10 {
		t.Errorf("cost %d in %d entries", c.cost, len(c.at))
	}
	c.put("", 99, "huge", 26)
	if len(c.at) != 10 {
		t.Error("one large entry replaced all others")
	}
	c.put("", 0, "again", 20)
	if v, _ := c.Get(0); v != "again" || c.cost > 100 {
		t.Errorf("put again: %q, cost %d", v, c.cost)
	}
	// Concurrent requests cause one load, and failures aren't cached.
	var loads atomic.Int64
	gate := make(chan struct{})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			_, _, err := c.Fetch(t.Context(), 1000, func(context.Context) (string, int64, error) {
				loads.Add(1)
				<-gate
				return "", 0, fs.ErrNotExist
			})
			if err == nil {
				t.Error("no error")
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	wait.Until(t, "a load has begun", func() bool { return loads.Load() > 0 })
	if _, _, err := c.Fetch(ctx, 1000, nil); err == nil {
		t.Error("a canceled Fetch does not return")
	}
	close(gate)
	wg.Wait()
	if v, hit, err := c.Fetch(t.Context(), 1000, func(context.Context) (string, int64, error) { return "there", 1, nil }); v != "there" ||
		hit ||
		err != nil {
		t.Errorf("after a failure: %q, %v, %v", v, hit, err)
	}
	c.Clear()
	if len(c.at) != 0 || c.cost != 0 {
		t.Error("the cache is not empty")
	}
}

// If a load panics, all callers that wait for it get an error, and the next call loads again.
func TestLoadThatPanics(t *testing.T) {
	t.Parallel()
	c := New[int, string](100, 25)
	_, _, err := c.Fetch(t.Context(), 1, func(context.Context) (string, int64, error) { panic("a manifest that can't be read") })
	if !errors.Is(err, panics.ErrPanic) {
		t.Errorf("got %v", err)
	}
	load := func(context.Context) (string, int64, error) { return "there", 1, nil }
	if v, _, err := c.Fetch(t.Context(), 1, load); v != "there" || err != nil {
		t.Errorf("the next load: %q, %v", v, err)
	}
}

// An owner's values don't exceed its share and don't displace those of owners with less.
func TestOwners(t *testing.T) {
	t.Parallel()
	c := NewShared[string, int](100, 25, 50)
	for i := range 3 {
		c.put("small", fmt.Sprint("small", i), i, 10)
	}
	for i := range 100 {
		c.put("large", fmt.Sprint("large", i), i, 10)
	}
	if got := c.owners["large"].cost; got != 50 {
		t.Errorf("an owner has %d, its share is 50", got)
	}
	for i := range 100 {
		c.put(fmt.Sprint("other", i%3), fmt.Sprint("other", i), i, 10)
	}
	for i := range 100 {
		c.put("large", fmt.Sprint("large", i), i, 10)
	}
	for i := range 3 {
		if v, ok := c.Get(fmt.Sprint("small", i)); c.owners["small"].cost >= 20 && (!ok && i == 2 || ok && v != i) {
			t.Errorf("small%d: %d, %v", i, v, ok)
		}
	}
	if c.owners["small"] == nil || c.cost > 100 {
		t.Errorf("an owner with few values has lost them; the total cost is %d", c.cost)
	}
	var sum, n int64
	for _, of := range c.owners {
		sum, n = sum+of.cost, n+int64(of.order.Len())
	}
	if sum != c.cost || n != int64(len(c.at)) || 10*n != sum {
		t.Errorf("%d in %d values of owners, %d in %d altogether", sum, n, c.cost, len(c.at))
	}
	for i := range 3 {
		c.put("", fmt.Sprint("small", i), i, 0) // moves to another owner
	}
	if c.owners["small"] != nil {
		t.Error("an owner without values still has an entry")
	}
}

// The first owner of the ranking always has the highest cost, and a value is always evicted from the owner that had the
// highest cost.
func TestRanking(t *testing.T) {
	t.Parallel()
	c := NewShared[int, int](400, 30, 100)
	for i := range 5000 {
		before := map[string]int64{}
		for name, of := range c.owners {
			before[name] = of.cost
		}
		to, cost := fmt.Sprint(rand.IntN(20)), rand.Int64N(31)
		c.put(to, i, i, cost)
		before[to] += cost
		var most int64
		for name, of := range c.owners {
			most = max(most, of.cost)
			if c.byCost[of.place] != of {
				t.Fatalf("%s is not in its place %d", name, of.place)
			}
		}
		if len(c.byCost) != len(c.owners) || len(c.byCost) > 0 && c.byCost[0].cost != most {
			t.Fatalf("%d of %d owners are ranked, the first has %d of %d", len(c.byCost), len(c.owners), c.byCost[0].cost, most)
		}
		for name, had := range before {
			var has int64
			if of := c.owners[name]; of != nil {
				has = of.cost
			}
			if has < had && had < most {
				t.Fatalf("an owner with a cost of %d has lost values, another has %d", had, most)
			}
		}
	}
	c.Clear()
	c.put("", 1, 1, 1)
	if len(c.byCost) != 1 || c.cost != 1 {
		t.Errorf("after Clear %d owners are ranked", len(c.byCost))
	}
}

// BenchmarkPut puts values into a full cache, so that each evicts another.
func BenchmarkPut(b *testing.B) {
	for _, owners := range []int{1, 100, 10_000} {
		b.Run(fmt.Sprint("owners=", owners), func(b *testing.B) {
			c := NewShared[int, int](20_000, 1, 10_000)
			names := make([]string, owners)
			for i := range names {
				names[i] = fmt.Sprint("owner", i)
			}
			i := 0
			for ; i < 20_000; i++ {
				c.put(names[i%owners], i, i, 1)
			}
			for b.Loop() {
				c.put(names[i%owners], i, i, 1)
				i++
			}
		})
	}
}

// BenchmarkGet gets cached values from several goroutines.
func BenchmarkGet(b *testing.B) {
	c := NewShared[int, int](10_000, 1, 10_000)
	for i := range 10_000 {
		c.put(fmt.Sprint("owner", i%100), i, i, 1)
	}
	b.RunParallel(func(pb *testing.PB) {
		for i := rand.IntN(10_000); pb.Next(); i = (i + 1) % 10_000 {
			if _, ok := c.Get(i); !ok {
				b.Error("a value is gone")
			}
		}
	})
}
