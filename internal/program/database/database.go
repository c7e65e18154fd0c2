// Package database owns the databases of sites: the MariaDB servers, a database and a user on
// one for each that a site asks for, and the way to them.
//
// Each owner has a server, so that nothing that one does to it is another's. It belongs to
// this process: it listens on a socket in the data directory alone, runs under a uid of its
// own in a sandbox with limits, is started when one of its databases is used, is started again
// when it ends, and sleeps while nobody uses it. An operator may name one server elsewhere
// for all instead. A site reaches its server over a socket of the site's own, which only its
// sandboxes hold and through which so many connections fit at once; while the server starts,
// connections wait.
//
// A database is dumped as SQL in one transaction (Dump), and loaded with the rights of a site
// into one of nobody's (Load), which then takes its place in a transaction. ADR 0030 says why
// MariaDB's own programs don't do it.
//
// What is asked for is a row and a job in one transaction, so that a crash neither loses a
// database nor leaves one behind. Passwords are sealed, and no method but Env shows them.
package database

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"slipway/internal/platform/id"

	"golang.org/x/sys/unix"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fair"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/panics"
	"slipway/internal/platform/sandbox"
	"slipway/internal/platform/seal"
	"slipway/internal/program/placement"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/limits"
	"slipway/internal/tenant/site"
)

// ID names a database: "db_" and 26 characters.
type ID = id.Database

// Status is where a database stands.
type Status string

// The states.
const (
	Creating Status = "creating"
	Active   Status = "active"
	Failed   Status = "error"
	deleting Status = "deleting"
)

// MariaDB is the one engine there is.
const MariaDB = "mariadb"

// Database is a database of a site.
type Database struct {
	ID        ID
	Site      site.ID
	Owner     account.OwnerID
	Engine    string
	Name      string
	Schema    string // its name on the server; its user has the same
	Status    Status
	Reason    string // why it is in error
	Size      int64  // bytes
	Limit     int64  // bytes
	Full      bool   // over Limit: it can be read and emptied alone
	CreatedAt db.Time

	place  int64
	server string
	sealed string
}

// Config holds what Databases needs.
type Config struct {
	DB     *db.DB
	Sites  *site.Sites
	Limits *limits.Limits // Optional: nil means the service's own.
	Seal   *seal.Sealer

	Dir      string         // absolute, ours: the servers' data, and the sites' sockets
	Runner   sandbox.Runner // what private servers run in
	UID      int            // makes the files of new private servers
	FirstUID int            // the first of those that private servers run under
	UIDs     int            // how many these are
	External string         // address of an operator's server, see ParseServer. Optional: empty means private ones.
	Why      string         // why there are no databases here. Optional: empty means that there are.

	Memory int64 // bytes of one private server. Optional: 0 means 1 GiB.
	// private servers that run at once. Optional: 0 means one for each 256 MiB of the machine's memory, and at
	// least 8.
	Awake       int
	Sleep       time.Duration // how long nobody uses a private server before it sleeps. Optional: 0 means 10 s.
	Work        int64         // bytes of temporary files of one private server. Optional: 0 means 2 GiB.
	Size        int64         // bytes of one database. Optional: 0 means 2 GiB.
	Connections int           // of one site at once, and of each of its previews. Optional: 0 means 20.

	Places *placement.Places // Optional: nil is an installation of one node.

	Logs Logs          // of sites. Optional.
	Log  *slog.Logger  // Optional.
	Tick time.Duration // how often sizes are read. Optional: 0 means 5s.
}

// Databases owns every database. It is safe for concurrent use.
type Databases struct {
	c        Config
	servers  servers
	consoles *fair.Pool // of queries
	exports  *fair.Pool

	installing sync.Mutex // held while the files of a server are made

	mu sync.Mutex // guards what follows
	// share: total the sites and previews that run, and have databases; owner as many as the programs they may run; edge the program is not started
	ways map[Client]*way // by site and preview
	// share: total the owners whose databases are moved, one at a time; owner one; edge connections wait 30 s
	closed map[account.OwnerID]chan struct{}
}

// Logs are the logs of sites' programs.
type Logs interface {
	// Note writes a line into a site's log.
	Note(site id.Site, text string)
}

// noLogs stands for logs that nobody keeps.
type noLogs struct{}

func (noLogs) Note(id.Site, string) {}

// New returns Databases. It starts nothing: Run does.
func New(c Config) (*Databases, error) {
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	if c.Logs == nil {
		c.Logs = noLogs{}
	}
	c.Memory = cmp.Or(c.Memory, 1<<30)
	c.Size = cmp.Or(c.Size, 2<<30)
	c.Work = cmp.Or(c.Work, workMost)
	c.Sleep = cmp.Or(c.Sleep, 10*time.Second)
	c.Connections = cmp.Or(c.Connections, 20)
	c.Awake = cmp.Or(c.Awake, awakeByMemory())
	c.Tick = cmp.Or(c.Tick, 5*time.Second)
	c.Limits = cmp.Or(c.Limits, limits.New(limits.Settings{}))
	c.Limits.CountRows(limits.Databases, `SELECT count(*) FROM databases WHERE owner_id = $1 AND status <> 'deleting'`)
	d := &Databases{c: c, consoles: newConsoles(), exports: newExports(), ways: map[Client]*way{}, closed: map[account.OwnerID]chan struct{}{}}
	if c.Why != "" {
		return d, nil
	}
	if err := os.RemoveAll(d.sockets()); err != nil {
		return nil, fmt.Errorf("clear sockets of databases: %w", err)
	}
	if err := os.MkdirAll(d.sockets(), 0o711); err != nil {
		return nil, fmt.Errorf("make sockets of databases: %w", err)
	}
	if err := d.openServers(); err != nil {
		return nil, err
	}
	return d, d.forgetScratch()
}

// awakeByMemory returns how many servers may run at once: an idle one takes some 60 MiB, and
// one at work a few times that.
func awakeByMemory() int {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 8
	}
	return max(8, int(info.Totalram*uint64(info.Unit)/(256<<20)))
}

// forgetScratch has what an earlier process was loading into our own servers dropped: who
// loads it again begins anew. Other processes may be loading into a server of the operator's.
func (d *Databases) forgetScratch() error {
	if d.c.External != "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return d.c.DB.Write(ctx, func(tx *db.Tx) error {
		if _, err := tx.Exec(
			ctx,
			`UPDATE database_scratch SET until = 0 WHERE server = $1 OR server LIKE $2`,
			d.servers.base,
			d.servers.base+"/%",
		); err != nil {
			return fmt.Errorf("forget scratch databases: %w", err)
		}
		return nil
	})
}

func (d *Databases) sockets() string { return filepath.Join(d.c.Dir, "sockets") }

// Unavailable says why no databases can be made; empty when they can.
func (d *Databases) Unavailable() string {
	switch {
	case d.c.Why != "":
		return d.c.Why
	case d.c.External != "":
		return ""
	}
	return Missing()
}

// Run starts servers as they are used, and returns when ctx has ended and all of them with it.
func (d *Databases) Run(ctx context.Context) error {
	if d.c.Why != "" {
		<-ctx.Done()
		return nil
	}
	if d.c.External == "" {
		if err := d.removeAllUnused(ctx); err != nil && ctx.Err() == nil {
			d.c.Log.WarnContext(ctx, "files of unused database servers not removed", "err", err)
		}
	}
	var work sync.WaitGroup
	work.Go(func() { panics.Loop(ctx, d.clean) })
	work.Go(func() { panics.Loop(ctx, d.leaveShared) })
	d.runServers(ctx)
	work.Wait()
	d.closeWays("")
	return nil
}

const columns = `id, site_id, owner_id, engine, name, place, schema_name, password, server, status, reason, size_bytes, is_full, created_at`

func (d *Databases) scan(row db.Scanner) (x Database, err error) {
	err = row.Scan(
		&x.ID,
		&x.Site,
		&x.Owner,
		&x.Engine,
		&x.Name,
		&x.place,
		&x.Schema,
		&x.sealed,
		&x.server,
		&x.Status,
		&x.Reason,
		&x.Size,
		&x.Full,
		&x.CreatedAt,
	)
	x.Limit = d.c.Size
	return x, err
}

// List returns the databases of the owner's site, the first made first. Those of its
// previews are not among them, here as in all that follows but PreviewEnv.
func (d *Databases) List(ctx context.Context, r db.Reader, owner account.OwnerID, id site.ID) ([]Database, error) {
	rows, err := r.Query(
		ctx,
		`SELECT `+columns+` FROM databases WHERE site_id = $1 AND owner_id = $2 AND preview = '' AND status <> 'deleting' ORDER BY place`,
		id,
		owner,
	)
	list, err := db.Collect(rows, err, d.scan)
	if err != nil {
		return nil, fmt.Errorf("list databases: %w", err)
	}
	return list, nil
}

// Get returns the owner's database, or a NotFound fault.
func (d *Databases) Get(ctx context.Context, r db.Reader, owner account.OwnerID, id ID) (Database, error) {
	x, err := d.byID(ctx, r, id)
	if err == nil && x.Owner != owner {
		err = fault.Missing("database")
	}
	if err == nil { // with its site's deletion it is gone, whenever its contents are
		_, err = d.c.Sites.ByID(ctx, r, x.Site)
		if fault.Is(err, fault.NotFound) {
			err = fault.Missing("database")
		}
	}
	if err != nil {
		return Database{}, err
	}
	return x, nil
}

func (d *Databases) byID(ctx context.Context, r db.Reader, id ID) (Database, error) {
	x, err := d.scan(r.QueryRow(ctx, `SELECT `+columns+` FROM databases WHERE id = $1 AND status <> 'deleting'`, id))
	if errors.Is(err, sql.ErrNoRows) {
		return x, fault.Missing("database")
	}
	if err != nil {
		return x, fmt.Errorf("read database: %w", err)
	}
	return x, nil
}

// OfSite returns the databases of a site, whoever owns it.
func (d *Databases) OfSite(ctx context.Context, id site.ID) ([]Database, error) {
	return d.ofSite(ctx, d.c.DB, id)
}

// AllOfSite returns the databases of a site and of its previews.
func (d *Databases) AllOfSite(ctx context.Context, r db.Reader, id site.ID) ([]Database, error) {
	rows, err := r.Query(ctx, `SELECT `+columns+` FROM databases WHERE site_id = $1 AND status <> 'deleting' ORDER BY preview, place`, id)
	list, err := db.Collect(rows, err, d.scan)
	if err != nil {
		return nil, fmt.Errorf("list databases: %w", err)
	}
	return list, nil
}

func (d *Databases) ofSite(ctx context.Context, r db.Reader, id site.ID) ([]Database, error) {
	rows, err := r.Query(
		ctx,
		`SELECT `+columns+` FROM databases WHERE site_id = $1 AND preview = '' AND status <> 'deleting' ORDER BY place`,
		id,
	)
	list, err := db.Collect(rows, err, d.scan)
	if err != nil {
		return nil, fmt.Errorf("list databases: %w", err)
	}
	return list, nil
}
