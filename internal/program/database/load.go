package database

import (
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-sql-driver/mysql"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/lazyregexp"
	"slipway/internal/platform/text"
	"slipway/internal/program/dump"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/limits"
	"slipway/internal/tenant/site"
)

// Scratch is a database of nobody's: SQL is loaded into it, with the rights that a site has,
// and then it takes the place of a site's database (PutTx) or is dropped. One that is left
// behind is dropped after a day.
type Scratch struct {
	d        *Databases
	server   *server
	schema   string
	password string
}

// scratchLife is longer than anything takes that makes one.
const scratchLife = 24 * time.Hour

// Load makes a scratch database on an owner's server and fills it with SQL: with what Dump wrote, or with a
// stranger's dump where foreign says so. With check the sum of every table is compared with
// what Dump noted. After an error nothing of it is left.
func (d *Databases) Load(ctx context.Context, owner account.OwnerID, r io.Reader, o LoadOptions) (_ *Scratch, err error) {
	if why := d.Unavailable(); why != "" {
		return nil, fault.New(fault.Unavailable, "databases_unavailable", "Databases are not available on this server", why)
	}
	on, err := d.serverOf(ctx, owner)
	if err != nil {
		return nil, err
	}
	s, err := d.empty(ctx, on)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.Drop(context.WithoutCancel(ctx))
		}
	}()
	a, done, err := on.use(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	sums, err := s.fill(ctx, r, o)
	if err == nil && o.Check {
		err = s.compare(ctx, a, sums)
	}
	return s, away(err)
}

// empty makes a scratch database without tables.
func (d *Databases) empty(ctx context.Context, on *server) (_ *Scratch, err error) {
	s := &Scratch{d: d, server: on, schema: "s" + strings.TrimPrefix(db.NewID("db"), "db_"), password: newPassword()}
	// On record before it is there, so that it can't be forgotten.
	if err := d.c.DB.Write(ctx, func(tx *db.Tx) error { return noteTx(ctx, tx, s.schema, on.name, db.Now().Add(scratchLife)) }); err != nil {
		return nil, fmt.Errorf("note scratch database: %w", err)
	}
	defer func() {
		if err != nil {
			s.Drop(context.WithoutCancel(ctx))
		}
	}()
	a, done, err := on.use(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	return s, a.make(ctx, s.schema, s.password)
}

// LoadOptions say what is loaded and how.
type LoadOptions struct {
	Foreign bool // the SQL is not by Dump: what only its own server knows is left out
	Check   bool // compare the sums of tables that Dump noted
}

// noteTx puts a database on record that is to be dropped.
func noteTx(ctx context.Context, tx *db.Tx, schema, server string, until db.Time) error {
	_, err := tx.Exec(
		ctx,
		`INSERT INTO database_scratch (schema_name, server, until) VALUES ($1, $2, $3) ON CONFLICT (schema_name) DO UPDATE
		SET until = excluded.until`, schema, server, until,
	)
	return err
}

// statementTime is how long one statement of a load may take.
const statementTime = 10 * time.Minute

// sizeEvery is after how much SQL the size of what it made is looked at.
const sizeEvery = 16 << 20

// fill executes SQL as the scratch's own user, whose rights end with its schema.
func (s *Scratch) fill(ctx context.Context, r io.Reader, o LoadOptions) (map[string]dump.Sum, error) {
	c := mysql.NewConfig()
	c.User, c.Passwd, c.DBName, c.Net, c.Logger = s.schema, s.password, s.schema, "unix", nobody{}
	c.Timeout, c.ReadTimeout, c.WriteTimeout = 10*time.Second, statementTime, time.Minute
	c.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) { return s.server.dial(ctx) }
	if s.server.outside != nil {
		c.TLS = s.server.outside.TLS
	}
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, fmt.Errorf("load database: %w", err)
	}
	conn, err := connector.Connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("load database: %w", err)
	}
	defer conn.Close()
	run := func(q string) error {
		ctx, cancel := context.WithTimeout(ctx, statementTime)
		defer cancel()
		_, err := conn.(driver.ExecerContext).ExecContext(ctx, q, nil)
		return err
	}
	for q := range strings.SplitSeq(strings.TrimSpace(dump.Session), "\n") {
		if err := run(strings.TrimSuffix(q, ";")); err != nil {
			return nil, fmt.Errorf("load database: %w", err)
		}
	}
	// A server of the operator's may know no such bound, or allow less: then the statement says so.
	_ = run(fmt.Sprintf("SET SESSION max_session_mem_used = %d", loadMemory))
	sums, ended, of := map[string]dump.Sum{}, false, ""
	read := dump.NewStatements(r, func(line []byte) {
		if rest, ok := bytes.CutPrefix(line, []byte("-- slipway:sum ")); ok {
			var x dump.Sum
			if json.Unmarshal(rest, &x) == nil {
				sums[x.Table] = x
			}
		}
		ended = ended || bytes.Equal(line, []byte("-- slipway:end"))
	})
	for n, looked := 1, int64(0); ; n++ {
		q, err := read.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		statement := string(q)
		if o.Foreign {
			if m := ofDatabase.FindStringSubmatch(statement[:min(len(statement), 512)]); m != nil {
				if of != "" && of != m[2] { // the tables of one would replace those of the other
					return nil, fault.New(fault.Conflict, "database_not_loaded", "The database can't be loaded",
						fmt.Sprintf(
							"its SQL holds several databases, %q and %q: export the one that the site uses",
							text.Clip(of, 80),
							text.Clip(m[2], 80),
						))
				}
				of = m[2]
			}
			if statement = dump.Portable(statement); statement == "" {
				continue
			}
		}
		if err := run(statement); err != nil {
			var refused *mysql.MySQLError
			if errors.As(err, &refused) && !ending(refused) {
				if refused.Number == 1065 { // nothing but comments
					continue
				}
				if ofEvent.MatchString(statement) {
					return nil, fault.New(fault.Conflict, "database_not_loaded", "The database can't be loaded",
						fmt.Sprintf(
							"statement %d, %q, is for an event of the database, which sites can't have: export it without events",
							n,
							text.Clip(statement, 80),
						))
				}
				return nil, fault.New(fault.Conflict, "database_not_loaded", "The database can't be loaded",
					fmt.Sprintf("statement %d, %q: the server says %q", n, text.Clip(statement, 80), refused.Message))
			}
			return nil, fmt.Errorf("load database: %w", err)
		}
		if setsMode.MatchString(statement[:min(len(statement), 64)]) {
			read.Literal = strings.Contains(strings.ToUpper(statement), "NO_BACKSLASH_ESCAPES")
		}
		if read.Bytes-looked > sizeEvery {
			looked = read.Bytes
			if err := s.fits(ctx); err != nil {
				return nil, err
			}
		}
	}
	if !ended && !o.Foreign {
		return nil, fault.New(fault.Conflict, "database_not_loaded", "The database can't be loaded", "its dump is incomplete")
	}
	return sums, s.fits(ctx)
}

// fits bounds what SQL makes: what was within the limit is so again, give or take what the
// server rounds up.
func (s *Scratch) fits(ctx context.Context) error {
	size, most := int64(0), s.d.c.Size+s.d.c.Size/2+64<<20
	var err error
	if s.server.outside == nil {
		size, err = s.server.files(s.schema)
	} else {
		a, done, unreached := s.server.use(ctx)
		if err = unreached; err == nil {
			defer done()
			var all map[string]int64
			all, err = a.sizes(ctx)
			size = all[s.schema]
		}
	}
	if err == nil && size > most {
		err = fault.New(fault.TooLarge, "database_too_large", "The database is too large",
			fmt.Sprintf("a database may have at most %d MiB", s.d.c.Size>>20))
	}
	return err
}

var (
	setsMode   = lazyregexp.New(`(?i)^(/\*!\d* *)?SET\s+(SESSION\s+|@@SESSION\.|@@)?SQL_MODE\s*=`)
	ofDatabase = lazyregexp.New("(?is)^(/\\*!\\d* *)?USE\\s+`?([^`;\\s]+)")
	ofEvent    = lazyregexp.New(`(?is)^(/\*!\d* *)?(CREATE|ALTER|DROP)\b(OR\s+REPLACE|[\s/*!0-9])*EVENT\s`)
)

// compare reads the scratch as Dump does, and compares what every table holds.
func (s *Scratch) compare(ctx context.Context, a *admin, want map[string]dump.Sum) error {
	got, err := dump.Sums(ctx, a.sql, s.schema)
	if err != nil {
		return fmt.Errorf("compare database: %w", err)
	}
	have := map[string]dump.Sum{}
	for _, x := range got {
		have[x.Table] = x
	}
	for _, table := range slices.Sorted(maps.Keys(want)) {
		if have[table] != want[table] {
			return fault.New(fault.Conflict, "table_differs", "A table differs after it was loaded",
				fmt.Sprintf("the table %q has %d rows of %d, or rows that differ", table, have[table].Rows, want[table].Rows))
		}
	}
	if len(have) != len(want) {
		return fault.New(fault.Conflict, "table_differs", "A table differs after it was loaded",
			fmt.Sprintf("there are %d tables of %d", len(have), len(want)))
	}
	return nil
}

// away gives the error of a server that ended in the middle its words.
func away(err error) error {
	var refused *mysql.MySQLError
	switch {
	case err == nil || fault.As(err) != nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.As(err, &refused) && !ending(refused):
		return err
	}
	var n net.Error
	if refused != nil || errors.As(
		err,
		&n,
	) || errors.Is(
		err,
		driver.ErrBadConn,
	) || errors.Is(
		err,
		mysql.ErrInvalidConn,
	) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENOENT) {
		return fmt.Errorf("%w: %w", fault.New(fault.Unavailable, "database_unavailable", "The database server is not available",
			"it stopped while in use and is restarting; try again"), err)
	}
	return err
}

// ending reports whether the server refuses because it, or the connection, is being ended.
func ending(e *mysql.MySQLError) bool {
	return e.Number == 1053 || e.Number == 1317 || e.Number == 1927 // shutdown, interrupted, killed
}

// Access is how to connect to the scratch database. It holds a secret.
func (s *Scratch) Access() Access { return Access{s.schema, s.schema, s.password} }

// Drop drops the scratch database. After PutTx it does nothing.
func (s *Scratch) Drop(ctx context.Context) {
	err := s.d.dropScratch(ctx, s.schema)
	if err != nil { // watch does it later
		s.d.c.Log.WarnContext(ctx, "scratch database not dropped yet", "schema", s.schema, "err", err)
		_ = s.d.c.DB.Write(ctx, func(tx *db.Tx) error {
			_, err := tx.Exec(ctx, `UPDATE database_scratch SET until = 0 WHERE schema_name = $1`, s.schema)
			return err
		})
	}
}

// PutTx makes the scratch the owner's site's database of that name. What was there is
// dropped a minute later; what runs of the site must be started anew, for its variables are
// others. place is where a database that the site lacks stands in its list.
func (s *Scratch) PutTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id site.ID, called string, place int64) (Database, error) {
	d := s.d
	if _, err := d.c.Sites.LockTx(ctx, tx, owner, id); err != nil {
		return Database{}, err
	}
	if n, err := tx.Exec(
		ctx,
		`DELETE FROM database_scratch WHERE schema_name = $1 AND until > $2`,
		s.schema,
		db.Now(),
	); err != nil || n == 0 {
		return Database{}, errors.Join(err, errors.New("the scratch database is gone"))
	}
	have, err := d.List(ctx, tx, owner, id)
	if err != nil {
		return Database{}, err
	}
	places := map[int64]bool{}
	for _, x := range have {
		if x.Name == called {
			return d.replaceTx(ctx, tx, x, s)
		}
		places[x.place] = true
	}
	if err := d.c.Limits.RequireTx(ctx, tx, owner, limits.Databases, 1); err != nil {
		return Database{}, err
	}
	for places[place] {
		place++
	}
	x := Database{
		ID:        db.ID[ID]("db"),
		Site:      id,
		Owner:     owner,
		Engine:    MariaDB,
		Name:      called,
		Schema:    s.schema,
		Status:    Active,
		Limit:     d.c.Size,
		CreatedAt: db.Now(),
		place:     place,
		server:    s.server.name,
	}
	_, err = tx.Exec(ctx, `
		INSERT INTO databases (id, site_id, owner_id, engine, name, place, schema_name, password, server, status, reason, size_bytes, is_full,
		created_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, '', 0, FALSE, $11)`,
		x.ID, id, owner, x.Engine, x.Name, x.place, x.Schema, d.c.Seal.Seal(
			[]byte(s.password),
			purpose(x.ID),
		), x.server, x.Status, x.CreatedAt)
	if err != nil {
		return Database{}, fmt.Errorf("insert database: %w", err)
	}
	return x, nil
}

// oldLife is how long what was replaced stays: programs that still use it end meanwhile.
const oldLife = time.Minute

func (d *Databases) replaceTx(ctx context.Context, tx *db.Tx, x Database, s *Scratch) (Database, error) {
	if d.here(x.server) {
		if err := noteTx(ctx, tx, x.Schema, x.server, db.Now().Add(oldLife)); err != nil {
			return x, fmt.Errorf("note replaced database: %w", err)
		}
	}
	x.Schema, x.server, x.Status, x.Reason, x.Full = s.schema, s.server.name, Active, "", false
	_, err := tx.Exec(
		ctx,
		`UPDATE databases SET schema_name = $2, password = $3, server = $4, status = $5, reason = '', is_full = FALSE WHERE id = $1`,
		x.ID,
		x.Schema,
		d.c.Seal.Seal([]byte(s.password), purpose(x.ID)),
		x.server,
		x.Status,
	)
	if err != nil {
		return x, fmt.Errorf("replace database: %w", err)
	}
	return x, nil
}

// Place says where a database stands in its site's list: the first one's variables have no
// prefix.
func (x Database) Place() int64 { return x.place }

// dropScratch drops a database that is on record as scratch.
func (d *Databases) dropScratch(ctx context.Context, schema string) error {
	var server string
	err := d.c.DB.QueryRow(ctx, `SELECT server FROM database_scratch WHERE schema_name = $1`, schema).Scan(&server)
	if errors.Is(err, sql.ErrNoRows) || err == nil && !d.here(server) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read scratch database: %w", err)
	}
	if err := d.dropOn(ctx, server, schema); err != nil {
		return err
	}
	return d.c.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `DELETE FROM database_scratch WHERE schema_name = $1`, schema)
		return err
	})
}

// sweep drops the scratch databases whose time is over.
func (d *Databases) sweep(ctx context.Context) error {
	rows, err := d.c.DB.Query(
		ctx,
		`SELECT schema_name, server FROM database_scratch WHERE (server = $1 OR server LIKE $2) AND until <= $3 ORDER BY until LIMIT 100`,
		d.servers.base,
		d.servers.base+"/%",
		db.Now(),
	)
	type old struct{ schema, server string }
	list, err := db.Collect(rows, err, func(s db.Scanner) (x old, err error) { return x, s.Scan(&x.schema, &x.server) })
	if err != nil {
		return fmt.Errorf("list scratch databases: %w", err)
	}
	failed := map[string]error{} // a server that can't start keeps up no other one
	for _, x := range list {
		if failed[x.server] == nil {
			failed[x.server] = d.dropScratch(ctx, x.schema)
		}
	}
	return errors.Join(slices.Collect(maps.Values(failed))...)
}

// Refill makes a database of which there is but a row, as after a restore of the whole
// installation, and fills it with what Dump wrote. What the server has under its name goes.
func (d *Databases) Refill(ctx context.Context, id ID, r io.Reader) error {
	x, err := d.byID(ctx, d.c.DB, id)
	if err != nil {
		return err
	}
	s, err := d.serverFor(ctx, x.Site, x.Owner)
	if err != nil {
		return err
	}
	if err := d.refill(ctx, s, x, r); err != nil {
		return err
	}
	return d.c.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE databases SET server = $2, status = 'active', reason = '' WHERE id = $1`, id, s.name)
		return err
	})
}

// refill fills a database on a server with what Dump wrote, under its name and password.
func (d *Databases) refill(ctx context.Context, on *server, x Database, r io.Reader) error {
	password, err := d.password(x)
	if err != nil {
		return err
	}
	a, done, err := on.use(ctx)
	if err != nil {
		return err
	}
	defer done()
	if err := a.drop(ctx, x.Schema); err != nil {
		return err
	}
	if err := a.make(ctx, x.Schema, password); err != nil {
		return err
	}
	s := &Scratch{d: d, server: on, schema: x.Schema, password: password}
	sums, err := s.fill(ctx, r, LoadOptions{})
	if err == nil {
		err = s.compare(ctx, a, sums)
	}
	return err
}
