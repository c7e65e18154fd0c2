package edge

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"slipway/internal/db"
	"slipway/internal/release"
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

// target is what a host answers with. It is immutable; a switch replaces it.
type target struct {
	site       string
	label      string
	release    release.ID
	deployment string
	state      string
	backend    string // what answers while the state is live: files, program
	node       string // where it is; empty: anywhere
	version    int64
	preview    bool    // the address of a deployment or a branch, not of the site
	visits     *visits // nil where nobody counts

	earlier *earlier // releases of a program that open pages may still ask for; nil for none

	settings string   // of the view serving
	serving  *serving // the same, read; nil for none
	life     *life    // of those in the table
}

// life is what changes about a target.
type life struct {
	seed uint64 // apart from others in tables of answers
	gone atomic.Bool
}

// same reports whether a row brings nothing new.
func (t *target) same(n *target) bool {
	row := *n
	row.visits, row.life, row.serving, row.earlier = t.visits, t.life, t.serving, t.earlier
	return *t == row
}

// site is a host's place in the table: requests load the pointer once, Run stores it.
type site struct{ target atomic.Pointer[target] }

// hosts are all hosts at one moment, immutable but for what a site points to: a site that
// switches to another release keeps its place.
type hosts struct {
	labels trie[*site]  // below the site domain
	ids    trie[string] // site id → the label it has
	custom trie[*claim]
	round  uint64 // grows with each change
}

// slot returns the place that a label has, or nil.
func (h *hosts) slot(label string) *site {
	s, _ := h.labels.get(label)
	return s
}

// slotOf returns the place that a site has, or nil.
func (h *hosts) slotOf(id string) *site {
	if label, ok := h.ids.get(id); ok {
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
func (h *hosts) of(id string) *target {
	if s := h.slotOf(id); s != nil {
		if n := s.target.Load(); n.site == id {
			return n
		}
	}
	return nil
}

func (h *hosts) len() int { return h.labels.n + h.custom.n }

// table holds the hosts. Whoever asks takes them once and sees one moment whole, without a
// lock; a batch of changes is one swap.
type table struct {
	now    atomic.Pointer[hosts]
	counts bool       // whether visits are counted
	mu     sync.Mutex // guards changing
}

func (t *table) hosts() *hosts { return t.now.Load() }

// change makes changes to a copy and puts it into force.
func (t *table) change(f func(*changes)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now.Load()
	c := &changes{counts: t.counts, labels: now.labels.edit(), ids: now.ids.edit(), custom: now.custom.edit()}
	f(c)
	if c.labels.changed || c.ids.changed || c.custom.changed {
		t.now.Store(&hosts{c.labels.trie, c.ids.trie, c.custom.trie, now.round + 1})
	}
	for _, l := range c.gone { // nobody finds them any more
		l.gone.Store(true)
	}
}

// changes are hosts that are being changed.
type changes struct {
	counts bool
	labels *edit[*site]
	ids    *edit[string]
	custom *edit[*claim]
	gone   []*life
}

// set takes a row over. A site that changed its label leaves the old one; a row older
// than what is known changes nothing.
func (c *changes) set(n *target) {
	if old, ok := c.ids.get(n.site); ok {
		if s, _ := c.labels.get(old); s != nil && s.target.Load().site == n.site {
			n.visits = s.target.Load().visits // it goes on counting
			if old != n.label {
				c.gone = append(c.gone, s.target.Load().life)
				c.labels.drop(old)
			}
		}
		if old != n.label {
			c.ids.drop(n.site)
		}
	}
	if n.visits == nil && c.counts {
		n.visits = &visits{site: n.site}
	}
	var before *target
	s, _ := c.labels.get(n.label)
	if s != nil {
		before = s.target.Load()
	}
	if before != nil && before.version > n.version {
		return // another site has taken the label since
	}
	if n.state == stateDeleted {
		if before != nil && before.site == n.site {
			c.gone = append(c.gone, before.life)
			c.labels.drop(n.label)
		}
		c.ids.drop(n.site)
		return
	}
	n.life = &life{seed: rand.Uint64()}
	if before != nil && before.site == n.site {
		s.target.Store(n)
	} else { // another site's place is another place, as long as somebody may hold the old one
		s = &site{}
		s.target.Store(n)
		c.labels.set(n.label, s)
	}
	if before != nil {
		c.gone = append(c.gone, before.life)
	}
	if have, _ := c.ids.get(n.site); have != n.label {
		c.ids.set(n.site, n.label)
	}
}

// keep drops every site that is not in the set.
func (c *changes) keep(sites map[string]bool) {
	before := c.ids.trie
	for id, label := range before.all {
		if !sites[id] {
			if s, _ := c.labels.get(label); s != nil && s.target.Load().site == id {
				c.gone = append(c.gone, s.target.Load().life)
				c.labels.drop(label)
			}
			c.ids.drop(id)
		}
	}
}

const (
	pollEvery = 500 * time.Millisecond
	// All rows are read again now and then: a row that vanished from the view says
	// nothing, and on PostgreSQL a lower version may become visible after a higher one.
	allEvery = 5 * time.Minute
)

// follow keeps the tables like the views live and custom_hosts.
func (e *Edge) follow(ctx context.Context) error {
	wake, stop := e.DB.Listen("live")
	defer stop()
	switched, unlisten := e.DB.Listen("previews")
	defer unlisten()
	pausing, unpause := e.DB.Listen("paused")
	defer unpause()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	var version, claimed int64
	var all, looked time.Time // when all rows were read last, and which sites are paused
	down := false
	for {
		var err error
		if time.Since(looked) > pausedEvery {
			var changed bool
			if changed, err = e.readPaused(ctx, time.Now()); err == nil {
				looked = time.Now()
			}
			if changed { // whoever is paused, or is not any more, is known by the rows
				all = time.Time{}
				e.previews.forget()
			}
		}
		if err != nil {
			// The database is away; so are the rows.
		} else if time.Since(all) > allEvery {
			start := time.Now()
			if version, claimed, err = e.readBoth(ctx, 0, 0); err == nil {
				all = start
				e.loaded.Store(true)
			}
		} else {
			version, claimed, err = e.readBoth(ctx, version, claimed)
		}
		if ctx.Err() != nil {
			return nil
		}
		if (err != nil) != down { // once when it goes, once when it is back
			if down = err != nil; down {
				e.Log.ErrorContext(ctx, "hosts not read; serving those known so far", "err", err)
			} else {
				e.Log.InfoContext(ctx, "hosts read again")
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-wake:
		case <-switched:
			e.previews.forget()
		case <-pausing:
			looked = time.Time{}
		case <-tick.C:
		}
	}
}

// readBoth reads what has changed and puts it into force at once. The rows of both views
// are ordered by one counter but read at two moments, so each has its mark.
func (e *Edge) readBoth(ctx context.Context, version, claimed int64) (int64, int64, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	rows, err := e.readLive(ctx, version)
	if err != nil {
		return version, claimed, err
	}
	custom, err := e.readClaims(ctx, claimed)
	if err != nil {
		custom = nil // sites are known all the same
	}
	e.prefetch(ctx, rows)
	before := e.table.hosts()
	deleted := false
	e.table.change(func(c *changes) {
		sites := map[string]bool{}
		all := version == 0
		for _, t := range rows {
			if have := before.find(t.label); have == nil || !have.same(t) {
				t.earlier = have.before(t, time.Now())
				c.set(t)
				deleted = deleted || t.state == stateDeleted
			}
			sites[t.site] = true
			version = max(version, t.version)
		}
		if all {
			c.keep(sites)
		}
		if err == nil {
			claimed = c.claims(custom, claimed)
		}
	})
	if deleted {
		e.previews.forget()
	}
	e.metrics.hosts.Set(float64(e.table.hosts().len()))
	return version, claimed, err
}

// readLive returns the rows above a version, or all at 0.
func (e *Edge) readLive(ctx context.Context, above int64) ([]*target, error) {
	floor := above
	if above == 0 {
		floor = -1
	}
	rows, err := e.DB.Query(ctx, `
		SELECT l.site_id, l.host_label, COALESCE(l.release, ''), COALESCE(l.deployment_id, ''), l.state, l.backend, l.node, l.version, COALESCE(s.settings, '')
		FROM live l LEFT JOIN serving s ON s.site_id = l.site_id
		WHERE l.version > $1 ORDER BY l.version`, floor)
	out, err := db.Collect(rows, err, func(s db.Scanner) (*target, error) {
		var t target
		err := s.Scan(&t.site, &t.label, &t.release, &t.deployment, &t.state, &t.backend, &t.node, &t.version, &t.settings)
		t.serving = readServing(t.settings)
		if t.state == stateLive && e.paused[t.site] {
			t.state = statePaused
		}
		return &t, err
	})
	if err != nil {
		return nil, fmt.Errorf("read live: %w", err)
	}
	return out, nil
}

// prefetch loads the new trees of sites that are being visited, so that the switch costs
// no visitor a wait.
func (e *Edge) prefetch(ctx context.Context, rows []*target) {
	for _, n := range rows {
		before := e.table.hosts().find(n.label)
		if before == nil || before.state != stateLive || n.state != stateLive || n.release == before.release {
			continue
		}
		if _, ok := e.trees.get(before.release); ok {
			if _, err := e.tree(ctx, n.release); err != nil {
				e.Log.ErrorContext(ctx, "release not readable", "site", n.site, "release", n.release, "err", err)
			}
		}
	}
}

// tree returns a release's tree from memory or from its manifest.
func (e *Edge) tree(ctx context.Context, id release.ID) (*release.Tree, error) {
	t, hit, err := e.trees.fetch(ctx, id, func(ctx context.Context) (*release.Tree, int64, error) {
		t, err := e.Releases.Load(ctx, id)
		if err != nil {
			return nil, 0, err
		}
		return t, t.Memory(), nil
	})
	e.metrics.cache("tree", hit)
	return t, err
}
