// Package placement owns on which node a site's programs run.
//
// All of a site's programs, workers and commands run on one node: the one that first started one of them. It keeps the site
// while its lease lasts (package node); after that, or while it drains, another node may take what has no files or databases of
// its own. A site that has them is pinned: it waits for its node. Where all nodes mount one storage, files pin nothing, but the
// site has one node that writes to it: another one takes it only some time after the lease, in which the first one
// has ended what it ran, and a node that drains gives it away itself. On SQLite there is one node, and nothing is
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
	"slipway/internal/platform/id"
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
	db     *db.DB
	self   *node.Self
	shared bool // all nodes mount the storage of sites
}

// New returns Places for a node; nil where there can be no other. shared says that all nodes mount one storage of sites.
func New(d *db.DB, self *node.Self, shared bool) *Places {
	if d.Single() {
		return nil
	}
	return &Places{d, self, shared}
}

// Keeps says what a site has that outlives its programs.
type Keeps int

// What a site keeps, and where.
const (
	Nothing Keeps = iota
	Files         // in its storage
	Here          // on this node alone, such as a private database
)

// pins reports whether a site that keeps it can't leave its node.
func (p *Places) pins(k Keeps) bool { return k == Here || k == Files && !p.shared }

// stores reports whether a site that keeps it writes to what all nodes mount.
func (p *Places) stores(k Keeps) bool { return k == Files && p.shared }

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
func (p *Places) Pinned(ctx context.Context, site id.Site) bool {
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
	Stores  bool    // it writes to the storage that all nodes mount
	Ended   db.Time // when its lease did, where it is down

	fenced bool // its node has ended what it ran by now
}

// fence is how long after the end of a node's lease what it ran may still write: it has to notice, and to end it.
const fence = 2 * time.Second

// Of returns the node of a site; found is false where it has none.
func (p *Places) Of(ctx context.Context, site id.Site) (at Place, found bool, err error) {
	if p == nil {
		return at, false, nil
	}
	err = p.db.QueryRow(ctx, `
		SELECT p.node, p.pinned, p.stores, COALESCE(n.name, p.node), COALESCE(n.address, ''),
			CASE WHEN n.lease_until > $2 THEN n.state ELSE 'down' END, COALESCE(n.ended, 0)
		FROM placements p LEFT JOIN live_nodes n ON n.id = p.node WHERE p.site_id = $1`, site, p.db.Now()).
		Scan(&at.Node, &at.Pinned, &at.Stores, &at.Name, &at.Address, &at.State, &at.Ended)
	if errors.Is(err, sql.ErrNoRows) {
		return at, false, nil
	}
	if err != nil {
		return at, false, fmt.Errorf("find node of site: %w", err)
	}
	at.fenced = at.State == node.Down && p.db.Now().Sub(at.Ended) > fence
	return at, true, nil
}

// Away is the error of what belongs to another node. It carries a fault for whoever asked.
type Away struct{ Place }

func (a *Away) Error() string { return a.fault().Error() }

// Unwrap returns the fault.
func (a *Away) Unwrap() error { return a.fault() }

func (a *Away) fault() *fault.Error {
	if a.State == node.Down && !a.Pinned { // it stores: another node takes it in a moment
		return &fault.Error{
			Kind: fault.Unavailable, Code: NodeDraining, RetryAfter: time.Second,
			Message: "The site's node " + a.Name + " went down; another one takes over in a moment",
		}
	}
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
func (a Place) free() bool { return !a.Pinned && a.State != node.Up && (!a.Stores || a.fenced) }

// Look returns nil where a site's programs run here, or on no node that would have to be asked, and else an Away. It
// changes nothing.
func (p *Places) Look(ctx context.Context, site id.Site) error {
	at, found, err := p.Of(ctx, site)
	if err != nil || !found || p.mine(at) || at.free() {
		return err
	}
	return &Away{at}
}

// Take makes this node the site's, where no other one is, and returns an Away where one is. What a site keeps may pin it.
func (p *Places) Take(ctx context.Context, site id.Site, keeps Keeps) error {
	if p == nil {
		return nil
	}
	at, found, err := p.Of(ctx, site)
	if err != nil {
		return err
	}
	pinned, stores := p.pins(keeps), p.stores(keeps)
	mine := found && p.mine(at)
	stays := mine && p.self.Holds() && !(p.Draining() && (at.Stores || stores) && !at.Pinned)
	switch {
	case stays && (at.Pinned || !pinned) && (at.Stores || !stores):
		return nil
	case found && !mine && !at.free():
		return &Away{at}
	case !stays && !p.self.Takes():
		return &fault.Error{
			Kind: fault.Unavailable, Message: "This node takes no new programs at the moment", Code: NodeDraining, RetryAfter: 5 * time.Second,
		}
	}
	var n int64
	err = p.db.Write(ctx, func(tx *db.Tx) (err error) {
		now := p.db.Now()
		n, err = tx.Exec(ctx, `
			INSERT INTO placements (site_id, node, pinned, stores, since) VALUES ($1, $2, $3, $5, $4)
			ON CONFLICT (site_id) DO UPDATE SET node = excluded.node, pinned = placements.pinned OR excluded.pinned,
				stores = placements.stores OR excluded.stores, since = excluded.since,
				cut_from = CASE WHEN placements.node = excluded.node THEN placements.cut_from ELSE '' END
			WHERE placements.node = excluded.node OR NOT placements.pinned AND NOT EXISTS (
				SELECT 1 FROM live_nodes n WHERE n.id = placements.node
				AND (n.lease_until > $4 AND (n.state = 'up' OR placements.stores) OR placements.stores AND n.ended + $6 >= $4))`,
			site, p.self.ID(), pinned, now, stores, fence.Milliseconds())
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

// restless is how long a site stays that was taken over a cut: its former node can't reach its new one either.
const restless = 10 * time.Minute

// TakeCut makes this node a site's in place of one that runs, but can't be reached from here. It takes none that stores something.
func (p *Places) TakeCut(ctx context.Context, site id.Site, from Place) (taken bool, err error) {
	if from.Pinned || from.Stores || !p.self.Takes() {
		return false, nil
	}
	err = p.db.Write(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, `
			UPDATE placements SET node = $1, since = $2, cut_from = node
			WHERE site_id = $3 AND node = $4 AND NOT pinned AND NOT stores AND (cut_from <> $1 OR since < $5)`,
			p.self.ID(), p.db.Now(), site, from.Node, p.db.Now().Add(-restless))
		taken = n == 1
		tx.Notify(Topic)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("take site from a node that can't be reached: %w", err)
	}
	return taken, nil
}

// Giving returns the sites of this node that it has to give away while it drains, because no other one may take them: they write to
// the storage that all nodes mount.
func (p *Places) Giving(ctx context.Context) ([]id.Site, error) {
	rows, err := p.db.Query(ctx, `SELECT site_id FROM placements WHERE node = $1 AND stores AND NOT pinned`, p.self.ID())
	list, err := db.Collect(rows, err, func(s db.Scanner) (site id.Site, err error) { return site, s.Scan(&site) })
	if err != nil {
		return nil, fmt.Errorf("find sites to give away: %w", err)
	}
	return list, nil
}

// Give lets another node take a site of which nothing runs here any more.
func (p *Places) Give(ctx context.Context, site id.Site) error {
	err := p.db.Write(ctx, func(tx *db.Tx) error {
		tx.Notify(Topic)
		_, err := tx.Exec(ctx, `DELETE FROM placements WHERE site_id = $1 AND node = $2 AND stores AND NOT pinned`, site, p.self.ID())
		return err
	})
	if err != nil {
		return fmt.Errorf("give site away: %w", err)
	}
	return nil
}

// patience is how long a job waits for a node that is down: it may just be restarting.
const patience = time.Minute

// Here is Look for jobs, whose handler returns the error as it is unless it is a fault: the job goes to the site's node, or
// waits while that may be restarting. Where it is down for longer, the fault says so.
func (p *Places) Here(ctx context.Context, site id.Site) error {
	if p != nil && !p.self.Takes() {
		if at, found, err := p.Of(ctx, site); err == nil && (!found || !p.mine(at)) {
			return job.NotYet(time.Second) // another one takes it
		}
	}
	err := p.Look(ctx, site)
	if p != nil && p.shared && err == nil { // whoever reads or writes what it stores is alone with it
		err = p.Take(ctx, site, Nothing)
	}
	var away *Away
	if errors.As(err, &away) {
		return p.follow(away)
	}
	if f := fault.As(err); f != nil && f.Code == NodeDraining {
		return job.NotYet(time.Second)
	}
	return err
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
	case p.db.Now().Sub(away.Ended) < patience, !away.Pinned:
		return job.NotYet(2 * time.Second)
	}
	return away.fault()
}

// Adopt pins the sites that have files or databases on this node, and returns those that belong to another one all the same: what
// they have here is used by nobody.
func (p *Places) Adopt(ctx context.Context, sites []id.Site) (others []id.Site, err error) {
	if p == nil {
		return nil, nil
	}
	if p.shared {
		if err := p.unpin(ctx, sites); err != nil {
			return nil, err
		}
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

// unpin frees the sites of this node whose files were on it until it got a storage that all nodes mount, but for those that are
// named.
func (p *Places) unpin(ctx context.Context, but []id.Site) error {
	args := db.Args{p.self.ID()}
	where := ""
	if len(but) > 0 {
		where = ` AND site_id NOT IN (` + db.AddList(&args, but) + `)`
	}
	err := p.db.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE placements SET pinned = FALSE, stores = TRUE WHERE node = $1 AND pinned`+where, args...)
		return err
	})
	if err != nil {
		return fmt.Errorf("free sites of this node: %w", err)
	}
	return nil
}

// Mine returns which of the sites run here.
func (p *Places) Mine(ctx context.Context, sites []id.Site) (map[id.Site]bool, error) {
	out := make(map[id.Site]bool, len(sites))
	if p == nil {
		for _, s := range sites {
			out[s] = true
		}
		return out, nil
	}
	args := db.Args{p.self.ID()}
	marks := db.AddList(&args, sites)
	rows, err := p.db.Query(ctx, `SELECT site_id FROM placements WHERE node = $1 AND site_id IN (`+marks+`)`, args...)
	list, err := db.Collect(rows, err, func(s db.Scanner) (site id.Site, err error) { return site, s.Scan(&site) })
	if err != nil {
		return nil, fmt.Errorf("find sites of this node: %w", err)
	}
	for _, s := range list {
		out[s] = true
	}
	return out, nil
}

// Clear says that no site has a node, as in an installation that has just been restored.
func Clear(ctx context.Context, d *db.DB) error {
	err := d.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `DELETE FROM placements`)
		return err
	})
	if err != nil {
		return fmt.Errorf("clear nodes of sites: %w", err)
	}
	return nil
}

// ForgetNodeTx frees the sites of a node that will never return, and returns how many they are, and which of them had something there
// alone.
func ForgetNodeTx(ctx context.Context, tx *db.Tx, node string) (freed int64, pinned []id.Site, err error) {
	tx.Notify(Topic)
	rows, err := tx.Query(ctx, `SELECT site_id FROM placements WHERE node = $1 AND pinned`, node)
	pinned, err = db.Collect(rows, err, func(s db.Scanner) (site id.Site, err error) { return site, s.Scan(&site) })
	if err == nil {
		freed, err = tx.Exec(ctx, `DELETE FROM placements WHERE node = $1`, node)
	}
	if err != nil {
		return 0, nil, fmt.Errorf("free sites of node: %w", err)
	}
	return freed, pinned, nil
}

// ForgetTx drops a deleted site.
func ForgetTx(ctx context.Context, tx *db.Tx, site id.Site) error {
	if _, err := tx.Exec(ctx, `DELETE FROM placements WHERE site_id = $1`, site); err != nil {
		return fmt.Errorf("forget node of site: %w", err)
	}
	return nil
}
