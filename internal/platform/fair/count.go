package fair

import (
	"maps"
	"sync"

	"slipway/internal/platform/id"
)

// Count counts what each owner has at once. The zero Count is ready, and safe for concurrent use.
type Count struct {
	mu sync.Mutex         // guards up
	up map[id.Owner]int64 // share: total those that have something; owner one entry; edge gone with the last of it
}

// Enter counts one more in, if an owner has fewer than most. up is how many it has then.
func (c *Count) Enter(owner id.Owner, most int64) (up int64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.up[owner] >= most {
		return c.up[owner], false
	}
	if c.up == nil {
		c.up = map[id.Owner]int64{}
	}
	c.up[owner]++
	return c.up[owner], true
}

// Leave counts one out.
func (c *Count) Leave(owner id.Owner) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.up[owner]--
	if c.up[owner] <= 0 {
		delete(c.up, owner)
	}
}

// Of returns how many an owner has.
func (c *Count) Of(owner id.Owner) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.up[owner]
}

// All returns how many each owner has.
func (c *Count) All() map[id.Owner]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.up)
}
