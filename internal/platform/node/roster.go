package node

import (
	"context"
	"errors"
	"sync"
	"time"

	"slipway/internal/platform/db"
)

const (
	rosterAge = 3 * time.Second        // how long a node that was on the list is taken for one that still is
	rosterNew = 100 * time.Millisecond // between two readings because of nodes that aren't on the list
	rosterAsk = time.Second            // for a reading
)

// Roster says which nodes others may be connected with: those on the list, down ones included. A node that is forgotten is off it
// within seconds. While the database is away, the list that was read last counts. It is safe for concurrent use.
type Roster struct {
	d       *db.DB
	version string

	mu    sync.Mutex // guards the rest
	asked time.Time  // when the list was last asked for, or read where it was
	fails bool       // it was not read then
	// share: total the nodes of the installation; owner the operator; edge the list has at most 1000
	known map[string]bool
	mixed bool // a node of another version runs
}

// NewRoster returns a Roster for a node of this version.
func NewRoster(d *db.DB, version string) *Roster { return &Roster{d: d, version: version} }

// Admit is nil for the id of a node on the list. An empty id is that of versions whose certificates name no node: it is admitted while
// a node of another version runs, as during an upgrade.
func (r *Roster) Admit(ctx context.Context, id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	wait := rosterAge
	if !r.has(id) && !r.fails {
		wait = rosterNew
	}
	if time.Since(r.asked) >= wait {
		ctx, done := context.WithTimeout(ctx, rosterAsk)
		defer done()
		list, err := List(ctx, r.d)
		r.asked, r.fails = time.Now(), err != nil
		switch {
		case err == nil:
			r.known, r.mixed = map[string]bool{}, false
			for _, n := range list {
				r.known[n.ID] = true
				r.mixed = r.mixed || n.State != Down && n.Version != r.version
			}
		case r.known == nil:
			return err
		}
	}
	if !r.has(id) {
		return errors.New("the other side is not on the installation's list of nodes")
	}
	return nil
}

func (r *Roster) has(id string) bool { return r.known[id] || id == "" && r.mixed }
