package database

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/job"
	"slipway/internal/platform/lazyregexp"
	"slipway/internal/program/placement"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/limits"
	"slipway/internal/tenant/site"
)

// New says which database a site asks for.
type NewDatabase struct {
	Engine string // Optional: empty means mariadb.
	Name   string // Optional: empty means main, or main2 and so on.
}

const maxPerSite = 20

var nameForm = lazyregexp.New(`^[a-z][a-z0-9_]{0,31}$`)

// CreateTx notes a database for the owner's site; a job makes it.
func (d *Databases) CreateTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id site.ID, n NewDatabase) (Database, error) {
	if why := d.Unavailable(); why != "" {
		return Database{}, fault.New(fault.Unavailable, "databases_unavailable", "Databases are not available on this server", why)
	}
	if n.Engine != "" && n.Engine != MariaDB {
		return Database{}, fault.New(fault.Invalid, "invalid_engine", "Invalid database engine",
			"engine must be mariadb").Got(n.Engine)
	}
	if n.Name != "" && !nameForm.MatchString(n.Name) {
		return Database{}, fault.New(fault.Invalid, "invalid_name", "Invalid database name",
			"a name begins with a letter and holds 1 to 32 of a-z, 0-9 and _").Got(n.Name)
	}
	if _, err := d.c.Sites.LockTx(ctx, tx, owner, id); err != nil {
		return Database{}, err
	}
	have, err := d.List(ctx, tx, owner, id)
	if err != nil {
		return Database{}, err
	}
	if len(have) >= maxPerSite {
		return Database{}, fault.New(fault.Conflict, "too_many_databases", "The site has too many databases",
			fmt.Sprintf("at most %d; delete some first", maxPerSite))
	}
	if err := d.c.Limits.RequireTx(ctx, tx, owner, limits.Databases, 1); err != nil {
		return Database{}, err
	}
	taken, places := map[string]bool{}, map[int64]bool{}
	for _, x := range have {
		taken[x.Name], places[x.place] = true, true
	}
	if n.Name == "" {
		n.Name = "main"
		for i := 2; taken[n.Name]; i++ {
			n.Name = fmt.Sprintf("main%d", i)
		}
	}
	if taken[n.Name] {
		return Database{}, fault.New(fault.Conflict, "name_taken", "The site already has a database with this name",
			"choose another name").Got(n.Name)
	}
	x := Database{
		ID:        db.ID[ID]("db"),
		Site:      id,
		Owner:     owner,
		Engine:    MariaDB,
		Name:      n.Name,
		Status:    Creating,
		Limit:     d.c.Size,
		CreatedAt: db.Now(),
	}
	for places[x.place] {
		x.place++
	}
	x.Schema = "s" + strings.TrimPrefix(string(x.ID), "db_")
	x.sealed = d.c.Seal.Seal([]byte(newPassword()), purpose(x.ID))
	_, err = tx.Exec(ctx, `
		INSERT INTO databases (id, site_id, owner_id, engine, name, place, schema_name, password, server, status, reason, size_bytes, is_full,
		created_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, '', $9, '', 0, FALSE, $10)`,
		x.ID, id, owner, x.Engine, x.Name, x.place, x.Schema, x.sealed, x.Status, x.CreatedAt)
	if err != nil {
		return Database{}, fmt.Errorf("insert database: %w", err)
	}
	_, err = job.Enqueue(ctx, tx, Create{x.ID}, job.Options{
		Unique: "database/" + string(x.ID),
		Group:  "database/" + string(x.ID),
		Share:  string(owner),
	})
	return x, err
}

// newPassword returns one of letters and digits: it needs no escaping anywhere.
func newPassword() string { return rand.Text() + rand.Text() }

func purpose(id ID) string { return "database/" + string(id) }

// Create is the job that makes a database on the server. It may run twice: what is there
// already is as it should be.
type Create struct{ Database ID }

// Kind names the job.
func (Create) Kind() string { return "database.create" }

// Drop is the job that removes a database from the server, and then its row.
type Drop struct{ Database ID }

// Kind names the job.
func (Drop) Kind() string { return "database.drop" }

// Work registers the jobs.
func (d *Databases) Work(j *job.Jobs) {
	job.Handle(j, job.Policy{
		Timeout:  2*time.Minute + makePatience,
		Attempts: 5,
		GivenUp:  d.createGivenUp,
	}, func(ctx context.Context, c Create, _ int64) error {
		return d.c.Places.Follow(d.create(ctx, c.Database))
	})
	job.Handle(j, job.Policy{Timeout: copyTime, Attempts: 3, GivenUp: d.copyGivenUp}, func(ctx context.Context, c Copy, _ int64) error {
		return d.c.Places.Follow(d.copy(ctx, c))
	})
	job.Handle(j, job.Policy{Timeout: 2 * time.Minute, Attempts: 1 << 30}, d.drop)
}

// Make does the work of the Create job now, for who can't go on without the database.
func (d *Databases) Make(ctx context.Context, id ID) error { return d.create(ctx, id) }

func (d *Databases) create(ctx context.Context, id ID) error {
	x, err := d.byID(ctx, d.c.DB, id)
	if fault.Is(err, fault.NotFound) || err == nil && x.Status == Active {
		return nil
	}
	if err != nil {
		return err
	}
	s, err := d.settle(ctx, x)
	if err != nil {
		return err
	}
	password, err := d.password(x)
	if err != nil {
		return err
	}
	admin, done, err := s.useWithin(ctx, makePatience)
	if err != nil {
		return err
	}
	defer done()
	if err := admin.make(ctx, x.Schema, password); err != nil {
		return err
	}
	admin.kick(ctx, x.Schema) // who came with the password before
	return d.c.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE databases SET status = 'active', reason = '' WHERE id = $1 AND status <> 'deleting'`, id)
		return err
	})
}

// pin makes this node the site's of a database that is private to the node.
func (d *Databases) pin(ctx context.Context, x Database) error {
	if d.c.External != "" {
		return nil
	}
	return d.c.Places.Take(ctx, x.Site, placement.Here)
}

// Private reports whether databases are on servers of this node, which no other one reaches.
func (d *Databases) Private() bool { return d.c.External == "" }

// Sites lists those that have databases on private servers of this node.
func (d *Databases) Sites(ctx context.Context) ([]site.ID, error) {
	if d.c.External != "" || d.servers.base == "" {
		return nil, nil
	}
	rows, err := d.c.DB.Query(ctx, `SELECT DISTINCT site_id FROM databases WHERE server = $1 OR server LIKE $2`, d.servers.base,
		d.servers.base+"/%")
	list, err := db.Collect(rows, err, func(s db.Scanner) (id site.ID, err error) { return id, s.Scan(&id) })
	if err != nil {
		return nil, fmt.Errorf("list sites with databases: %w", err)
	}
	return list, nil
}

// settle notes on which server a database is to be, and returns that: on record before it is
// there, so that what is deleted meanwhile is dropped on that server.
func (d *Databases) settle(ctx context.Context, x Database) (*server, error) {
	if err := d.pin(ctx, x); err != nil {
		return nil, err
	}
	if x.server != "" {
		return d.named(x.server)
	}
	s, err := d.serverFor(ctx, x.Site, x.Owner)
	if err != nil {
		return nil, err
	}
	err = d.c.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE databases SET server = $2 WHERE id = $1`, x.ID, s.name)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("note server of database: %w", err)
	}
	return s, nil
}

func (d *Databases) elsewhere(server string) error {
	return fault.New(fault.Unavailable, "database_elsewhere", "The database is on another server",
		"this node can't reach "+server)
}

func (d *Databases) createGivenUp(ctx context.Context, args []byte, why error) error {
	var c Create
	if err := json.Unmarshal(args, &c); err != nil {
		return fmt.Errorf("read job arguments: %w", err)
	}
	return d.giveUp(ctx, c.Database, why)
}

func (d *Databases) copyGivenUp(ctx context.Context, args []byte, why error) error {
	var c Copy
	if err := json.Unmarshal(args, &c); err != nil {
		return fmt.Errorf("read job arguments: %w", err)
	}
	return d.giveUp(ctx, c.To, why)
}

// giveUp notes why a database was not made.
func (d *Databases) giveUp(ctx context.Context, id ID, why error) error {
	reason := "Internal error; the operator's log has the details"
	if f := fault.As(why); f != nil {
		reason = f.Message
	}
	return d.c.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE databases SET status = 'error', reason = $2 WHERE id = $1 AND status = 'creating'`, id, reason)
		return err
	})
}

func (d *Databases) password(x Database) (string, error) {
	plain, err := d.c.Seal.Open(x.sealed, purpose(x.ID))
	if err != nil {
		return "", fmt.Errorf("open password of %s: %w", x.ID, err)
	}
	return string(plain), nil
}

// DeleteTx ends the owner's database: its contents are dropped by a job.
func (d *Databases) DeleteTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id ID) (Database, error) {
	x, err := d.Get(ctx, tx, owner, id)
	if err != nil {
		return x, err
	}
	if _, err := d.c.Sites.LockTx(ctx, tx, owner, x.Site); err != nil {
		return x, err
	}
	return x, d.endTx(ctx, tx, x)
}

func (d *Databases) endTx(ctx context.Context, tx *db.Tx, x Database) error {
	if _, err := tx.Exec(ctx, `UPDATE databases SET status = 'deleting' WHERE id = $1`, x.ID); err != nil {
		return fmt.Errorf("delete database: %w", err)
	}
	_, err := job.Enqueue(ctx, tx, Drop{x.ID}, job.Options{
		Unique: "drop/" + string(x.ID),
		Group:  "database/" + string(x.ID),
		Share:  string(x.Owner),
	})
	return err
}

func (d *Databases) drop(ctx context.Context, j Drop, _ int64) error {
	x, err := d.scan(d.c.DB.QueryRow(ctx, `SELECT `+columns+` FROM databases WHERE id = $1`, j.Database))
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read database: %w", err)
	}
	if x.server != "" && !d.here(x.server) {
		if err := d.c.Places.Here(ctx, x.Site); err != nil {
			return err
		}
	}
	if x.server != "" { // else it was never made
		if err := d.dropOn(ctx, x.server, x.Schema); err != nil {
			return err
		}
	}
	return d.c.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `DELETE FROM databases WHERE id = $1`, x.ID)
		return err
	})
}

func (d *Databases) dropOn(ctx context.Context, server, schema string) error {
	s, err := d.named(server)
	if err != nil {
		return err
	}
	admin, done, err := s.use(ctx)
	if err != nil {
		return err
	}
	defer done()
	return admin.drop(ctx, schema)
}

// ForgetSite drops what a deleted site had on the node where that is, and returns when all of it is gone.
func (d *Databases) ForgetSite(ctx context.Context, id site.ID) error {
	if err := d.c.Places.Here(ctx, id); err != nil {
		return err
	}
	d.closeWays(id)
	var left int
	err := d.c.DB.Write(ctx, func(tx *db.Tx) error {
		list, err := d.AllOfSite(ctx, tx, id)
		if err != nil {
			return err
		}
		for _, x := range list {
			if err := d.endTx(ctx, tx, x); err != nil {
				return err
			}
		}
		return tx.QueryRow(ctx, `SELECT count(*) FROM databases WHERE site_id = $1`, id).Scan(&left)
	})
	if err == nil && left > 0 {
		return job.Later(100 * time.Millisecond)
	}
	return err
}

// RotateTx gives the owner's database another password; the program has it after its next
// start. The server takes it once the transaction is committed, and then ends the connections of the password before.
func (d *Databases) RotateTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id ID) (Database, error) {
	x, err := d.Get(ctx, tx, owner, id)
	if err != nil {
		return x, err
	}
	return d.rotateTx(ctx, tx, x)
}

func (d *Databases) rotateTx(ctx context.Context, tx *db.Tx, x Database) (Database, error) {
	x.sealed = d.c.Seal.Seal([]byte(newPassword()), purpose(x.ID))
	if _, err := tx.Exec(ctx, `UPDATE databases SET password = $2, status = 'creating' WHERE id = $1`, x.ID, x.sealed); err != nil {
		return x, fmt.Errorf("rotate password: %w", err)
	}
	x.Status = Creating
	_, err := job.Enqueue(ctx, tx, Create{x.ID}, job.Options{
		Unique: "database/" + string(x.ID),
		Group:  "database/" + string(x.ID),
		Share:  string(x.Owner),
	})
	return x, err
}
