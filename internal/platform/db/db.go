// Package db owns the one database: opening it, its migrations, and the rule that
// what was acknowledged is on disk.
//
// It speaks SQLite and PostgreSQL through database/sql with one set of statements:
// $1 parameters, TEXT, BIGINT, BOOLEAN, RETURNING and ON CONFLICT. On SQLite there is
// one writer connection (a Write inside a Write would wait for itself, hence the Tx
// twins of the services) and a pool of readers that cannot write. The package knows no
// table; every table is written by the package that its migration names.
package db

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	_ "modernc.org/sqlite" // driver "sqlite": the only one that binds $1 by number

	"slipway/internal/platform/disk"
	"slipway/internal/platform/fair"
)

// Config says which database to open.
type Config struct {
	URL     string // "sqlite:/path/to/file.db" or "postgres://…"
	Log     *slog.Logger
	Readers int            // connections that read (SQLite) or in all (PostgreSQL). Optional: 0 means 8, 32.
	Wait    time.Duration  // how long a Write waits for its turn. Optional: 0 means 10s.
	Seen    func(q string) // is told every statement before it runs, so that tests can count them. Optional.

	// Faults says what goes wrong with commits of Write, so that tests can lose the answers of some. Optional.
	Faults Faults

	// Volatile makes SQLite's commits not wait for the disk: for tests, whose machine doesn't lose power. Optional.
	Volatile bool

	// Idle is how long a reader of SQLite that nobody needs stays open: with simulated time, each wait would end all. Optional: 0
	// means 10s.
	Idle time.Duration
}

// DB is an open database. It is safe for concurrent use.
type DB struct {
	write  *sql.DB
	read   *sql.DB
	single bool
	url    string
	wait   time.Duration
	log    *slog.Logger
	topics topics
	seen   func(q string)
	faults Faults // Optional
	slots  *fair.Pool
	marked atomic.Bool           // the schema has commit_marks
	silent atomic.Int64          // when a connection of PostgreSQL didn't answer, in nanoseconds since 1970: older ones aren't used again
	clock  atomic.Pointer[clock] // nil: this machine's
	guard  atomic.Pointer[func(context.Context) error]

	prepared prepared
	writing  writing
}

// Open opens the database and checks that it answers. It changes nothing: call Migrate.
func Open(ctx context.Context, c Config) (*DB, error) {
	d := &DB{url: c.URL, wait: cmp.Or(c.Wait, 10*time.Second), seen: c.Seen, faults: c.Faults}
	d.log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	if d.seen == nil {
		d.seen = func(string) {}
	}
	var err error
	switch {
	case strings.HasPrefix(c.URL, "sqlite:"):
		err = d.openSQLite(strings.TrimPrefix(c.URL, "sqlite:"), c)
	case strings.HasPrefix(c.URL, "postgres://"), strings.HasPrefix(c.URL, "postgresql://"):
		err = d.openPostgres(cmp.Or(c.Readers, 32))
	default:
		return nil, errors.New("open database: the address must begin with sqlite: or postgres://")
	}
	if err != nil {
		return nil, err
	}
	if err := d.read.PingContext(ctx); err != nil {
		d.Close()
		return nil, fmt.Errorf("open database: %w", err)
	}
	return d, nil
}

// openSQLite opens one writer and a pool of readers. The pragmas stand in the DSN so
// that every connection has them; synchronous=FULL makes a commit durable (SQLite,
// "PRAGMA synchronous"): 0.2 ms here, and what the contract's 2xx promises. The writer keeps
// in memory what a statement needs to be undone (in a file each changed page was written
// twice), and folds the log back every 8 MB, so that pages that change often are written less. Readers have
// small page caches, in kB: the kernel has the pages in memory once for all of them, and
// eight copies of 16 MB made nothing faster. A new file can return free pages: see Shrink.
func (d *DB) openSQLite(path string, c Config) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("open database: %w", err)
	}
	const pragmas = "_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=foreign_keys(1)&_pragma=mmap_size(0)"
	durable := "&_pragma=synchronous(FULL)"
	if c.Volatile {
		durable = "&_pragma=synchronous(OFF)"
	}
	base := "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + pragmas + durable
	var err error
	if d.write, err = sql.Open(
		"sqlite",
		base+"&_txlock=immediate&_pragma=auto_vacuum(2)&_pragma=cache_size(-16000)&_pragma=temp_store(2)&_pragma=wal_autocheckpoint(2000)",
	); err != nil {
		return fmt.Errorf("open database: %w", err)
	}
	// share: total 1 connection that writes; owner in turn, see slots; edge waits, 10 s at most
	d.write.SetMaxOpenConns(1)
	// The writer goes first: it makes the file and puts it into WAL mode.
	if err := d.write.Ping(); err != nil {
		d.write.Close()
		return fmt.Errorf("open database %s: %w", path, err)
	}
	if d.read, err = sql.Open("sqlite", base+"&_pragma=query_only(1)&_pragma=cache_size(-2000)"); err != nil {
		d.write.Close()
		return fmt.Errorf("open database: %w", err)
	}
	readers := cmp.Or(c.Readers, 8)
	// share: total the readers' connections; owner any part, for reads that are all bounded; edge waits, as long as the request
	d.read.SetMaxOpenConns(readers)
	d.read.SetMaxIdleConns(readers)
	// Each holds the schema and pages of its own, near 1 MB: those that a burst has opened go when it is over.
	d.read.SetConnMaxIdleTime(cmp.Or(c.Idle, 10*time.Second))
	d.single = true
	d.slots = newSlots(1, 1)
	return nil
}

// apart opens a pool that is nobody else's on SQLite's file.
func (d *DB) apart() (*sql.DB, error) {
	conn, err := sql.Open("sqlite", "file:"+(&url.URL{Path: d.file()}).EscapedPath()+"?_pragma=busy_timeout(10000)&_pragma=cache_size(-2000)")
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	// share: none, one file's: for a copy or a check of a database
	conn.SetMaxOpenConns(1)
	return conn, nil
}

func (d *DB) openPostgres(conns int) error {
	config, err := pgx.ParseConfig(d.url)
	if err != nil {
		return fmt.Errorf("open database: %w", err)
	}
	pool := sql.OpenDB(d.connector(config))
	// share: total the connections to PostgreSQL; owner a quarter of those that write, see slots; edge waits, 10 s at most
	pool.SetMaxOpenConns(conns)
	pool.SetMaxIdleConns(conns)
	pool.SetConnMaxIdleTime(5 * time.Minute)
	d.write, d.read = pool, pool
	d.slots = newSlots(conns/2, conns/4) // the other half reads
	return nil
}

// Close closes every connection. Transactions under way are rolled back.
func (d *DB) Close() error {
	if d.read != d.write {
		d.read.Close()
	}
	return d.write.Close()
}

// Single reports whether this process is the only one that serves from the database
// (SQLite): work that another process left running is then known to be abandoned.
func (d *DB) Single() bool { return d.single }

// SkipLocked is the one allowed difference between the two dialects: it ends a
// sub-select that claims rows.
func (d *DB) SkipLocked() string {
	if d.single {
		return ""
	}
	return " FOR UPDATE SKIP LOCKED"
}

// Ping reports whether the database answers.
func (d *DB) Ping(ctx context.Context) error { return d.read.PingContext(ctx) }

// TakesWrites reports whether a transaction can be committed. On SQLite, where only writes of this process could be in the way, it looks
// whether the disk has room.
func (d *DB) TakesWrites(ctx context.Context) error {
	if d.single {
		if err := disk.Room(filepath.Dir(d.file()), 1<<20); err != nil {
			return err
		}
		return d.Ping(ctx)
	}
	return d.Write(ctx, func(tx *Tx) error {
		_, err := tx.Exec(ctx, `SELECT txid_current()`) // a standby has none to give; with it, the commit's mark is written
		return err
	})
}

// Snapshot lets fn read several times from one moment of the database.
func (d *DB) Snapshot(ctx context.Context, fn func(r Reader) error) error {
	o := &sql.TxOptions{ReadOnly: true}
	if !d.single {
		o.Isolation = sql.LevelRepeatableRead // SQLite's readers always have it
	}
	begin := d.read.BeginTx
	if !d.single {
		conn, err := d.conn(ctx)
		if err != nil {
			return fmt.Errorf("begin snapshot: %w", err)
		}
		defer conn.Close()
		begin = conn.BeginTx
	}
	tx, err := begin(ctx, o)
	if err != nil {
		return fmt.Errorf("begin snapshot: %w", err)
	}
	defer tx.Rollback()
	return fn(&Tx{tx: tx, d: d, reads: true})
}

// Integrity runs SQLite's own checks of the file and of the foreign keys, and reports
// the first thing that is wrong. PostgreSQL looks after itself.
func (d *DB) Integrity(ctx context.Context) error {
	if !d.single {
		return nil
	}
	return integrity(ctx, d.read)
}

// querier is a *sql.DB or a *sql.Tx.
type querier interface {
	QueryRowContext(ctx context.Context, q string, args ...any) *sql.Row
	QueryContext(ctx context.Context, q string, args ...any) (*sql.Rows, error)
}

// integrity checks a database of SQLite, or what a transaction has made of it.
func integrity(ctx context.Context, q querier) error {
	var verdict string
	if err := q.QueryRowContext(ctx, "PRAGMA integrity_check").Scan(&verdict); err != nil {
		return fmt.Errorf("check integrity: %w", err)
	}
	if verdict != "ok" {
		return fmt.Errorf("check integrity: %s", verdict)
	}
	rows, err := q.QueryContext(ctx, "PRAGMA foreign_key_check")
	if err != nil {
		return fmt.Errorf("check foreign keys: %w", err)
	}
	defer rows.Close()
	if rows.Next() {
		var table, parent sql.NullString
		var rowid, fk sql.NullInt64
		if err := rows.Scan(&table, &rowid, &parent, &fk); err != nil {
			return fmt.Errorf("check foreign keys: %w", err)
		}
		return fmt.Errorf("check foreign keys: row %d of %s refers to nothing in %s", rowid.Int64, table.String, parent.String)
	}
	return rows.Err()
}

// Reader runs queries: the database itself, or a transaction that must see its own
// writes. Services take it where one query serves both.
type Reader interface {
	Query(ctx context.Context, q string, args ...any) (*sql.Rows, error)
	QueryRow(ctx context.Context, q string, args ...any) *sql.Row
}

// Scanner is a row to read from: *sql.Row or *sql.Rows.
type Scanner interface{ Scan(dst ...any) error }

// Collect reads every row with scan and closes them.
func Collect[T any](rows *sql.Rows, err error, scan func(Scanner) (T, error)) ([]T, error) {
	return CollectInto([]T{}, rows, err, scan)
}

// CollectInto is Collect that appends, for a caller who knows how many rows to expect.
func CollectInto[T any](out []T, rows *sql.Rows, err error, scan func(Scanner) (T, error)) ([]T, error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, rows.Err()
}
