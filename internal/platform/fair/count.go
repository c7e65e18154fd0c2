package fair

import (
	"maps"
	"sync"

	"slipway/internal/platform/id"
)

// Count counts concurrent uses per owner. The zero Count is ready to use. It is safe for concurrent use.
type Count struct {
	mu sync.Mutex         // guards up
	up map[id.Owner]int64 // share: total those that have something; owner one entry; edge gone with the last of it
}

// Enter adds one for an owner who has fewer than most, and reports whether it did. up is the owner's count.
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

// Leave removes one.
func (c *Count) Leave(owner id.Owner) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.up[owner]--
	if c.up[owner] <= 0 {
		delete(c.up, owner)
	}
}

// Of returns an owner's count.
func (c *Count) Of(owner id.Owner) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.up[owner]
}

// All returns all counts.
func (c *Count) All() map[id.Owner]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.up)
}
