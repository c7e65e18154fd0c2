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

type table struct {
	mu     sync.RWMutex // guards hosts, labels; not what a site points to
	hosts  map[string]*site
	labels map[string]string // site id → the label it has in hosts
	counts bool              // whether visits are counted
}

// slot returns the place that a label has, or nil.
func (t *table) slot(label string) *site {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.hosts[label]
}

// slotOf returns the place that a site has, or nil.
func (t *table) slotOf(id string) *site {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if label, ok := t.labels[id]; ok {
		if s := t.hosts[label]; s != nil && s.target.Load().site == id {
			return s
		}
	}
	return nil
}

// find returns what the label answers with, or nil.
func (t *table) find(label string) *target {
	s := t.slot(label)
	if s == nil {
		return nil
	}
	return s.target.Load()
}

// set takes a row over and returns what stood there before, or nil. A site that changed
// its label leaves the old one; a row older than what is known changes nothing.
func (t *table) set(n *target) (before *target) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if old, ok := t.labels[n.site]; ok {
		if s := t.hosts[old]; s != nil && s.target.Load().site == n.site {
			n.visits = s.target.Load().visits // it goes on counting
			if old != n.label {
				s.target.Load().life.gone.Store(true)
				delete(t.hosts, old)
			}
		}
		if old != n.label {
			delete(t.labels, n.site)
		}
	}
	if n.visits == nil && t.counts {
		n.visits = &visits{site: n.site}
	}
	s := t.hosts[n.label]
	if s != nil {
		before = s.target.Load()
	}
	if before != nil && before.version > n.version {
		return before // another site has taken the label since
	}
	if n.state == stateDeleted {
		if before != nil && before.site == n.site {
			before.life.gone.Store(true)
			delete(t.hosts, n.label)
		}
		delete(t.labels, n.site)
		return before
	}
	if s == nil {
		s = &site{}
		t.hosts[n.label] = s
	}
	n.life = &life{seed: rand.Uint64()}
	s.target.Store(n)
	if before != nil {
		before.life.gone.Store(true)
	}
	t.labels[n.site] = n.label
	return before
}

// keep drops every site that is not in the set.
func (t *table) keep(sites map[string]bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, label := range t.labels {
		if !sites[id] {
			if s := t.hosts[label]; s != nil && s.target.Load().site == id {
				s.target.Load().life.gone.Store(true)
				delete(t.hosts, label)
			}
			delete(t.labels, id)
		}
	}
}

// of returns what the site answers with, or nil.
func (t *table) of(site string) *target {
	t.mu.RLock()
	defer t.mu.RUnlock()
	label, ok := t.labels[site]
	if !ok {
		return nil
	}
	if s := t.hosts[label]; s != nil {
		if n := s.target.Load(); n.site == site {
			return n
		}
	}
	return nil
}

func (t *table) len() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.hosts)
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
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	var version, claimed int64
	var all time.Time // when all rows were read last
	down := false
	for {
		var err error
		if time.Since(all) > allEvery {
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
		case <-tick.C:
		}
	}
}

// readBoth reads sites before custom hosts: who finds a custom host finds its site. The
// rows of both are ordered by one counter but read at two moments, so each has its mark.
func (e *Edge) readBoth(ctx context.Context, version, claimed int64) (int64, int64, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	version, err := e.read(ctx, version)
	if err != nil {
		return version, claimed, err
	}
	claimed, err = e.readClaims(ctx, claimed)
	e.metrics.hosts.Set(float64(e.table.len() + e.claims.len()))
	return version, claimed, err
}

// read takes over the rows above a version and returns the highest seen; above 0 those
// are changes, at 0 they are everything there is.
func (e *Edge) read(ctx context.Context, above int64) (int64, error) {
	floor := above
	if above == 0 {
		floor = -1
	}
	rows, err := e.DB.Query(ctx, `
		SELECT l.site_id, l.host_label, COALESCE(l.release, ''), COALESCE(l.deployment_id, ''), l.state, l.backend, l.node, l.version, COALESCE(s.settings, '')
		FROM live l LEFT JOIN serving s ON s.site_id = l.site_id
		WHERE l.version > $1 ORDER BY l.version`, floor)
	changes, err := db.Collect(rows, err, func(s db.Scanner) (*target, error) {
		var t target
		err := s.Scan(&t.site, &t.label, &t.release, &t.deployment, &t.state, &t.backend, &t.node, &t.version, &t.settings)
		t.serving = readServing(t.settings)
		return &t, err
	})
	if err != nil {
		return above, fmt.Errorf("read live: %w", err)
	}
	seen := map[string]bool{}
	highest := above
	for _, t := range changes {
		e.change(ctx, t)
		seen[t.site] = true
		highest = max(highest, t.version)
	}
	if above == 0 {
		e.table.keep(seen)
		e.moves.Add(1)
	}
	return highest, nil
}

// change puts a row into force. A site that is being visited gets its new tree loaded
// first, so that the switch costs no visitor a wait.
func (e *Edge) change(ctx context.Context, n *target) {
	before := e.table.find(n.label)
	if before != nil && before.same(n) {
		return
	}
	if before != nil && before.state == stateLive && n.state == stateLive && n.release != before.release {
		if _, ok := e.trees.get(before.release); ok {
			if _, err := e.tree(ctx, n.release); err != nil {
				e.Log.ErrorContext(ctx, "release not readable", "site", n.site, "release", n.release, "err", err)
			}
		}
	}
	n.earlier = before.before(n, time.Now())
	e.table.set(n)
	if before == nil || before.site != n.site || n.state == stateDeleted {
		e.moves.Add(1)
	}
	if n.state == stateDeleted {
		e.previews.forget()
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
