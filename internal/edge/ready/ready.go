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

// Source identifies what responses are made from, such as one release of a site. A new release has a new Source.
type Source struct {
	seed  uint64 // keeps sources apart in the hash
	ended atomic.Bool
}

// NewSource returns a new Source.
func NewSource() *Source { return &Source{seed: rand.Uint64()} }

// End says that responses of a source are no longer requested.
func (s *Source) End() { s.ended.Store(true) }

// Table keeps responses by source, host, path and accepted encodings. It evicts those of ended sources first. It is
// safe for concurrent use.
type Table struct {
	seed  maphash.Seed
	slots []atomic.Pointer[Answer] // length is a power of two; an answer is in one of ways adjacent slots
	limit int64

	mu    sync.Mutex // serializes Put
	bytes int64
	// share: none, see the cache of answers: the bodies that it holds
	bodies map[*byte]int // number of answers per body: a shared body counts once
	hand   int           // where the next eviction starts
}

const ways = 4

// Answer is a prepared response. It must not change once it is in a Table.
type Answer struct {
	*fastpath.Answer
	visits.Page // per host, since rules may differ between a site's hosts

	Source  *Source
	Accepts fastpath.Encodings
	Log     string // the site's access log setting
	Version any    // version of the content within a source; nil if it doesn't change
	Second  int64  // second for which Age is right; only with Version

	hash uint64
	used atomic.Bool // used since the eviction hand passed last
}

// New returns a Table that holds at most limit bytes.
func New(limit int64) *Table {
	n := ways
	for int64(n) < limit/1024 { // headers take memory too
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

// Put keeps an answer and evicts less used ones.
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
	for n := 0; h.bytes > h.limit && n < 2*len(h.slots); n++ { // two rounds always free enough
		h.hand = (h.hand + 1) & (len(h.slots) - 1)
		if old := h.slots[h.hand].Load(); old != nil && (old.Source.ended.Load() || !old.used.Swap(false)) {
			h.drop(h.hand)
		}
	}
}

// drop empties a slot. The caller holds h.mu.
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
