// Package cache owns values cached in memory: the most recently used, up to a total cost, each loaded by one caller at
// a time. Values can have owners, and no owner displaces the values of others beyond its share. ADR 0029 compares
// libraries that were measured.
package cache

import (
	"container/heap"
	"container/list"
	"context"
	"sync"
	"time"

	"slipway/internal/platform/panics"
)

// Cache keeps the most recently used values up to a total cost, and runs at most one load per value. It is safe for
// concurrent use.
type Cache[K comparable, V any] struct {
	limit   int64
	most    int64 // highest cost of one value
	share   int64 // highest cost of one owner's values
	loading flights[K, V]

	mu   sync.Mutex // guards the rest
	cost int64
	// share: total the cache's limit; owner the cache's share; edge see each cache
	at map[K]*list.Element
	// share: total the owners with values in it; owner one entry; edge gone with the last value
	owners map[string]*owned
	byCost ranking // owners, highest cost first
}

type owned struct {
	cost  int64
	place int       // index in the ranking
	order list.List // elements of *cached, most recently used first
}

// ranking is a heap of owners by the cost of their values. It finds the one with the highest cost without visiting all:
// with 10,000 owners that took 0.4 ms per put.
type ranking []*owned

func (r ranking) Len() int           { return len(r) }
func (r ranking) Less(i, j int) bool { return r[i].cost > r[j].cost }

func (r ranking) Swap(i, j int) {
	r[i], r[j] = r[j], r[i]
	r[i].place, r[j].place = i, j
}

func (r *ranking) Push(x any) {
	of := x.(*owned)
	of.place = len(*r)
	*r = append(*r, of)
}

func (r *ranking) Pop() any {
	last := len(*r) - 1
	of := (*r)[last]
	(*r)[last] = nil
	*r = (*r)[:last]
	return of
}

type cached[K comparable, V any] struct {
	key   K
	v     V
	cost  int64
	owner string
}

// New returns a Cache for values with a total cost of limit. A value that costs more than most isn't kept.
func New[K comparable, V any](limit, most int64) *Cache[K, V] {
	return NewShared[K, V](limit, most, limit)
}

// NewShared returns a Cache in which one owner's values cost at most share. If all cost more than limit, the owner with
// the highest cost loses a value.
func NewShared[K comparable, V any](limit, most, share int64) *Cache[K, V] {
	return &Cache[K, V]{limit: limit, most: min(most, share), share: share, at: map[K]*list.Element{}, owners: map[string]*owned{}}
}

// Get returns a cached value.
func (c *Cache[K, V]) Get(key K) (v V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	el, ok := c.at[key]
	if !ok {
		return v, false
	}
	e := el.Value.(*cached[K, V])
	c.owners[e.owner].order.MoveToFront(el)
	return e.v, true
}

func (c *Cache[K, V]) put(owner string, key K, v V, cost int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if el, ok := c.at[key]; ok {
		c.drop(el)
	}
	if cost > c.most {
		return
	}
	of := c.owners[owner]
	if of == nil {
		of = &owned{}
		c.owners[owner] = of
		heap.Push(&c.byCost, of)
	}
	c.at[key] = of.order.PushFront(&cached[K, V]{key, v, cost, owner})
	c.cost, of.cost = c.cost+cost, of.cost+cost
	heap.Fix(&c.byCost, of.place)
	for of.cost > c.share {
		c.drop(of.order.Back())
	}
	for c.cost > c.limit {
		c.drop(c.byCost[0].order.Back())
	}
}

// Clear drops everything.
func (c *Cache[K, V]) Clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.at)
	clear(c.owners)
	c.byCost = nil
	c.cost = 0
}

func (c *Cache[K, V]) drop(el *list.Element) {
	e := el.Value.(*cached[K, V])
	of := c.owners[e.owner]
	of.order.Remove(el)
	of.cost -= e.cost
	if of.order.Len() == 0 {
		delete(c.owners, e.owner)
		heap.Remove(&c.byCost, of.place)
	} else {
		heap.Fix(&c.byCost, of.place)
	}
	delete(c.at, e.key)
	c.cost -= e.cost
}

// Fetch returns the cached value, or loads and caches it. hit reports whether it was cached.
func (c *Cache[K, V]) Fetch(ctx context.Context, key K, load func(context.Context) (V, int64, error)) (v V, hit bool, err error) {
	return c.FetchFor(ctx, "", key, load)
}

// FetchFor is [Cache.Fetch] with an owner, who is charged if the value is loaded.
func (c *Cache[K, V]) FetchFor(
	ctx context.Context,
	owner string,
	key K,
	load func(context.Context) (V, int64, error),
) (v V, hit bool, err error) {
	if v, ok := c.Get(key); ok {
		return v, true, nil
	}
	v, err = c.LoadFor(ctx, owner, key, load)
	return v, false, err
}

// Load loads a value and its cost even if one is cached, and replaces it. Concurrent callers share one load.
func (c *Cache[K, V]) Load(ctx context.Context, key K, load func(context.Context) (V, int64, error)) (V, error) {
	return c.LoadFor(ctx, "", key, load)
}

// LoadFor is [Cache.Load] with an owner.
func (c *Cache[K, V]) LoadFor(ctx context.Context, owner string, key K, load func(context.Context) (V, int64, error)) (V, error) {
	return c.loading.do(ctx, key, func(ctx context.Context) (V, error) {
		v, cost, err := load(ctx)
		if err == nil {
			c.put(owner, key, v, cost)
		}
		return v, err
	})
}

// flights runs one load per key at a time. A waiting caller's context ends only its waiting.
type flights[K comparable, V any] struct {
	mu sync.Mutex // guards under
	// share: total the keys that are loaded at the time; owner as many as ask; edge none: who asks for the same waits for it
	under map[K]*flight[V]
}

type flight[V any] struct {
	done chan struct{}
	v    V
	err  error
}

func (f *flights[K, V]) do(ctx context.Context, key K, load func(context.Context) (V, error)) (V, error) {
	f.mu.Lock()
	if f.under == nil {
		f.under = map[K]*flight[V]{}
	}
	c, ok := f.under[key]
	if !ok {
		c = &flight[V]{done: make(chan struct{})}
		f.under[key] = c
		go func() {
			// The first caller may leave while others still wait.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
			defer cancel()
			c.err = panics.Call(func() (err error) { c.v, err = load(ctx); return err })
			f.mu.Lock()
			delete(f.under, key)
			f.mu.Unlock()
			close(c.done)
		}()
	}
	f.mu.Unlock()
	select {
	case <-c.done:
		return c.v, c.err
	case <-ctx.Done():
		var none V
		return none, ctx.Err()
	}
}
