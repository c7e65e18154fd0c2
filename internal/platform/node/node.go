// Package node owns which processes serve an installation: their list, how far their clocks are apart, and the lease that
// says whether one is still there.
//
// A node is a data directory, so it is the same one after a restart. It renews its lease every few seconds, in the
// database and by the database's clock; what it runs is its own while the lease lasts, and others may take it over after that. A
// node that could not renew in time, such as one whose machine slept, knows so by a clock of its machine that counts that time, before
// it asks anybody. On SQLite there is one node, its lease never ends and nothing is renewed.
//
// The package never decides what runs where.
package node

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/disk"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/watchdog"
)

// Lease is how long a node that says nothing is taken for one that runs.
const Lease = 16 * time.Second

// renewEvery leaves room for two failures.
const renewEvery = Lease / 4

// forever is the lease of a node that can have no others beside it.
const forever db.Time = 1 << 60

// The states of a node.
const (
	Up       = "up"
	Draining = "draining" // it gives away what it runs and takes nothing new
	Down     = "down"     // it has stopped, or its lease has ended
)

// Config says what a node tells of itself.
type Config struct {
	DB         *db.DB
	Dir        string // its data directory
	Version    string
	Roles      []string
	Address    string // host:port at which other nodes reach it. Optional: empty means that they don't.
	Blobs      string // where its files are, without credentials; empty: in its data directory
	SiteDomain string
	Storage    *Place // of the sites. Optional: this node runs no programs.
	Files      *Place // of releases. Optional: it isn't known, since the bucket didn't answer.
	Log        *slog.Logger
}

// Self is this process among the nodes of its installation.
type Self struct {
	c   Config
	id  string
	run string

	until atomic.Pointer[end] // of the lease; nil: it has none
	state atomic.Pointer[string]

	left   atomic.Bool  // this process gives its place up
	lapses atomic.Int64 // leases that had ended when they were renewed

	confirming sync.Mutex // guards asked, answer
	asked      time.Time
	answer     error

	mu   sync.Mutex      // guards lost
	lost []chan struct{} // told when the lease was found to have ended
}

// end is the end of a lease by this machine's clocks.
type end struct {
	at   time.Time     // monotonic, which stands still while the machine is suspended
	boot time.Duration // as watchdog.Now
}

// New returns this node. It makes the node's id in its data directory, where there is none yet.
func New(c Config) (*Self, error) {
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	id, err := identity(c)
	if err != nil {
		return nil, fmt.Errorf("id of this node: %w", err)
	}
	return &Self{c: c, id: id, run: db.NewID("run")}, nil
}

// identity returns the id of a data directory.
func identity(c Config) (string, error) {
	path := filepath.Join(c.Dir, "node-id")
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return "", err
	case len(text) == 0: // emptied by a power cut, under a version that didn't wait for the disk
		if err := unlisted(c.DB, path); err != nil {
			return "", err
		}
	default:
		id := strings.TrimSpace(string(text))
		if !strings.HasPrefix(id, "node_") || len(id) > 64 {
			return "", fmt.Errorf("%s doesn't hold an id; delete the file if this is a new node", path)
		}
		return id, nil
	}
	id := db.NewID("node")
	return id, disk.Write(path, []byte(id+"\n"), 0o600)
}

// unlisted returns an error if a node in the list may be this one, whose id is lost. Where there is one node, nothing refers to its id.
func unlisted(d *db.DB, path string) error {
	if d.Single() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	name, _ := os.Hostname()
	rows, err := d.Query(ctx, `SELECT id FROM nodes WHERE name = $1 ORDER BY seen_at DESC LIMIT 10`, cmp.Or(name, "?"))
	ids, err := db.Collect(rows, err, func(s db.Scanner) (id string, err error) { return id, s.Scan(&id) })
	if err != nil {
		return err
	}
	if len(ids) > 0 {
		return fmt.Errorf("%s is empty: write this node's id into it (%s), or delete the file if this is a new node",
			path, strings.Join(ids, " or "))
	}
	return nil
}

// ID names this node, the same after a restart.
func (s *Self) ID() string { return s.id }

// Join writes this node into the list, and the marks of its places where they are missing. It is an error, and changes nothing, if its
// settings can't be right beside those of the nodes that run.
func (s *Self) Join(ctx context.Context) (err error) {
	for try := 1; ; try++ {
		for _, p := range s.places() {
			if err = p.propose(); err != nil {
				break
			}
		}
		var of *Place
		var is string
		if err == nil {
			of, is, err = s.join(ctx)
		}
		if errors.Is(err, errMarked) && try < 5 {
			if err = of.adopt(is); err == nil {
				continue
			}
		}
		break
	}
	if err == nil {
		for _, p := range s.places() {
			err = errors.Join(err, p.settle())
		}
		if err != nil {
			s.leave(ctx)
		}
		return err
	}
	if !db.Unknown(err) {
		for _, p := range s.places() {
			p.drop()
		}
	}
	return err
}

// places returns those that this node has marks of, or is to have.
func (s *Self) places() (list []*Place) {
	for _, p := range []*Place{s.c.Storage, s.c.Files} {
		if p != nil {
			list = append(list, p)
		}
	}
	return list
}

// join is one try of Join. If the error is errMarked, the installation has the mark is of a place.
func (s *Self) join(ctx context.Context) (of *Place, is string, err error) {
	name, _ := os.Hostname()
	ahead, err := s.c.DB.Sync(ctx)
	if err != nil {
		return nil, "", err
	}
	begun, now := present(), s.c.DB.Now()
	until := now.Add(Lease)
	if s.c.DB.Single() {
		until = forever
	}
	err = s.c.DB.Write(ctx, func(tx *db.Tx) error {
		if _, err := tx.Exec(ctx, `UPDATE secrets_keys SET key_id = key_id WHERE id = 1`); err != nil { // one after the other
			return err
		}
		var forgotten bool
		err := tx.QueryRow(ctx, `SELECT COUNT(*) > 0 FROM forgotten_nodes WHERE id = $1`, s.id).Scan(&forgotten)
		if err != nil || forgotten {
			return cmp.Or(err, errForgotten)
		}
		for _, of = range s.places() {
			if is, err = of.claimTx(ctx, tx); err != nil {
				return err
			}
		}
		if s.c.DB.Single() { // a database that was copied here tells of a node that is elsewhere
			if _, err := tx.Exec(ctx, `DELETE FROM nodes WHERE id <> $1`, s.id); err != nil {
				return err
			}
		} else if err := s.fits(ctx, tx); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `
			INSERT INTO nodes (id, run, name, address, version, roles, blobs, site_domain, ahead_ms, state, started_at, seen_at, lease_until,
				storage)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 'up', $10, $10, $11, $12)
			ON CONFLICT (id) DO UPDATE SET run = excluded.run, name = excluded.name, address = excluded.address, version = excluded.version,
				roles = excluded.roles, blobs = excluded.blobs, site_domain = excluded.site_domain, ahead_ms = excluded.ahead_ms,
				state = excluded.state, started_at = excluded.started_at, seen_at = excluded.seen_at, lease_until = excluded.lease_until,
				storage = excluded.storage`,
			s.id, s.run, cmp.Or(name, "?"), s.c.Address, s.c.Version, strings.Join(s.c.Roles, ","), s.c.Blobs, s.c.SiteDomain,
			ahead.Milliseconds(), now, until, s.c.Storage.Mark())
		if err != nil {
			return fmt.Errorf("join the nodes of this installation: %w", err)
		}
		tx.Notify(Topic)
		return nil
	})
	if err != nil {
		return of, is, err
	}
	s.holds(begun, Up)
	s.warn(ctx, ahead)
	return nil, "", nil
}

// Topic is notified when a node joins, leaves or changes its state.
const Topic = "nodes"

func present() end { return end{time.Now(), watchdog.Now()} }

// holds notes a lease that was written after begun.
func (s *Self) holds(begun end, state string) {
	s.until.Store(&end{begun.at.Add(Lease), begun.boot + Lease})
	s.state.Store(&state)
}

// Holds reports whether this node's lease lasts: what it runs is its own.
func (s *Self) Holds() bool {
	if s.c.DB.Single() {
		return true
	}
	end := s.until.Load()
	return end != nil && time.Now().Before(end.at) && watchdog.Now() < end.boot
}

// Until returns when this node's lease ends unless it is renewed, as [watchdog.Now]: 0 if it has none. That of the only node doesn't end,
// whatever Until returns.
func (s *Self) Until() time.Duration {
	if end := s.until.Load(); end != nil {
		return end.boot
	}
	return 0
}

// Lapses returns how often the lease had ended when it was renewed: others may have taken over in between what this node ran. It
// grows before Holds reports that the new lease lasts.
func (s *Self) Lapses() int64 { return s.lapses.Load() }

// Takes reports whether this node may begin to run something.
func (s *Self) Takes() bool {
	state := s.state.Load()
	return s.Holds() && (state == nil || *state == Up)
}

// Draining reports whether this node gives away what it runs.
func (s *Self) Draining() bool {
	state := s.state.Load()
	return state != nil && *state == Draining
}

// Drain has this node give away what it runs and take nothing new, as Set does, for as long as it still runs. It does nothing where
// no other node could take anything.
func (s *Self) Drain(ctx context.Context) error {
	if s.c.DB.Single() || !slices.Contains(s.c.Roles, "worker") {
		return nil
	}
	list, err := List(ctx, s.c.DB)
	if err != nil || !slices.ContainsFunc(list, func(n Node) bool {
		return n.ID != s.id && n.State == Up && n.Address != "" && slices.Contains(n.Roles, "worker")
	}) {
		return err
	}
	if _, err := Set(ctx, s.c.DB, s.id, Draining); err != nil {
		return err
	}
	state := Draining
	s.state.Store(&state)
	return nil
}

// fits compares this node's settings with those of the others that run.
func (s *Self) fits(ctx context.Context, tx *db.Tx) error {
	list, err := listOf(ctx, tx, tx.Now())
	if err != nil {
		return err
	}
	for _, n := range list {
		switch {
		case n.ID == s.id || n.State == Down:
		case n.Blobs == "" || s.c.Blobs == "":
			return fmt.Errorf("--blobs: node %s serves the same database; several nodes need one bucket, or one directory that all "+
				"of them mount", n.Name)
		case n.Blobs != s.c.Blobs:
			return fmt.Errorf("--blobs: node %s has its files in %s, this one in %s", n.Name, n.Blobs, s.c.Blobs)
		case n.SiteDomain != s.c.SiteDomain:
			return fmt.Errorf("--site-domain: node %s has %s, this one %s", n.Name, n.SiteDomain, s.c.SiteDomain)
		case n.Storage == s.c.Storage.Mark(), !slices.Contains(n.Roles, "worker"), !slices.Contains(s.c.Roles, "worker"):
		case n.Storage == "":
			return fmt.Errorf("--storage: node %s runs without it; stop that one first, and start all of them with it", n.Name)
		default:
			return fmt.Errorf("--storage: node %s has another directory; all nodes need the same one", n.Name)
		}
	}
	return nil
}

// Run keeps this node in the list until ctx ends, and takes it off then. It is an error if an operator has taken it off.
func (s *Self) Run(ctx context.Context) error {
	err := s.stay(ctx)
	if err == nil {
		s.leave(context.WithoutCancel(ctx))
	}
	return err
}

func (s *Self) stay(ctx context.Context) error {
	if s.c.DB.Single() {
		<-ctx.Done()
		return nil
	}
	tick := time.NewTicker(renewEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		bounded, done := context.WithTimeout(ctx, Lease/2)
		err := s.renew(bounded)
		done()
		if errors.Is(err, errForgotten) {
			return err
		}
		if err != nil && ctx.Err() == nil {
			s.c.Log.ErrorContext(ctx, "node's lease not renewed", "err", err)
		}
		if !s.Holds() {
			s.tellLost()
		}
	}
}

// errCopied is the error of a node whose row another process has taken.
var errCopied = errors.New("another process has this node's id: was the data directory copied? Delete node-id in the copy, " +
	"and start it again")

// errForgotten is the error of a node that an operator took off the list.
var errForgotten = errors.New("an operator has taken this node off the list (slipway node forget), and others have its sites: to use " +
	"this machine again, start it with an empty data directory that has the installation's secrets.key")

// renew renews the lease. One that had ended is renewed too: whoever runs something asks then whether it still may.
func (s *Self) renew(ctx context.Context) error {
	ctx = db.Unguarded(ctx)
	ahead, err := s.c.DB.Sync(ctx)
	if err != nil {
		return err
	}
	begun, now := present(), s.c.DB.Now()
	var state string
	err = s.c.DB.Write(ctx, func(tx *db.Tx) error {
		return tx.QueryRow(ctx, `
			UPDATE nodes SET seen_at = $3, lease_until = $4, ahead_ms = $5 WHERE id = $1 AND run = $2
			RETURNING state`, s.id, s.run, now, now.Add(Lease), ahead.Milliseconds()).Scan(&state)
	})
	switch {
	case errors.Is(err, sql.ErrNoRows):
		s.until.Store(nil)
		var listed bool
		if err := s.c.DB.QueryRow(ctx, `SELECT COUNT(*) > 0 FROM nodes WHERE id = $1`, s.id).Scan(&listed); err != nil || listed {
			return cmp.Or(err, errCopied)
		}
		return errForgotten
	case err != nil:
		return fmt.Errorf("renew node's lease: %w", err)
	}
	if !s.Holds() { // asked only now: the process may have been held while it wrote
		s.lapses.Add(1)
		s.tellLost()
	}
	s.holds(begun, state)
	return nil
}

// Confirm renews a lease that has ended, for whoever wants to go on with what this node ran before. It is an error while the
// database doesn't answer, and others can't have taken anything over through it either.
func (s *Self) Confirm(ctx context.Context) error {
	s.confirming.Lock()
	defer s.confirming.Unlock()
	if s.Holds() {
		return nil
	}
	if time.Since(s.asked) < time.Second {
		return s.answer
	}
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer done()
	s.answer = s.renew(ctx)
	s.asked = time.Now()
	return s.answer
}

// Guard refuses writes to the database of a node that is not on the list any more, or whose place another process has taken.
func (s *Self) Guard(ctx context.Context) error {
	if s.left.Load() || s.Holds() {
		return nil
	}
	switch err := s.Confirm(ctx); {
	case errors.Is(err, errForgotten), errors.Is(err, errCopied):
		return &fault.Error{Kind: fault.Unavailable, Message: "This server doesn't belong to the installation any more", RetryAfter: time.Second}
	}
	return nil // a database that doesn't answer says so itself
}

// Lost returns a channel that is told when this node's lease was found to have ended, whether or not it has a new one by then.
func (s *Self) Lost() <-chan struct{} {
	c := make(chan struct{}, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost = append(s.lost, c)
	return c
}

func (s *Self) tellLost() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.lost {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// leave ends the lease. A node that can't is off the list when it ends by itself.
func (s *Self) leave(ctx context.Context) {
	s.left.Store(true)
	s.until.Store(nil)
	ctx, done := context.WithTimeout(ctx, 5*time.Second)
	defer done()
	err := s.c.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `
			UPDATE nodes SET state = 'down', lease_until = 0, seen_at = $3 WHERE id = $1 AND run = $2`, s.id, s.run, s.c.DB.Now())
		tx.Notify(Topic)
		return err
	})
	if err != nil {
		s.c.Log.WarnContext(ctx, "node not taken off the list", "err", err)
	}
}

// tolerable is how far clocks may be apart before somebody should look.
const tolerable = 5 * time.Second

func (s *Self) warn(ctx context.Context, ahead time.Duration) {
	if ahead.Abs() > tolerable {
		s.c.Log.WarnContext(ctx, "this machine's clock differs from the database's", "ahead", ahead)
	}
}
