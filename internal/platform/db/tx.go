package db

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"slipway/internal/platform/disk"
	"slipway/internal/platform/fair"
	"slipway/internal/platform/panics"
)

// Tx is a transaction that writes. It reads its own writes.
type Tx struct {
	tx     *sql.Tx
	d      *DB
	topics []string
	last   []statement
	after  []func()
	ran    []string // statements that were run as text
	mark   string   // of the commit; empty: nothing is found out about it
	reads  bool     // a Snapshot, on a reader's connection
}

// Exec runs a statement and says how many rows it changed.
func (t *Tx) Exec(ctx context.Context, q string, args ...any) (int64, error) {
	t.d.seen(q)
	var r sql.Result
	var err error
	if s := t.prepared(ctx, q); s != nil {
		r, err = s.ExecContext(ctx, args...)
	} else {
		r, err = t.tx.ExecContext(ctx, q, args...)
	}
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// Query runs a statement that returns rows. The caller closes them before the next one.
func (t *Tx) Query(ctx context.Context, q string, args ...any) (*sql.Rows, error) {
	t.d.seen(q)
	if s := t.prepared(ctx, q); s != nil {
		return s.QueryContext(ctx, args...)
	}
	return t.tx.QueryContext(ctx, q, args...)
}

// QueryRow runs a statement that returns one row.
func (t *Tx) QueryRow(ctx context.Context, q string, args ...any) *sql.Row {
	t.d.seen(q)
	if s := t.prepared(ctx, q); s != nil {
		return s.QueryRowContext(ctx, args...)
	}
	return t.tx.QueryRowContext(ctx, q, args...)
}

// SkipLocked ends a sub-select that claims rows; see [DB.SkipLocked].
func (t *Tx) SkipLocked() string { return t.d.SkipLocked() }

// Single is [DB.Single]: nobody else writes while this transaction does.
func (t *Tx) Single() bool { return t.d.single }

// IndexesOnly has PostgreSQL read tables by their indices for the rest of the transaction. It
// is for queues: a plan that was made when one was empty, and is kept, would read it whole
// after it has filled. SQLite always does so.
func (t *Tx) IndexesOnly(ctx context.Context) error {
	if t.d.single {
		return nil
	}
	if _, err := t.tx.ExecContext(
		ctx,
		`SELECT set_config('enable_seqscan', 'off', TRUE), set_config('enable_bitmapscan', 'off', TRUE), set_config('jit', 'off', TRUE)`,
	); err != nil {
		return fmt.Errorf("plan by index: %w", err)
	}
	return nil
}

// statement is one that Last was given.
type statement struct {
	counter, q string
	args       []any
}

// Last runs a statement with the commit, after those of the same counter that Last was given before: for a row that every such
// transaction locks, so that what it counts becomes visible in order. On PostgreSQL the statements go with COMMIT in one message, so a
// machine that stops inside a transaction doesn't hold up the others. They lock no row that the transaction hasn't locked yet, but the
// counter's.
func (t *Tx) Last(counter, q string, args ...any) {
	t.last = append(t.last, statement{counter, q, args})
}

// AfterCommit runs fn once the transaction is on disk, and never after a rollback. fn
// must not fail and must not take long: what has to happen is a job, not this.
func (t *Tx) AfterCommit(fn func()) { t.after = append(t.after, fn) }

// Notify wakes those who Listen to the topic, on every node, once the transaction is
// on disk. A wake-up may be lost: listeners also poll.
func (t *Tx) Notify(topic string) { t.topics = append(t.topics, topic) }

// Write runs fn in a transaction and returns when it is on disk. When fn or the commit
// fails nothing is written. fn may run again after a conflict with another transaction
// (PostgreSQL), so it changes nothing outside; it does no network, no files, and never
// calls Write itself.
//
// A connection that is lost before the commit is a conflict, too. When the answer to the commit is lost, Write finds out whether the
// transaction was committed, and runs fn again if it wasn't. If the database doesn't answer in time, the error is one that Unknown reports.
func (d *DB) Write(ctx context.Context, fn func(tx *Tx) error) error {
	begun := time.Now()
	for try := 1; ; try++ {
		err := d.writeOnce(ctx, fn)
		switch {
		case err == nil, ctx.Err() != nil, Unknown(err):
			return err
		case conflicting(err) && try < 5:
		case errors.Is(err, errDropped), Lost(err) && !d.single && time.Since(begun) < settleTime:
			select {
			case <-ctx.Done():
				return err
			case <-time.After(20 * time.Millisecond << min(try, 6)):
			}
		default:
			return err
		}
	}
}

// Guard has every later Write ask may first, and end with its error.
func (d *DB) Guard(may func(ctx context.Context) error) { d.guard.Store(&may) }

type unguardedKey struct{}

// Unguarded returns a context under which Write doesn't ask.
func Unguarded(ctx context.Context) context.Context {
	return context.WithValue(ctx, unguardedKey{}, true)
}

func (d *DB) writeOnce(ctx context.Context, fn func(tx *Tx) error) error {
	if may := d.guard.Load(); may != nil && ctx.Value(unguardedKey{}) == nil {
		if err := (*may)(ctx); err != nil {
			return err
		}
	}
	conn, release, err := d.writer(ctx)
	if err != nil {
		return err
	}
	defer release()
	tx := &Tx{d: d}
	defer d.writing.learn(d.write, tx) // once the connection is free, and before somebody else has it
	defer conn.Close()
	sqlTx, err := conn.BeginTx(d.marking(ctx, tx), nil)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer sqlTx.Rollback() // does nothing after a commit
	tx.tx = sqlTx
	if err := fn(tx); err != nil {
		return err
	}
	// All transactions lock counters in one order.
	slices.SortStableFunc(tx.last, func(a, b statement) int { return cmp.Compare(a.counter, b.counter) })
	if d.single {
		for _, s := range tx.last {
			if _, err := tx.Exec(ctx, s.q, s.args...); err != nil {
				return fmt.Errorf("%s: %w", s.counter, err)
			}
		}
	}
	if err := d.commit(ctx, sqlTx, tx); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	for _, topic := range tx.topics {
		d.topics.wake(topic)
	}
	for _, fn := range tx.after {
		fn()
	}
	return nil
}

// writer takes a writing connection when it is the share's turn, waiting for at most the
// configured time. release gives the turn back, after the connection.
func (d *DB) writer(ctx context.Context) (conn *sql.Conn, release func(), err error) {
	limit, waited := d.wait, func(bool) {}
	if !d.single {
		limit, waited = d.limit(ctx, d.wait)
	}
	wait, cancel := context.WithTimeoutCause(ctx, limit, errBusy)
	defer cancel()
	if release, err = d.slots.Take(wait, fair.Who{Owner: Share(ctx)}); err == nil {
		if conn, err = d.write.Conn(wait); err != nil {
			release()
		}
	}
	if err != nil && errors.Is(context.Cause(wait), errBusy) {
		waited(true)
		return nil, nil, fmt.Errorf("%w for %s", errBusy, limit)
	}
	return conn, release, err
}

// errBusy is also what a Write inside a Write ends with.
var errBusy = errors.New("waited for the database's one writer (is there a Write inside a Write?)")

// Busy reports whether err says that the database could not take the write, or the statement, in time. A conflict that Write has retried
// in vain, or for whose repetition no time was left, is one.
func Busy(err error) bool {
	var s *sqlite.Error
	var p *pgconn.PgError // 55P03: lock_timeout; 57014: statement_timeout
	return errors.Is(err, errBusy) || errors.Is(err, errNoConnection) || errors.As(err, &s) && s.Code()&0xff == sqlite3.SQLITE_BUSY ||
		errors.As(err, &p) && (p.Code == "55P03" || p.Code == "57014") || conflicting(err)
}

// Full reports whether err says that the disk is full.
func Full(err error) bool {
	var s *sqlite.Error
	var p *pgconn.PgError
	return disk.Full(err) || errors.As(err, &s) && (s.Code()&0xff == sqlite3.SQLITE_FULL || s.Code()&0xff == sqlite3.SQLITE_IOERR) ||
		errors.As(err, &p) && p.Code == "53100"
}

// Away reports whether err says that the database didn't take a statement, and may take it when it is asked again.
func Away(err error) bool {
	// The last is what database/sql says after Close; it has no name there.
	return Busy(err) || Full(err) || Lost(err) || err != nil && strings.Contains(err.Error(), "sql: database is closed")
}

// Duplicate reports whether err is a unique index refusing a row.
func Duplicate(err error) bool {
	var s *sqlite.Error
	if errors.As(err, &s) {
		return s.Code() == sqlite3.SQLITE_CONSTRAINT_UNIQUE || s.Code() == sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY
	}
	var p *pgconn.PgError
	return errors.As(err, &p) && p.Code == "23505"
}

// conflicting reports whether the same transaction may pass when it is tried again:
// PostgreSQL's serialization failure and deadlock.
func conflicting(err error) bool {
	var p *pgconn.PgError
	return errors.As(err, &p) && (p.Code == "40001" || p.Code == "40P01")
}

// Works returns an error while the database is down in a way that a restart heals: a PostgreSQL that is away is none of it.
func (d *DB) Works(ctx context.Context) error {
	if !d.single {
		return nil
	}
	if err := d.Ping(ctx); err != nil {
		return fmt.Errorf("database: %w", err)
	}
	return nil
}

// Run keeps the database well until ctx ends: it hears PostgreSQL's notifications of
// other nodes, deletes old marks of commits, and folds SQLite's write-ahead log back into the file.
func (d *DB) Run(ctx context.Context) error {
	if !d.single {
		var hearing panics.Background
		defer hearing.Wait()
		hearing.Go(func() { d.hear(ctx) })
	}
	tick := time.NewTicker(markTidy)
	defer tick.Stop()
	started := time.After(afterStart)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if err := d.forgetMarks(ctx); err != nil && ctx.Err() == nil {
				d.log.WarnContext(ctx, "marks of commits not deleted", "err", err)
			}
			if d.single {
				d.fold(ctx)
			}
		case <-started:
			if d.single {
				d.shrink(ctx)
			}
		}
	}
}

// fold folds SQLite's write-ahead log back into the file.
func (d *DB) fold(ctx context.Context) {
	d.shrink(ctx)
	if _, err := d.write.ExecContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)"); err != nil && ctx.Err() == nil {
		d.log.WarnContext(ctx, "write-ahead log not folded back", "err", err)
	}
}

// afterStart is when the start is over: what was read for it is needed no more.
const afterStart = 1500 * time.Millisecond

// shrink gives back the pages that SQLite's writer has in memory: those that are needed again come from the kernel, in microseconds.
func (d *DB) shrink(ctx context.Context) {
	if _, err := d.write.ExecContext(ctx, "PRAGMA shrink_memory"); err != nil && ctx.Err() == nil {
		d.log.WarnContext(ctx, "memory not given back", "err", err)
	}
}

// Admin runs one statement outside any transaction, for what databases refuse inside
// one (CREATE DATABASE). It is for tests and tools.
func (d *DB) Admin(ctx context.Context, q string) error {
	_, err := d.write.ExecContext(Patient(ctx, time.Hour), q)
	return err
}
