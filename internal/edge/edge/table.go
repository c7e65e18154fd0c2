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

// The states of the view live.
const (
	stateLive    = "live"
	stateStopped = "stopped"
	stateEmpty   = "empty"
	stateError   = "error"
	stateDeleted = "deleted"
	statePaused  = "paused" // live in the view, and in the view paused_sites
)

// target holds what answers for a host. It is immutable; a switch replaces it.
type target struct {
	site       id.Site
	owner      id.Owner
	label      string
	release    release.ID
	deployment id.Deployment
	state      string
	backend    string // what answers while the state is live: files, program
	runtime    string // what kind of program
	node       string // where it is; empty: anywhere
	version    int64
	preview    bool         // the address of a deployment or a branch, not of the site
	visits     *visits.Site // nil where nobody counts

	capped // its owner's bandwidth

	earlier *earlier // releases of a program that open pages may still ask for; nil for none

	programs endpoint.Source // of its runtime; nil where there is none
	pages    endpoint.Pages  // the same, where it answers by itself for some paths; else nil
	passes   bool            // whether its endpoints may have an Upstream

	settings string        // of the view serving
	serving  *serving      // the same, read; nil for none
	answers  *ready.Source // of those in the table
}

// same reports whether a row brings nothing new.
func (t *target) same(n *target) bool {
	row := *n
	row.visits, row.answers, row.serving, row.earlier, row.programs, row.pages, row.passes = t.visits, t.answers, t.serving,
		t.earlier, t.programs, t.pages, t.passes
	return *t == row
}

// spent reports whether the target answers slowly: its owner's bandwidth is used up.
func (t *target) spent() bool { return t.reached && t.slow != nil }

// site is a host's place in the table: requests load the pointer once, Run stores it.
type site struct{ target atomic.Pointer[target] }

// hosts are all hosts at one moment, immutable but for what a site points to: a site that
// switches to another release keeps its place.
type hosts struct {
	labels trie.Trie[*site]  // below the site domain
	ids    trie.Trie[string] // site id → the label it has
	custom trie.Trie[*claim]
	round  uint64 // grows with each change
}

// slot returns the place that a label has, or nil.
func (h *hosts) slot(label string) *site {
	s, _ := h.labels.Get(label)
	return s
}

// slotOf returns the place that a site has, or nil.
func (h *hosts) slotOf(id id.Site) *site {
	if label, ok := h.ids.Get(string(id)); ok {
		if s := h.slot(label); s != nil && s.target.Load().site == id {
			return s
		}
	}
	return nil
}

// find returns what the label answers with, or nil.
func (h *hosts) find(label string) *target {
	if s := h.slot(label); s != nil {
		return s.target.Load()
	}
	return nil
}

// of returns what the site answers with, or nil.
func (h *hosts) of(id id.Site) *target {
	if s := h.slotOf(id); s != nil {
		if n := s.target.Load(); n.site == id {
			return n
		}
	}
	return nil
}

func (h *hosts) len() int { return h.labels.Len() + h.custom.Len() }

// table holds the hosts. Whoever asks takes them once and sees one moment whole, without a
// lock; a batch of changes is one swap.
type table struct {
	now    atomic.Pointer[hosts]
	counts bool       // whether visits are counted
	mu     sync.Mutex // guards changing, and owners
	// share: total one of each owner with a site; owner one; edge none: it is as long as the list of owners
	owners map[string]*visits.Owner
}

func (t *table) hosts() *hosts { return t.now.Load() }

// knows reports whether a site of an owner's was ever in it, and is counted.
func (t *table) knows(owner id.Owner) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.owners[string(owner)] != nil
}

// change makes changes to a copy and puts it into force.
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
	for _, l := range c.gone { // nobody finds them any more
		l.End()
	}
}

// changes are hosts that are being changed.
type changes struct {
	counts bool
	owners map[string]*visits.Owner
	labels *trie.Edit[*site]
	ids    *trie.Edit[string]
	custom *trie.Edit[*claim]
	gone   []*ready.Source
}

// owner returns what is kept of an owner's visits.
func (c *changes) owner(named string) *visits.Owner {
	if c.owners[named] == nil {
		c.owners[named] = &visits.Owner{ID: id.Owner(named)}
	}
	return c.owners[named]
}

// set takes a row over. A site that changed its label leaves the old one; a row older
// than what is known changes nothing.
func (c *changes) set(n *target) {
	if old, ok := c.ids.Get(string(n.site)); ok {
		if s, _ := c.labels.Get(old); s != nil && s.target.Load().site == n.site {
			if was := s.target.Load(); was.owner == n.owner {
				n.visits = was.visits // it goes on counting
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
		return // another site has taken the label since
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
	} else { // another site's place is another place, as long as somebody may hold the old one
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

// keep drops every site that is not in the set.
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
