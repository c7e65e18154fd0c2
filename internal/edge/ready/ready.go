// Package ready owns complete responses in memory for package fastpath: found without a lock
// or an allocation, limited by their total size, and dropped when they are replaced.
package ready

import (
	"hash/maphash"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"slipway/internal/edge/fastpath"
	"slipway/internal/edge/visits"
)

// Source stands for what answers are of, such as one release at a site's place. What
// takes its place is another one.
type Source struct {
	seed  uint64 // apart from others
	ended atomic.Bool
}

// NewSource returns a Source that no answer is of yet.
func NewSource() *Source { return &Source{seed: rand.Uint64()} }

// End says that nobody asks for answers of a source any more.
func (s *Source) End() { s.ended.Store(true) }

// Table keeps answers by source, host, path and accepted encodings. Those of a source that has
// ended are evicted first. It is safe for concurrent use.
type Table struct {
	seed  maphash.Seed
	slots []atomic.Pointer[Answer] // a power of two; an answer is in one of ways neighbours
	limit int64

	mu    sync.Mutex // guards putting
	bytes int64
	// share: none, see the cache of answers: the bodies that it holds
	bodies map[*byte]int // how many answers have a body: it is counted once
	hand   int           // where the next eviction begins
}

const ways = 4

// Answer is one that is ready. Once it has been put into a Table it must not be changed.
type Answer struct {
	*fastpath.Answer
	visits.Page // of several hosts that lead to a site, rules may tell one from the other

	Source  *Source
	Accepts fastpath.Encodings
	Log     string // the site's setting for its access log
	Version any    // of what changes below a source; nil where nothing does
	Second  int64  // that its Age is right for; only with Version

	hash uint64
	used atomic.Bool // since the hand came by last
}

// New returns a Table for so many bytes.
func New(limit int64) *Table {
	n := ways
	for int64(n) < limit/1024 { // there are headers, too
		n *= 2
	}
	return &Table{seed: maphash.MakeSeed(), slots: make([]atomic.Pointer[Answer], n), limit: limit, bodies: map[*byte]int{}}
}

func (h *Table) hash(of *Source, host string, path []byte, accepts fastpath.Encodings) uint64 {
	return maphash.Bytes(h.seed, path) ^ maphash.String(h.seed, host) ^ (of.seed+uint64(accepts))*0x9e3779b97f4a7c15
}

// Get returns an answer, or nil.
func (h *Table) Get(of *Source, host string, path []byte, accepts fastpath.Encodings) *Answer {
	sum := h.hash(of, host, path, accepts)
	at := int(sum) & (len(h.slots) - 1) &^ (ways - 1)
	for i := range ways {
		a := h.slots[at+i].Load()
		if a != nil && a.hash == sum && a.Source == of && a.Accepts == accepts && a.Path == string(path) && a.Host == host {
			if !a.used.Load() {
				a.used.Store(true)
			}
			return a
		}
	}
	return nil
}

// Put keeps an answer, in place of one that is used less.
func (h *Table) Put(a *Answer) {
	a.hash = h.hash(a.Source, a.Host, []byte(a.Path), a.Accepts)
	a.used.Store(true)
	h.mu.Lock()
	defer h.mu.Unlock()
	at := int(a.hash) & (len(h.slots) - 1) &^ (ways - 1)
	place := at + rand.IntN(ways)
	for i := range ways {
		old := h.slots[at+i].Load()
		if old == nil || old.Source.ended.Load() ||
			old.hash == a.hash && old.Source == a.Source && old.Accepts == a.Accepts && old.Path == a.Path && old.Host == a.Host {
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
		h.bodies[&b[0]]++
		if h.bodies[&b[0]] == 1 {
			h.bytes += int64(len(b))
		}
	}
	for n := 0; h.bytes > h.limit && n < 2*len(h.slots); n++ { // twice around finds enough
		h.hand = (h.hand + 1) & (len(h.slots) - 1)
		if old := h.slots[h.hand].Load(); old != nil && (old.Source.ended.Load() || !old.used.Swap(false)) {
			h.drop(h.hand)
		}
	}
}

// drop empties a slot. h.mu is held.
func (h *Table) drop(i int) {
	a := h.slots[i].Swap(nil)
	if a == nil {
		return
	}
	h.bytes -= a.cost()
	if b := a.Body(); len(b) > 0 {
		h.bodies[&b[0]]--
		if h.bodies[&b[0]] == 0 {
			delete(h.bodies, &b[0])
			h.bytes -= int64(len(b))
		}
	}
}

func (a *Answer) cost() int64 { return a.Size() + int64(len(a.Path)) + 180 }
