package database

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/go-sql-driver/mysql"

	"slipway/internal/platform/lazyregexp"
)

// admin holds the connections by which the server is administered.
type admin struct {
	sql  *sql.DB
	host string // from where sites' users come, as the server sees it

	private bool // the server is one owner's
}

// connect opens them and sees that the server answers.
func (s *server) connect(c *mysql.Config, host string) (*admin, error) {
	c = c.Clone()
	c.Timeout, c.ReadTimeout, c.WriteTimeout = 5*time.Second, 10*time.Minute, time.Minute
	c.Logger = nobody{}
	c.Params = map[string]string{"lock_wait_timeout": "5", "innodb_lock_wait_timeout": "5"} // a lock of a site holds nothing up for long
	c.DialFunc = inLargeReads(c.DialFunc)
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, fmt.Errorf("connect to database server: %w", err)
	}
	pool := sql.OpenDB(connector)
	// share: total 68 a server; owner has a server of their own, else the jobs that owners share; edge waits
	pool.SetMaxOpenConns(adminConnections)
	pool.SetConnMaxIdleTime(time.Minute)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := pool.PingContext(ctx); err != nil {
		pool.Close()
		return nil, fmt.Errorf("connect to database server: %w", err)
	}
	return &admin{sql: pool, host: host, private: s.outside == nil}, nil
}

// adminConnections is how many there are to a server: a backup reads all databases of a site at
// once, and few run at once.
const adminConnections = 8 + 3*maxPerSite

// dial makes a connection to an address, as the driver asks for it.
type dial = func(ctx context.Context, network, address string) (net.Conn, error)

// inLargeReads makes connections that are read 64 KiB at a time. The driver asks for 4 KiB,
// which for a dump of many megabytes is ten thousand calls of the system and as many waits. A
// nil dial is the net package's.
func inLargeReads(to dial) dial {
	if to == nil {
		to = new(net.Dialer).DialContext
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := to(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &largeReads{c, bufio.NewReaderSize(c, 64<<10)}, nil
	}
}

type largeReads struct {
	net.Conn
	from *bufio.Reader
}

func (c *largeReads) Read(b []byte) (int, error) { return c.from.Read(b) }

// SyscallConn lets the driver see that a connection was closed before it is used again.
func (c *largeReads) SyscallConn() (syscall.RawConn, error) {
	if of, ok := c.Conn.(syscall.Conn); ok {
		return of.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

// nobody hears what the driver would print; its errors come back from the calls.
type nobody struct{}

func (nobody) Print(...any) {}

func (a *admin) close() { _ = a.sql.Close() }

// schemaForm holds what we name schemas and users: nothing in it needs escaping, and it holds
// no wildcard of GRANT.
var schemaForm = lazyregexp.New(`^s[a-z2-7]{26}$`)

// rights lists what a site may do in its own database; without writing it may read and make
// room.
const (
	allRights = "SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, REFERENCES, INDEX, ALTER, CREATE TEMPORARY TABLES, LOCK TABLES, CREATE " +
		"VIEW, SHOW VIEW, CREATE ROUTINE, ALTER ROUTINE, EXECUTE, TRIGGER, DELETE HISTORY"
	noWrites = "INSERT, UPDATE, CREATE, INDEX, ALTER, CREATE TEMPORARY TABLES, CREATE VIEW, CREATE ROUTINE, ALTER ROUTINE, TRIGGER"
)

// make makes the database and its user, or gives the user this password.
func (a *admin) make(ctx context.Context, schema, password string) error {
	user, err := a.user(schema)
	if err != nil {
		return err
	}
	return a.all(ctx, "make database "+schema,
		"CREATE DATABASE IF NOT EXISTS `"+schema+"` CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci",
		"CREATE USER IF NOT EXISTS "+user+" IDENTIFIED BY '"+password+"'",
		"ALTER USER "+user+" IDENTIFIED BY '"+password+"' WITH MAX_USER_CONNECTIONS 100",
		"GRANT "+allRights+" ON `"+schema+"`.* TO "+user)
}

// drop removes the database and its user, whatever of them is there.
func (a *admin) drop(ctx context.Context, schema string) error {
	user, err := a.user(schema)
	if err != nil {
		return err
	}
	if err := a.all(ctx, "drop database "+schema, "DROP USER IF EXISTS "+user); err != nil {
		return err
	}
	a.kick(ctx, schema) // who is connected holds locks
	const what = "drop database "
	err = a.all(ctx, what+schema, "DROP DATABASE IF EXISTS `"+schema+"`")
	if locked(err) && a.private { // by what was prepared and has no connection any more
		if err := a.endPrepared(ctx); err != nil {
			return err
		}
		err = a.all(ctx, what+schema, "DROP DATABASE IF EXISTS `"+schema+"`")
	}
	return err
}

// locked reports whether a statement waited too long for a lock.
func locked(err error) bool {
	var refused *mysql.MySQLError
	return errors.As(err, &refused) && refused.Number == 1205
}

// endPrepared rolls the distributed transactions back that were prepared by connections that
// have ended: they hold their locks for ever.
func (a *admin) endPrepared(ctx context.Context) error {
	rows, err := a.sql.QueryContext(ctx, "XA RECOVER")
	if err != nil {
		return fmt.Errorf("list prepared transactions: %w", err)
	}
	defer rows.Close()
	var names []string
	for rows.Next() {
		var format int64
		var global, branch int
		var name []byte
		if err := rows.Scan(&format, &global, &branch, &name); err != nil {
			return fmt.Errorf("list prepared transactions: %w", err)
		}
		if global+branch == len(name) {
			names = append(names, fmt.Sprintf("X'%x',X'%x',%d", name[:global], name[global:], format))
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("list prepared transactions: %w", err)
	}
	for _, name := range names {
		_, _ = a.sql.ExecContext(ctx, "XA ROLLBACK "+name) // an error: its connection is still there
	}
	return nil
}

// restrict takes the right to grow from a site, or gives it back.
func (a *admin) restrict(ctx context.Context, schema string, full bool) error {
	user, err := a.user(schema)
	if err != nil {
		return err
	}
	change := "REVOKE " + noWrites + " ON `" + schema + "`.* FROM " + user
	if !full {
		change = "GRANT " + allRights + " ON `" + schema + "`.* TO " + user
	}
	if err := a.all(ctx, "restrict database "+schema, change); err != nil {
		return err
	}
	a.kick(ctx, schema) // a session keeps the rights that it began with
	return nil
}

// kick ends the connections of a site's user.
func (a *admin) kick(ctx context.Context, schema string) {
	if !schemaForm.MatchString(schema) {
		return
	}
	_, _ = a.sql.ExecContext(ctx, "KILL USER "+schema) // an error: there are none
}

// kickAll ends the connections of all sites.
func (a *admin) kickAll(ctx context.Context) {
	rows, err := a.sql.QueryContext(ctx, "SELECT DISTINCT user FROM information_schema.processlist WHERE user <> 'slipway'")
	if err != nil {
		return
	}
	defer rows.Close()
	var schemas []string
	for rows.Next() {
		var schema string
		if rows.Scan(&schema) == nil {
			schemas = append(schemas, schema)
		}
	}
	for _, schema := range schemas {
		a.kick(ctx, schema)
	}
}

func (a *admin) user(schema string) (string, error) {
	if !schemaForm.MatchString(schema) {
		return "", fmt.Errorf("%q is no name of a database", schema)
	}
	return "'" + schema + "'@'" + a.host + "'", nil
}

func (a *admin) all(ctx context.Context, what string, statements ...string) error {
	for _, q := range statements {
		if _, err := a.sql.ExecContext(ctx, q); err != nil {
			return fmt.Errorf("%s: %w", what, hide(err))
		}
	}
	return nil
}

// hide keeps passwords out of an error that repeats the statement.
func hide(err error) error {
	if i := strings.Index(err.Error(), "IDENTIFIED"); i >= 0 {
		return fmt.Errorf("%s[redacted]", err.Error()[:i])
	}
	return err
}

// sizes returns the bytes of each schema of ours, as the server counts them.
func (a *admin) sizes(ctx context.Context) (map[string]int64, error) {
	rows, err := a.sql.QueryContext(
		ctx,
		`SELECT table_schema, CAST(COALESCE(SUM(data_length + index_length), 0) AS SIGNED) FROM information_schema.tables
		WHERE table_type = 'BASE TABLE' AND table_schema NOT IN ('mysql', 'information_schema', 'performance_schema', 'sys')
		GROUP BY table_schema`,
	)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	out := map[string]int64{}
	for rows.Next() {
		var name string
		var n int64
		if err := rows.Scan(&name, &n); err != nil {
			return nil, err
		}
		out[name] = n
	}
	return out, rows.Err()
}

// shrink rebuilds the tables of a schema that hold much room that is free: deleted rows
// leave files as large as they were.
func (a *admin) shrink(ctx context.Context, schema string) error {
	rows, err := a.sql.QueryContext(ctx, `SELECT table_name FROM information_schema.tables
		WHERE table_schema = ? AND table_type = 'BASE TABLE' AND data_free > 8388608 AND data_free * 4 > data_length + index_length
		LIMIT 20`, schema)
	if err != nil {
		return err
	}
	var names []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			rows.Close()
			return err
		}
		names = append(names, name)
	}
	rows.Close()
	for _, name := range names {
		r, err := a.sql.QueryContext(ctx, "OPTIMIZE NO_WRITE_TO_BINLOG TABLE `"+schema+"`.`"+strings.ReplaceAll(name, "`", "``")+"`")
		if err != nil {
			return err
		}
		r.Close()
	}
	return nil
}

// slow is a statement that has run for long.
type slow struct {
	query  int64
	schema string
	took   time.Duration
	text   string
}

// running returns the statements of sites that have run for longer than d.
func (a *admin) running(ctx context.Context, d time.Duration) ([]slow, error) {
	rows, err := a.sql.QueryContext(ctx, `SELECT query_id, user, time_ms, LEFT(COALESCE(info, ''), 500) FROM information_schema.processlist
		WHERE command IN ('Query', 'Execute') AND time_ms > ? AND user <> 'slipway' LIMIT 200`, d.Milliseconds())
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []slow
	for rows.Next() {
		var x slow
		var ms float64
		if err := rows.Scan(&x.query, &x.schema, &ms, &x.text); err != nil {
			return nil, err
		}
		x.took = time.Duration(ms * float64(time.Millisecond))
		if schemaForm.MatchString(x.schema) {
			list = append(list, x)
		}
	}
	return list, rows.Err()
}
