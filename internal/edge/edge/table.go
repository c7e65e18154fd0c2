package edge

import (
	"sync"
	"sync/atomic"

	"slipway/internal/platform/id"

	"slipway/internal/build/release"
	"slipway/internal/edge/endpoint"
	"slipway/internal/edge/ready"
	"slipway/internal/edge/visits"
	"slipway/internal/platform/trie"
)

// States in the view live.
const (
	stateLive    = "live"
	stateStopped = "stopped"
	stateEmpty   = "empty"
	stateError   = "error"
	stateDeleted = "deleted"
	statePaused  = "paused" // live in the view live, and listed in paused_sites
)

// target is what answers for a host. It is immutable; a switch replaces it.
type target struct {
	site       id.Site
	owner      id.Owner
	label      string
	release    release.ID
	deployment id.Deployment
	state      string
	backend    string // files or program, while the state is live
	runtime    string // kind of program
	node       string // node that runs it; empty: any
	version    int64
	preview    bool         // address of a deployment or branch, not of the site
	visits     *visits.Site // nil if visits aren't counted

	capped // the owner's bandwidth limit

	earlier *earlier // earlier releases of a program that open pages may still request; nil if none

	programs endpoint.Source // source of its runtime; nil if none
	pages    endpoint.Pages  // set if programs has pages of its own
	ruler    endpoint.Ruler  // set if rules apply to its programs
	passes   bool            // its endpoints may have an Upstream

	settings string        // JSON from the view serving
	serving  *serving      // settings, parsed; nil if none
	answers  *ready.Source // source of prepared responses, for targets in the table
}

// same reports whether a row changes nothing.
func (t *target) same(n *target) bool {
	row := *n
	row.visits, row.answers, row.serving, row.earlier, row.programs, row.pages, row.ruler, row.passes = t.visits, t.answers,
		t.serving, t.earlier, t.programs, t.pages, t.ruler, t.passes
	return *t == row
}

// spent reports whether the target answers slowly because its owner's bandwidth is used up.
func (t *target) spent() bool { return t.reached && t.slow != nil }

// site is a slot in the table: Run stores the target, requests load it once.
type site struct{ target atomic.Pointer[target] }

// hosts is a snapshot of all hosts, immutable except for the targets in its slots: a site that switches releases keeps
// its slot.
type hosts struct {
	labels trie.Trie[*site]  // by label below the site domain
	ids    trie.Trie[string] // label by site id
	custom trie.Trie[*claim]
	round  uint64 // increases with each change
}

// slot returns a label's slot, or nil.
func (h *hosts) slot(label string) *site {
	s, _ := h.labels.Get(label)
	return s
}

// slotOf returns a site's slot, or nil.
func (h *hosts) slotOf(id id.Site) *site {
	if label, ok := h.ids.Get(string(id)); ok {
		if s := h.slot(label); s != nil && s.target.Load().site == id {
			return s
		}
	}
	return nil
}

// find returns a label's target, or nil.
func (h *hosts) find(label string) *target {
	if s := h.slot(label); s != nil {
		return s.target.Load()
	}
	return nil
}

// of returns a site's target, or nil.
func (h *hosts) of(id id.Site) *target {
	if s := h.slotOf(id); s != nil {
		if n := s.target.Load(); n.site == id {
			return n
		}
	}
	return nil
}

func (h *hosts) len() int { return h.labels.Len() + h.custom.Len() }

// table holds the current hosts. Readers load the snapshot once, without a lock; a batch of changes swaps it once.
type table struct {
	now    atomic.Pointer[hosts]
	counts bool       // visits are counted
	mu     sync.Mutex // guards owners and serializes changes
	// share: total one of each owner with a site; owner one; edge none: it is as long as the list of owners
	owners map[string]*visits.Owner
}

func (t *table) hosts() *hosts { return t.now.Load() }

// knows reports whether visits of an owner's sites are counted.
func (t *table) knows(owner id.Owner) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.owners[string(owner)] != nil
}

// change applies changes to a copy and swaps it in.
func (t *table) change(f func(*changes)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now.Load()
	if t.owners == nil {
		t.owners = map[string]*visits.Owner{}
	}
	c := &changes{owners: t.owners, counts: t.counts, labels: now.labels.Edit(), ids: now.ids.Edit(), custom: now.custom.Edit()}
	f(c)
	if c.labels.Changed() || c.ids.Changed() || c.custom.Changed() {
		t.now.Store(&hosts{c.labels.Trie, c.ids.Trie, c.custom.Trie, now.round + 1})
	}
	for _, l := range c.gone { // no longer found by any request
		l.End()
	}
}

// changes is a snapshot under construction.
type changes struct {
	counts bool
	owners map[string]*visits.Owner
	labels *trie.Edit[*site]
	ids    *trie.Edit[string]
	custom *trie.Edit[*claim]
	gone   []*ready.Source
}

// owner returns the visit counters of an owner.
func (c *changes) owner(named string) *visits.Owner {
	if c.owners[named] == nil {
		c.owners[named] = &visits.Owner{ID: id.Owner(named)}
	}
	return c.owners[named]
}

// set applies a row. A site that changed its label leaves the old one. Rows older than the known ones are ignored.
func (c *changes) set(n *target) {
	if old, ok := c.ids.Get(string(n.site)); ok {
		if s, _ := c.labels.Get(old); s != nil && s.target.Load().site == n.site {
			if was := s.target.Load(); was.owner == n.owner {
				n.visits = was.visits // keep the counters
			}
			if old != n.label {
				c.gone = append(c.gone, s.target.Load().answers)
				c.labels.Drop(old)
			}
		}
		if old != n.label {
			c.ids.Drop(string(n.site))
		}
	}
	if n.visits == nil && c.counts {
		n.visits = visits.NewSite(n.site, c.owner(string(n.owner)))
	}
	var before *target
	s, _ := c.labels.Get(n.label)
	if s != nil {
		before = s.target.Load()
	}
	if before != nil && before.version > n.version {
		return // another site has the label now
	}
	if n.state == stateDeleted {
		if before != nil && before.site == n.site {
			c.gone = append(c.gone, before.answers)
			c.labels.Drop(n.label)
		}
		c.ids.Drop(string(n.site))
		return
	}
	n.answers = ready.NewSource()
	if before != nil && before.site == n.site {
		s.target.Store(n)
	} else { // a new site needs a new slot, since requests may still hold the old one
		s = &site{}
		s.target.Store(n)
		c.labels.Set(n.label, s)
	}
	if before != nil {
		c.gone = append(c.gone, before.answers)
	}
	if have, _ := c.ids.Get(string(n.site)); have != n.label {
		c.ids.Set(string(n.site), n.label)
	}
}

// keep removes every site that isn't in the set.
func (c *changes) keep(sites map[id.Site]bool) {
	before := c.ids.Trie
	for named, label := range before.All {
		if !sites[id.Site(named)] {
			if s, _ := c.labels.Get(label); s != nil && string(s.target.Load().site) == named {
				c.gone = append(c.gone, s.target.Load().answers)
				c.labels.Drop(label)
			}
			c.ids.Drop(named)
		}
	}
}
