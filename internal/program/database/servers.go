package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"slipway/internal/platform/id"

	"slipway/internal/platform/db"
	"slipway/internal/platform/disk"
	"slipway/internal/platform/fair"
	"slipway/internal/platform/panics"
	"slipway/internal/tenant/account"
)

// servers are the database servers of this node: one for each owner, or one of the operator's.
type servers struct {
	base   string        // begins the names of those of this node in rows
	places *fair.Pool    // for those that are awake at once
	ended  chan struct{} // closed when Run has ended, or is about to

	mu      sync.Mutex         // guards what follows
	list    map[string]*server // share: total the owners with databases here; owner one; edge none: an entry is some 1 KiB
	life    context.Context    // of Run; nil before and after it
	running panics.Background
}

// openServers finds out which servers there are.
func (d *Databases) openServers() error {
	d.servers.list, d.servers.ended = map[string]*server{}, make(chan struct{})
	if d.c.External != "" {
		dsn, err := ParseServer(d.c.External)
		if err != nil {
			return err
		}
		d.servers.base = "mariadb/" + dsn.Addr
		s := d.newServer(d.servers.base, "", "", 0)
		s.outside = dsn
		d.servers.list[s.name] = s
		return nil
	}
	if err := os.MkdirAll(d.owners(), 0o711); err != nil {
		return fmt.Errorf("make directory of databases: %w", err)
	}
	id, err := d.dataID()
	if err != nil {
		return fmt.Errorf("name the database servers: %w", err)
	}
	d.servers.base = "private/" + id
	// share: total as many as --mariadb-servers; owner one; edge one that nobody uses sleeps for it, else it waits for 30 s
	d.servers.places = fair.New(fair.Config{Places: d.c.Awake, Owner: 1})
	if _, err := os.Stat(d.sharedDir()); err == nil {
		d.servers.list[d.servers.base] = d.newServer(d.servers.base, "", d.sharedDir(), d.c.UID)
	}
	return nil
}

// dataID says which data this is: another node's databases are not here.
func (d *Databases) dataID() (string, error) {
	file := filepath.Join(d.c.Dir, "id")
	text, err := os.ReadFile(file)
	if len(text) > 0 || err != nil && !errors.Is(err, fs.ErrNotExist) {
		return string(text), err
	}
	fresh := db.Random(10)
	if err == nil { // emptied by a power cut, under a version that didn't wait for the disk
		if fresh, err = d.formerID(fresh); err != nil || fresh == "" {
			return fresh, err
		}
	}
	return fresh, disk.Write(file, []byte(fresh), 0o600)
}

// formerID returns the id that the rows of databases give to what is here, or fresh if no private server has any. It is empty if
// databases were made while the file was.
func (d *Databases) formerID(fresh string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	rows, err := d.c.DB.Query(ctx, `SELECT DISTINCT server FROM databases WHERE server LIKE 'private/%'`)
	servers, err := db.Collect(rows, err, func(s db.Scanner) (name string, err error) { return name, s.Scan(&name) })
	if err != nil {
		return "", err
	}
	ids := map[string]bool{}
	for _, name := range servers {
		id, _, _ := strings.Cut(strings.TrimPrefix(name, "private/"), "/")
		ids[id] = true
	}
	list := slices.Sorted(maps.Keys(ids))
	switch {
	case len(list) == 0:
		return fresh, nil
	case len(list) == 1 && d.c.DB.Single():
		return list[0], nil
	}
	return "", fmt.Errorf("%s is empty: write the id of this node's databases into it, one of %q", filepath.Join(d.c.Dir, "id"), list)
}

func (d *Databases) owners() string { return filepath.Join(d.c.Dir, "owners") }

// here reports whether this process reaches the server of that name.
func (d *Databases) here(name string) bool {
	return d.servers.base != "" && (name == d.servers.base || strings.HasPrefix(name, d.servers.base+"/"))
}

// named returns the server of a row.
func (d *Databases) named(name string) (*server, error) {
	if !d.here(name) {
		return nil, d.elsewhere(name)
	}
	d.servers.mu.Lock()
	defer d.servers.mu.Unlock()
	if s := d.servers.list[name]; s != nil {
		return s, nil
	}
	owner := strings.TrimPrefix(name, d.servers.base+"/")
	if owner == name || owner == "" || owner != filepath.Base(owner) {
		return nil, d.elsewhere(name)
	}
	s := d.newServer(name, account.OwnerID(owner), filepath.Join(d.owners(), owner), 0)
	d.servers.list[name] = s
	return s, nil
}

// serverOf returns the server that holds an owner's databases on this node, or will.
func (d *Databases) serverOf(ctx context.Context, owner account.OwnerID) (*server, error) {
	if d.c.External != "" {
		return d.named(d.servers.base)
	}
	if d.shared() != nil { // an owner's databases are together
		var n int
		if err := d.c.DB.QueryRow(
			ctx,
			`SELECT count(*) FROM databases WHERE owner_id = $1 AND server = $2`,
			owner,
			d.servers.base,
		).Scan(&n); err != nil {
			return nil, fmt.Errorf("find database server: %w", err)
		}
		if n > 0 {
			return d.named(d.servers.base)
		}
	}
	return d.named(d.servers.base + "/" + string(owner))
}

// serverFor returns the server that holds a site's databases on this node, or will. Those of a site that was transferred
// stay where they are, on its owner's before, and new ones join them: a site talks to one server.
func (d *Databases) serverFor(ctx context.Context, site id.Site, owner account.OwnerID) (*server, error) {
	s, err := d.serverOf(ctx, owner)
	if err != nil || s.owner == "" {
		return s, err
	}
	var name string
	err = d.c.DB.QueryRow(ctx, `
		SELECT server FROM databases WHERE site_id = $1 AND server <> '' AND server <> $2 AND status <> 'deleting' ORDER BY id LIMIT 1`,
		site, s.name).Scan(&name)
	if errors.Is(err, sql.ErrNoRows) {
		return s, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find database server of site: %w", err)
	}
	if !strings.HasPrefix(name, d.servers.base+"/") {
		return s, nil // another node's
	}
	return d.named(name)
}

// all returns the servers that were asked for.
func (d *Databases) all() []*server {
	d.servers.mu.Lock()
	defer d.servers.mu.Unlock()
	list := make([]*server, 0, len(d.servers.list))
	for _, s := range d.servers.list {
		list = append(list, s)
	}
	return list
}

// wake starts a server that is used, once Run is at work.
func (d *Databases) wake(s *server) {
	d.servers.mu.Lock()
	defer d.servers.mu.Unlock()
	if d.servers.life == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running || s.users == 0 && s.outside == nil {
		return
	}
	s.running = true
	life := d.servers.life
	d.servers.running.Go(func() {
		if s.outside != nil {
			panics.Loop(life, s.runOutside)
		} else {
			panics.Loop(life, s.run)
		}
	})
}

// runServers starts servers as they are used, until ctx ends, and returns when all have ended.
func (d *Databases) runServers(ctx context.Context) {
	d.servers.mu.Lock()
	d.servers.life = ctx
	d.servers.mu.Unlock()
	for _, s := range d.all() {
		d.wake(s)
	}
	<-ctx.Done()
	close(d.servers.ended)
	d.servers.mu.Lock()
	d.servers.life = nil
	d.servers.mu.Unlock()
	d.servers.running.Wait()
}

// place waits for a place among the servers that are awake. One that nobody uses makes room.
func (d *Databases) place(ctx context.Context, s *server) (release func(), err error) {
	who := fair.Who{Owner: s.name}
	if release, ok := d.servers.places.Try(who); ok {
		return release, nil
	}
	if idle := d.idlest(); idle != nil {
		tell(idle.yield)
	}
	ctx, cancel := context.WithTimeout(ctx, wakePatience)
	defer cancel()
	return d.servers.places.Take(ctx, who)
}

// crowded reports whether a server waits for a place.
func (d *Databases) crowded() bool {
	if d.servers.places == nil {
		return false
	}
	_, waiting := d.servers.places.Held()
	return waiting > 0
}

// idlest returns the server that is up and that nobody has used for the longest; nil where
// there is none.
func (d *Databases) idlest() (idle *server) {
	var since time.Time
	for _, s := range d.all() {
		s.mu.Lock()
		if s.conns != nil && s.users == 0 && (idle == nil || s.last.Before(since)) {
			idle, since = s, s.last
		}
		s.mu.Unlock()
	}
	return idle
}

// removeUnused removes the files of a private server that holds nothing any more. It isn't
// running.
func (d *Databases) removeUnused(ctx context.Context, s *server) error {
	if _, err := os.Stat(s.dir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	n, err := d.held(ctx, s.name)
	if err != nil || n > 0 {
		return err
	}
	if err := os.RemoveAll(s.dir); err != nil {
		return fmt.Errorf("remove database server: %w", err)
	}
	return nil
}

// held returns how many databases are on a server, those that are to be dropped as well.
func (d *Databases) held(ctx context.Context, server string) (n int, err error) {
	err = d.c.DB.QueryRow(
		ctx,
		`SELECT (SELECT count(*) FROM databases WHERE server = $1) + (SELECT count(*) FROM database_scratch WHERE server = $1)`,
		server,
	).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count databases of server: %w", err)
	}
	return n, nil
}

// removeAllUnused removes what is left of servers whose last database went with a process
// that was killed. None is running yet.
func (d *Databases) removeAllUnused(ctx context.Context) error {
	entries, err := os.ReadDir(d.owners())
	if err != nil {
		return fmt.Errorf("list database servers: %w", err)
	}
	for _, e := range entries {
		s, err := d.named(d.servers.base + "/" + strings.TrimSuffix(e.Name(), newSuffix))
		if err == nil {
			err = errors.Join(d.removeUnused(ctx, s), os.RemoveAll(s.dir+newSuffix))
		}
		if err != nil {
			return err
		}
	}
	return nil
}
