package edge

import (
	"hash/maphash"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"slipway/internal/fastpath"
)

// hot keeps whole answers that are ready to be sent, by target, host, path and
// accepted encodings. Looking one up takes no lock and allocates nothing. A target is immutable
// and a switch replaces it, so an answer is never stale: those of a target that is no
// longer live are not found any more and are evicted. Pages of programs are compared with
// what their keeper has at each request.
type hot struct {
	seed  maphash.Seed
	slots []atomic.Pointer[hotAnswer] // a power of two; an answer is in one of hotWays neighbours
	limit int64

	mu     sync.Mutex // guards putting
	bytes  int64
	bodies map[*byte]int // how many answers have a body: it is counted once
	hand   int           // where the next eviction begins
}

const hotWays = 4

type hotAnswer struct {
	*fastpath.Answer
	hash    uint64
	target  *target
	host    string // of several that lead to a site, rules may tell one from the other
	path    string
	accepts fastpath.Encodings
	page    bool
	of      any          // Config.Page's, or the entity tag of a program's file; nil: it is of the target's release
	second  int64        // that its Age is right for; only with of
	used    atomic.Bool  // since the hand came by last
	hits    atomic.Int64 // of a page, since they were collected
}

func newHot(limit int64) *hot {
	n := hotWays
	for int64(n) < limit/1024 { // there are headers, too
		n *= 2
	}
	return &hot{seed: maphash.MakeSeed(), slots: make([]atomic.Pointer[hotAnswer], n), limit: limit, bodies: map[*byte]int{}}
}

func (h *hot) hash(t *target, host string, path []byte, accepts fastpath.Encodings) uint64 {
	return maphash.Bytes(h.seed, path) ^ maphash.String(h.seed, host) ^ (t.life.seed+uint64(accepts))*0x9e3779b97f4a7c15
}

func (h *hot) get(t *target, host string, path []byte, accepts fastpath.Encodings) *hotAnswer {
	sum := h.hash(t, host, path, accepts)
	at := int(sum) & (len(h.slots) - 1) &^ (hotWays - 1)
	for i := range hotWays {
		a := h.slots[at+i].Load()
		if a != nil && a.hash == sum && a.target == t && a.accepts == accepts && a.path == string(path) && a.host == host {
			if !a.used.Load() {
				a.used.Store(true)
			}
			return a
		}
	}
	return nil
}

// put keeps an answer, in place of one that is used less.
func (h *hot) put(a *hotAnswer) {
	a.hash = h.hash(a.target, a.host, []byte(a.path), a.accepts)
	a.used.Store(true)
	h.mu.Lock()
	defer h.mu.Unlock()
	at := int(a.hash) & (len(h.slots) - 1) &^ (hotWays - 1)
	place := at + rand.IntN(hotWays)
	for i := range hotWays {
		old := h.slots[at+i].Load()
		if old == nil || old.target.life.gone.Load() || old.hash == a.hash && old.target == a.target && old.accepts == a.accepts && old.path == a.path && old.host == a.host {
			place = at + i
			break
		}
		if !old.used.Load() {
			place = at + i
		}
	}
	h.drop(place)
	h.slots[place].Store(a)
	h.bytes += a.cost()
	if b := a.Body(); len(b) > 0 {
		if h.bodies[&b[0]]++; h.bodies[&b[0]] == 1 {
			h.bytes += int64(len(b))
		}
	}
	for n := 0; h.bytes > h.limit && n < 2*len(h.slots); n++ { // twice around finds enough
		h.hand = (h.hand + 1) & (len(h.slots) - 1)
		if old := h.slots[h.hand].Load(); old != nil && (old.target.life.gone.Load() || !old.used.Swap(false)) {
			h.drop(h.hand)
		}
	}
}

// drop empties a slot. h.mu is held.
func (h *hot) drop(i int) {
	a := h.slots[i].Swap(nil)
	if a == nil {
		return
	}
	h.bytes -= a.cost()
	if b := a.Body(); len(b) > 0 {
		if h.bodies[&b[0]]--; h.bodies[&b[0]] == 0 {
			delete(h.bodies, &b[0])
			h.bytes -= int64(len(b))
		}
	}
}

func (a *hotAnswer) cost() int64 { return a.Size() + int64(len(a.path)) + 180 }
