// Package placement owns on which node a site's programs run.
//
// All of a site's programs, workers and commands run on one node: the one that first started one of them. It keeps the site
// while its lease lasts (package node); after that, or while it drains, another node may take what has no files or databases of
// its own. A site that has them is pinned: it waits for its node. On SQLite there is one node, and nothing is
// asked or written.
//
// The package starts and stops nothing.
package placement

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/job"
	"slipway/internal/platform/node"
)

// Topic is notified when sites get other nodes.
const Topic = "placements"

// The codes of faults that say why a site can't run here.
const (
	OnAnotherNode = "on_another_node"
	NodeDown      = "node_down"
	NodeDraining  = "node_draining"
)

// Places says where sites run. Nil is an installation of one node. It is safe for concurrent use.
type Places struct {
	db   *db.DB
	self *node.Self
}

// New returns Places for a node; nil where there can be no other.
func New(d *db.DB, self *node.Self) *Places {
	if d.Single() {
		return nil
	}
	return &Places{d, self}
}

// Self names this node; empty: there is no other.
func (p *Places) Self() string {
	if p == nil {
		return ""
	}
	return p.self.ID()
}

// Others returns how many sites have files or databases on other nodes alone.
func (p *Places) Others(ctx context.Context) (n int, err error) {
	if p == nil {
		return 0, nil
	}
	if err := p.db.QueryRow(ctx, `SELECT count(*) FROM placements WHERE pinned AND node <> $1`, p.self.ID()).Scan(&n); err != nil {
		return 0, fmt.Errorf("count sites of other nodes: %w", err)
	}
	return n, nil
}

// Takes reports whether this node may begin to run something new.
func (p *Places) Takes() bool { return p == nil || p.self.Takes() }

// Draining reports whether this node gives away what it runs.
func (p *Places) Draining() bool { return p != nil && p.self.Draining() }

// Pinned reports whether a site can't leave its node, or that is not known.
func (p *Places) Pinned(ctx context.Context, site string) bool {
	at, found, err := p.Of(ctx, site)
	return err != nil || found && at.Pinned
}

// Counts returns how many sites each node has, and how many of these can't leave it.
func Counts(ctx context.Context, r db.Reader) (sites, pinned map[string]int, err error) {
	sites, pinned = map[string]int{}, map[string]int{}
	rows, err := r.Query(ctx, `SELECT node, count(*), count(*) FILTER (WHERE pinned) FROM placements GROUP BY node`)
	type count struct {
		node     string
		all, pin int
	}
	list, err := db.Collect(rows, err, func(s db.Scanner) (c count, err error) { return c, s.Scan(&c.node, &c.all, &c.pin) })
	if err != nil {
		return nil, nil, fmt.Errorf("count sites of nodes: %w", err)
	}
	for _, c := range list {
		sites[c.node], pinned[c.node] = c.all, c.pin
	}
	return sites, pinned, nil
}

// Sure reports whether what runs here is this node's for certain, for whoever has compared its sites since that many lapses.
func (p *Places) Sure(lapses int64) bool {
	return p == nil || p.self.Holds() && p.self.Lapses() == lapses
}

// Lapses returns how often others may have taken sites of this node over, because its lease had ended.
func (p *Places) Lapses() int64 {
	if p == nil {
		return 0
	}
	return p.self.Lapses()
}

// Confirm renews the lease of this node where it has ended, so that its sites can be compared.
func (p *Places) Confirm(ctx context.Context) error { return p.self.Confirm(ctx) }

// Lost returns a channel that is told when this node's lease was found to have ended; nil where it can't.
func (p *Places) Lost() <-chan struct{} {
	if p == nil {
		return nil
	}
	return p.self.Lost()
}

// Place is the node of a site.
type Place struct {
	Node    string // its id
	Name    string
	Address string // at which other nodes reach it; empty: they don't
	State   string // node.Up, node.Draining or node.Down
	Pinned  bool
	Ended   db.Time // when its lease did, where it is down
}

// Of returns the node of a site; found is false where it has none.
func (p *Places) Of(ctx context.Context, site string) (at Place, found bool, err error) {
	if p == nil {
		return at, false, nil
	}
	err = p.db.QueryRow(ctx, `
		SELECT p.node, p.pinned, COALESCE(n.name, p.node), COALESCE(n.address, ''),
			CASE WHEN n.lease_until > $2 THEN n.state ELSE 'down' END, COALESCE(n.ended, 0)
		FROM placements p LEFT JOIN live_nodes n ON n.id = p.node WHERE p.site_id = $1`, site, p.db.Now()).
		Scan(&at.Node, &at.Pinned, &at.Name, &at.Address, &at.State, &at.Ended)
	if errors.Is(err, sql.ErrNoRows) {
		return at, false, nil
	}
	if err != nil {
		return at, false, fmt.Errorf("find node of site: %w", err)
	}
	return at, true, nil
}

// Away is the error of what belongs to another node. It carries a fault for whoever asked.
type Away struct{ Place }

func (a *Away) Error() string { return a.fault().Error() }

// Unwrap returns the fault.
func (a *Away) Unwrap() error { return a.fault() }

func (a *Away) fault() *fault.Error {
	if a.State == node.Down {
		return &fault.Error{
			Kind: fault.Unavailable, Code: NodeDown, RetryAfter: 30 * time.Second,
			Message: "The site's files are on the node " + a.Name + ", which is down",
		}
	}
	return &fault.Error{
		Kind: fault.Unavailable, Code: OnAnotherNode, RetryAfter: 5 * time.Second,
		Message: "The site runs on the node " + a.Name,
	}
}

// mine reports whether a site's node is this one, which it stays for as long as this node's lease lasts.
func (p *Places) mine(at Place) bool { return at.Node == p.self.ID() }

// free reports whether another node may take the site.
func (a Place) free() bool { return !a.Pinned && a.State != node.Up }

// Look returns nil where a site's programs run here, or on no node that would have to be asked, and else an Away. It
// changes nothing.
func (p *Places) Look(ctx context.Context, site string) error {
	at, found, err := p.Of(ctx, site)
	if err != nil || !found || p.mine(at) || at.free() {
		return err
	}
	return &Away{at}
}

// Take makes this node the site's, where no other one is, and returns an Away where one is. What a site has on this node
// pins it.
func (p *Places) Take(ctx context.Context, site string, pinned bool) error {
	if p == nil {
		return nil
	}
	at, found, err := p.Of(ctx, site)
	if err != nil {
		return err
	}
	switch {
	case found && p.mine(at) && (at.Pinned || !pinned) && p.self.Holds():
		return nil
	case found && !p.mine(at) && !at.free():
		return &Away{at}
	case !p.self.Takes() && !(found && p.mine(at) && p.self.Holds()):
		return &fault.Error{
			Kind: fault.Unavailable, Message: "This node takes no new programs at the moment", Code: NodeDraining, RetryAfter: 5 * time.Second,
		}
	}
	var n int64
	err = p.db.Write(ctx, func(tx *db.Tx) (err error) {
		now := p.db.Now()
		n, err = tx.Exec(ctx, `
			INSERT INTO placements (site_id, node, pinned, since) VALUES ($1, $2, $3, $4)
			ON CONFLICT (site_id) DO UPDATE SET node = excluded.node, pinned = placements.pinned OR excluded.pinned, since = excluded.since
			WHERE placements.node = excluded.node OR NOT placements.pinned AND NOT EXISTS (
				SELECT 1 FROM live_nodes n WHERE n.id = placements.node AND n.lease_until > $4 AND n.state = 'up')`,
			site, p.self.ID(), pinned, now)
		tx.Notify(Topic)
		return err
	})
	if err != nil {
		return fmt.Errorf("take site for this node: %w", err)
	}
	if n == 0 { // another one was quicker
		at, _, err = p.Of(ctx, site)
		if err == nil {
			err = &Away{at}
		}
		return err
	}
	return nil
}

// patience is how long a job waits for a node that is down: it may just be restarting.
const patience = time.Minute

// Here is Look for jobs, whose handler returns the error as it is unless it is a fault: the job goes to the site's node, or
// waits while that may be restarting. Where it is down for longer, the fault says so.
func (p *Places) Here(ctx context.Context, site string) error {
	if p != nil && !p.self.Takes() {
		if at, found, err := p.Of(ctx, site); err == nil && (!found || !p.mine(at)) {
			return job.NotYet(time.Second) // another one takes it
		}
	}
	err := p.Look(ctx, site)
	var away *Away
	if !errors.As(err, &away) {
		return err
	}
	return p.follow(away)
}

// Follow turns the Away in an error's chain into what the handler of a job returns, as Here does. Other errors stay.
func (p *Places) Follow(err error) error {
	var away *Away
	if p == nil || !errors.As(err, &away) {
		return err
	}
	return p.follow(away)
}

func (p *Places) follow(away *Away) error {
	switch {
	case away.State != node.Down:
		return job.On(away.Node)
	case p.db.Now().Sub(away.Ended) < patience:
		return job.NotYet(2 * time.Second)
	}
	return away.fault()
}

// Adopt pins the sites that have files or databases on this node, and returns those that belong to another one all the same: what
// they have here is used by nobody.
func (p *Places) Adopt(ctx context.Context, sites []string) (others []string, err error) {
	if p == nil {
		return nil, nil
	}
	for _, site := range sites {
		var at string
		err := p.db.Write(ctx, func(tx *db.Tx) error {
			return tx.QueryRow(ctx, `
				INSERT INTO placements (site_id, node, pinned, since) VALUES ($1, $2, TRUE, $3)
				ON CONFLICT (site_id) DO UPDATE SET pinned = placements.pinned OR placements.node = excluded.node
				RETURNING node`, site, p.self.ID(), p.db.Now()).Scan(&at)
		})
		if err != nil {
			return nil, fmt.Errorf("adopt sites: %w", err)
		}
		if at != p.self.ID() {
			others = append(others, site)
		}
	}
	return others, nil
}

// Mine returns which of the sites run here.
func (p *Places) Mine(ctx context.Context, sites []string) (map[string]bool, error) {
	out := make(map[string]bool, len(sites))
	if p == nil {
		for _, s := range sites {
			out[s] = true
		}
		return out, nil
	}
	args := db.Args{p.self.ID()}
	marks := db.AddList(&args, sites)
	rows, err := p.db.Query(ctx, `SELECT site_id FROM placements WHERE node = $1 AND site_id IN (`+marks+`)`, args...)
	list, err := db.Collect(rows, err, func(s db.Scanner) (id string, err error) { return id, s.Scan(&id) })
	if err != nil {
		return nil, fmt.Errorf("find sites of this node: %w", err)
	}
	for _, s := range list {
		out[s] = true
	}
	return out, nil
}

// ForgetTx drops a deleted site.
func ForgetTx(ctx context.Context, tx *db.Tx, site string) error {
	if _, err := tx.Exec(ctx, `DELETE FROM placements WHERE site_id = $1`, site); err != nil {
		return fmt.Errorf("forget node of site: %w", err)
	}
	return nil
}
