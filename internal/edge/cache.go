package edge

import (
	"container/list"
	"context"
	"sync"
)

// cache keeps the values used last, up to a cost, and loads one at most once at a time.
type cache[K comparable, V any] struct {
	limit   int64
	most    int64 // the highest cost of one value
	loading flights[K, V]

	mu    sync.Mutex // guards the rest
	cost  int64
	order list.List // of *cached, the one used last in front
	at    map[K]*list.Element
}

type cached[K comparable, V any] struct {
	key  K
	v    V
	cost int64
}

func newCache[K comparable, V any](limit int64) *cache[K, V] {
	return &cache[K, V]{limit: limit, most: limit / 4, at: map[K]*list.Element{}}
}

func (c *cache[K, V]) get(key K) (v V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	el, ok := c.at[key]
	if !ok {
		return v, false
	}
	c.order.MoveToFront(el)
	return el.Value.(*cached[K, V]).v, true
}

// put keeps v unless it alone would be more than most, a quarter of everything.
func (c *cache[K, V]) put(key K, v V, cost int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if el, ok := c.at[key]; ok {
		c.drop(el)
	}
	if cost > c.most {
		return
	}
	c.at[key] = c.order.PushFront(&cached[K, V]{key, v, cost})
	for c.cost += cost; c.cost > c.limit; {
		c.drop(c.order.Back())
	}
}

func (c *cache[K, V]) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.order.Init()
	clear(c.at)
	c.cost = 0
}

func (c *cache[K, V]) drop(el *list.Element) {
	e := c.order.Remove(el).(*cached[K, V])
	delete(c.at, e.key)
	c.cost -= e.cost
}

// fetch returns the value that is kept, or loads and keeps it. hit says which.
func (c *cache[K, V]) fetch(ctx context.Context, key K, load func(context.Context) (V, int64, error)) (v V, hit bool, err error) {
	if v, ok := c.get(key); ok {
		return v, true, nil
	}
	v, err = c.loading.do(ctx, key, func(ctx context.Context) (V, error) {
		v, cost, err := load(ctx)
		if err == nil {
			c.put(key, v, cost)
		}
		return v, err
	})
	return v, false, err
}
