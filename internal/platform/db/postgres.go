package db

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"golang.org/x/sys/unix"
)

// settings are what PostgreSQL obeys during each transaction of Write, and why. They are set as the transaction begins (SET LOCAL), in
// the same round trip: PgBouncer refuses most settings at the start of a connection, and lends another connection to each transaction.
// Migrations, copies and single statements have none of them, and long work may have others (Patient).
var settings = []struct{ name, value, why string }{
	{"idle_in_transaction_session_timeout", "8s", "a machine that stops inside a transaction gives up its row locks"},
	{"lock_timeout", "5s", "a write that waits for such a lock ends while its caller still waits"},
	{"statement_timeout", "60s", "a statement whose caller is gone ends; callers wait for answerTime at most"},
	{"tcp_user_timeout", "8s", "the server notices that a machine is gone while it sends a result"},
	{"tcp_keepalives_idle", "5", "the server notices that a machine is gone while a statement runs"},
	{"tcp_keepalives_interval", "1", "likewise"},
	{"tcp_keepalives_count", "3", "likewise"},
}

// What this side waits for. PostgreSQL can't obey any setting while it is stopped, and what is between (a proxy, PgBouncer) may accept
// bytes for a server that is gone.
const (
	connectTime = 4 * time.Second  // for a new connection, unless the address has connect_timeout
	pingTime    = 2 * time.Second  // for an answer of a connection that was idle for a second
	answerTime  = 10 * time.Second // for an answer to a statement, but see Patient
	silentTime  = 5 * time.Second  // for the acknowledgment of bytes by the other end's kernel
)

var begin = func() string {
	var b strings.Builder
	b.WriteString("BEGIN")
	for _, s := range settings {
		b.WriteString("; SET LOCAL " + s.name + " = '" + s.value + "'")
	}
	return b.String()
}()

type patientKey struct{}

// Patient returns a context under which a statement may take that long and may wait for locks for a minute, for work that no request waits
// for. Other statements on PostgreSQL fail after answerTime.
func Patient(ctx context.Context, most time.Duration) context.Context {
	return context.WithValue(ctx, patientKey{}, most)
}

func patience(ctx context.Context) time.Duration {
	most, _ := ctx.Value(patientKey{}).(time.Duration)
	return most
}

// lively has a connection notice soon that its other end is gone.
func lively(c *pgx.ConnConfig) {
	c.ConnectTimeout = cmp.Or(c.ConnectTimeout, connectTime)
	c.DialFunc = (&net.Dialer{
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: silentTime, Interval: time.Second, Count: 3},
		ControlContext: func(_ context.Context, network, _ string, raw syscall.RawConn) error {
			if !strings.HasPrefix(network, "tcp") {
				return nil
			}
			var err error
			return errors.Join(raw.Control(func(fd uintptr) {
				err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(silentTime.Milliseconds()))
			}), err)
		},
	}).DialContext
}

// connector makes connections to PostgreSQL that don't wait for ever.
func (d *DB) connector(c *pgx.ConnConfig) driver.Connector {
	lively(c)
	return connector{stdlib.GetConnector(*c), d}
}

type connector struct {
	driver.Connector
	d *DB
}

func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	got(ctx)
	limit, end := c.d.limit(ctx, time.Hour) // but for a request, the connection has its own
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errSilent)
	defer cancel()
	conn, err := c.Connector.Connect(ctx)
	end(err != nil)
	if err != nil {
		return nil, ours(err)
	}
	return &connection{Conn: conn.(*stdlib.Conn), d: c.d, made: time.Now()}, nil
}

// connection is one of stdlib's that bounds how long an answer takes, and commits with a mark.
type connection struct {
	*stdlib.Conn
	d    *DB
	made time.Time
}

// errSilent says that PostgreSQL, or what is between, sent no answer.
var errSilent = errors.New("the database doesn't answer")

// bounded returns a context that ends when an answer takes too long. The caller calls end as soon as there is one, with the error or nil.
func (c *connection) bounded(ctx context.Context, limit time.Duration) (_ context.Context, timer *time.Timer, end func(error) error) {
	got(ctx)
	limit, waited := c.d.limit(ctx, limit)
	ctx, cancel := context.WithCancelCause(ctx)
	timer = time.AfterFunc(limit, func() { cancel(fmt.Errorf("%w for %s", errSilent, limit)) })
	return ctx, timer, func(err error) error {
		timer.Stop()
		cause := context.Cause(ctx)
		cancel(nil)
		waited(err != nil && errors.Is(cause, errSilent))
		if err != nil && errors.Is(cause, errSilent) {
			c.d.silent.Store(time.Now().UnixNano())
			return cause
		}
		return ours(err)
	}
}

// errLost marks errors of connections to the database, which look like those of any other connection.
var errLost = errors.New("the connection to the database is lost")

func ours(err error) error {
	var op *net.OpError
	var connect *pgconn.ConnectError
	ended := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) // the caller's
	if errors.As(err, &op) || errors.As(err, &connect) || errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrUnexpectedEOF) ||
		pgconn.SafeToRetry(err) && !ended { // such as "conn closed": nothing was sent
		return fmt.Errorf("%w: %w", errLost, err)
	}
	return err
}

func answerLimit(ctx context.Context) time.Duration { return cmp.Or(patience(ctx), answerTime) }

// Each forwards to stdlib with a limit.

func (c *connection) ExecContext(ctx context.Context, q string, args []driver.NamedValue) (driver.Result, error) {
	ctx, _, end := c.bounded(ctx, answerLimit(ctx))
	r, err := c.Conn.ExecContext(ctx, q, args)
	return r, end(err)
}

func (c *connection) QueryContext(ctx context.Context, q string, args []driver.NamedValue) (driver.Rows, error) {
	limit := answerLimit(ctx)
	outer := ctx
	ctx, timer, end := c.bounded(ctx, limit)
	r, err := c.Conn.QueryContext(ctx, q, args)
	if err != nil {
		done(outer)
		return nil, end(err)
	}
	timer.Stop() // the caller may take its time between two rows
	return &answer{r.(*stdlib.Rows), timer, limit, func(err error) error {
		defer done(outer)
		return end(err)
	}}, nil
}

func (c *connection) Ping(ctx context.Context) error {
	ctx, _, end := c.bounded(ctx, pingTime)
	return end(c.Conn.Ping(ctx))
}

// ResetSession is asked before the connection is used again. Once one connection was silent, those that are as old are not tried.
func (c *connection) ResetSession(ctx context.Context) error {
	if c.made.UnixNano() <= c.d.silent.Load() {
		return driver.ErrBadConn
	}
	ctx, _, end := c.bounded(ctx, pingTime)
	if err := end(c.Conn.ResetSession(ctx)); err != nil {
		return driver.ErrBadConn
	}
	return nil
}

// answer is the rows of a query.
type answer struct {
	*stdlib.Rows
	timer *time.Timer
	limit time.Duration
	end   func(error) error
}

func (a *answer) Next(into []driver.Value) error {
	a.timer.Reset(a.limit)
	err := a.Rows.Next(into)
	a.timer.Stop()
	return ours(err)
}

func (a *answer) Close() error { return a.end(a.Rows.Close()) }

// BeginTx begins one of Write with its settings, and others as stdlib does.
func (c *connection) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	t, _ := ctx.Value(markingKey{}).(*Tx)
	text := begin
	switch {
	case t == nil && o.ReadOnly: // of Snapshot, which never commits
		text = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"
	case t == nil:
		return c.Conn.BeginTx(ctx, o)
	}
	if most := patience(ctx); most > 0 && t != nil {
		text += fmt.Sprintf("; SET LOCAL statement_timeout = %d; SET LOCAL lock_timeout = '60s'", most.Milliseconds())
	}
	ctx, _, end := c.bounded(ctx, answerTime)
	_, err := c.Conn.Conn().PgConn().Exec(ctx, text).ReadAll()
	if err = end(err); err != nil {
		c.Conn.Close()
		return nil, err
	}
	return transaction{c, t, context.WithoutCancel(ctx)}, nil
}

// transaction is one of Write.
type transaction struct {
	c   *connection
	t   *Tx
	ctx context.Context // that it began with: database/sql gives none to Commit and Rollback
}

func (t transaction) Rollback() error {
	ctx, _, end := t.c.bounded(t.ctx, pingTime)
	_, err := t.c.Conn.Conn().Exec(ctx, "ROLLBACK")
	if err = end(err); err != nil {
		t.c.Conn.Close() // the server rolls back what it loses
	}
	return err
}

// Commit sends what is left to do and COMMIT at once. The error is one of the server, which then has not committed, or errNoAnswer.
func (t transaction) Commit() error {
	ctx, _, end := t.c.bounded(t.ctx, answerTime)
	var b pgx.Batch
	for _, s := range t.t.last {
		b.Queue(s.q, s.args...)
	}
	if t.t.mark != "" {
		b.Queue(markText, t.t.mark)
	}
	for _, topic := range t.t.topics {
		b.Queue("SELECT pg_notify('slipway', $1)", topic)
	}
	b.Queue("COMMIT")
	r := t.c.Conn.Conn().SendBatch(ctx, &b)
	var last pgconn.CommandTag
	var err error
	for range b.Len() {
		if last, err = r.Exec(); err != nil {
			break
		}
	}
	err = end(errors.Join(err, r.Close()))
	var refused *pgconn.PgError
	switch {
	case err == nil && last.String() == "COMMIT":
		return nil
	case err == nil:
		return fmt.Errorf("the database answered %s", last)
	case errors.As(err, &refused) && refused.SeverityUnlocalized == "ERROR":
		t.Rollback()
		return err
	}
	t.c.Conn.Close()
	return fmt.Errorf("%w: %w", errNoAnswer, err)
}

// Lost reports whether err says that the database can't be reached, or that the connection to it was lost: it may be there again soon.
func Lost(err error) bool {
	var state *pgconn.PgError
	if errors.As(err, &state) {
		switch state.Code {
		case "57P01", "57P02", "57P03", "57P05", "53300", "25P03", "25006": // the last: a server that became, or still is, a standby
			return true
		}
		return strings.HasPrefix(state.Code, "08")
	}
	for _, lost := range []error{errLost, errSilent, errDropped, errUnknown, driver.ErrBadConn, sql.ErrConnDone} {
		if errors.Is(err, lost) {
			return true
		}
	}
	return false
}
