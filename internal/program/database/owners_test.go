package database_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/seal"
	"slipway/internal/program/database"
	"slipway/internal/tenant/account"
)

// Nothing that the sites of an owner do to their server may affect another owner: prepared transactions, named locks,
// or the end of the server.
func TestOwnersApart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	one, two := w.site(anna, "one"), w.site(ben, "two")
	w.database(anna, one)
	w.database(ben, two)
	a, b := w.connect(one), w.connect(two)
	w.exec(a, "CREATE TABLE t (x INT)")
	w.exec(b, "CREATE TABLE t (x INT)", "INSERT INTO t VALUES (7)")

	conn, err := a.Conn(t.Context())
	ok(t, err)
	for _, q := range []string{
		"XA START 'evil'", "INSERT INTO t VALUES (1)", "XA END 'evil'", "XA PREPARE 'evil'",
		"DO GET_LOCK('everybody', 0)",
	} {
		if _, err := conn.ExecContext(t.Context(), q); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
	rows, err := b.QueryContext(t.Context(), "XA RECOVER")
	ok(t, err)
	if rows.Next() {
		t.Error("another owner's prepared transaction is seen")
	}
	ok(t, rows.Close())
	if _, err := b.ExecContext(t.Context(), "XA ROLLBACK 'evil'"); code(err) != 1397 {
		t.Errorf("another owner's prepared transaction is ended: %v", err)
	}
	var n int
	ok(t, b.QueryRowContext(t.Context(), "SELECT GET_LOCK('everybody', 0)").Scan(&n))
	if n != 1 {
		t.Error("another owner's lock blocks this one")
	}

	// When one owner's server ends, the other owner's must keep running.
	held, err := b.Conn(t.Context())
	ok(t, err)
	kill(t, w.server(anna))
	if err := held.QueryRowContext(t.Context(), "SELECT x FROM t").Scan(&n); err != nil || n != 7 {
		t.Errorf("beside a server that was killed: %d, %v", n, err)
	}

	w.until("it is back", func() bool { return a.PingContext(t.Context()) == nil })
	// A prepared transaction without a connection must not hold up a deletion.
	w.until("the site's databases are gone", func() bool { return w.ForgetSite(t.Context(), one) == nil })

	users := map[uint32]account.OwnerID{}
	for _, o := range []account.OwnerID{anna, ben} {
		info, err := os.Stat(w.server(o))
		if errors.Is(err, fs.ErrNotExist) { // the owner had no database left
			continue
		}
		ok(t, err)
		if uid := uidOf(info); users[uid] != "" {
			t.Errorf("%s and %s have one user", o, users[uid])
		} else {
			users[uid] = o
		}
	}
}

// A server must sleep while it has no connections, must be woken by the next one, and must be removed with its last
// database.
func TestServerSleeps(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *database.Config) { c.Sleep = 50 * time.Millisecond })
	one := w.site(anna, "one")
	x := w.database(anna, one)
	client := database.Client{Owner: anna, Site: one}
	_, done, err := w.Socket(t.Context(), client) // as while a program runs
	ok(t, err)
	a := w.connect(one) // connect keeps a socket open too
	w.exec(a, "CREATE TABLE t (x INT)", "INSERT INTO t VALUES (42)")
	ok(t, a.Close())
	done()
	if !runs(w.server(anna)) {
		t.Error("the server sleeps while a program of the site runs")
	}
	w.endSockets()
	w.until("it sleeps", func() bool { return !runs(w.server(anna)) })
	var n int
	ok(t, w.connect(one).QueryRowContext(t.Context(), "SELECT x FROM t").Scan(&n))
	if n != 42 || !runs(w.server(anna)) {
		t.Errorf("after it woke: %d", n)
	}
	w.endSockets()
	w.write(func(tx *db.Tx) error { _, err := w.DeleteTx(t.Context(), tx, anna, x.ID); return err })
	w.until("its files are gone", func() bool {
		_, err := os.Stat(w.server(anna))
		return errors.Is(err, fs.ErrNotExist) && !runs(w.server(anna))
	})
	w.database(anna, one) // another database must get a new server
	ok(t, w.connect(one).PingContext(t.Context()))
}

// When the limit of awake servers is reached, a server without connections must be put to sleep for another one.
func TestServersAwake(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *database.Config) { c.Awake, c.Sleep = 1, time.Hour })
	one, two := w.site(anna, "one"), w.site(ben, "two")
	w.database(anna, one)
	w.database(ben, two)
	if runs(w.server(anna)) {
		t.Error("two servers run")
	}
	ok(t, w.connect(one).PingContext(t.Context()))
	if runs(w.server(ben)) {
		t.Error("two servers run")
	}
	// A server in use must stay awake.
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := w.connect(two).PingContext(ctx); err == nil || !runs(w.server(anna)) {
		t.Errorf("a server that is used gave its place away: %v", err)
	}
	w.endSockets()
	ok(t, w.connect(two).PingContext(t.Context()))
}

// While a transaction reads a full database, the other databases of its owner must still be checked.
func TestFullAndHeld(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *database.Config) { c.Size = 4 << 20 })
	one, two := w.site(anna, "one"), w.site(anna, "two")
	w.database(anna, one)
	w.database(anna, two)
	fill := func(pool *sql.DB) {
		w.exec(pool, "CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, x MEDIUMTEXT)")
		w.until("it is full", func() bool {
			_, err := pool.ExecContext(t.Context(), "INSERT INTO t (x) VALUES (REPEAT('x', 500000))")
			return code(err) == 1142
		})
	}
	a := w.connect(one)
	fill(a)
	w.exec(a, "DELETE FROM t") // the file keeps its size, so it would be rebuilt
	var held *sql.Tx
	w.until("a transaction reads it", func() (ok bool) { // earlier connections are ended
		var err error
		if held, err = a.Begin(); err != nil {
			return false
		}
		var n int
		return held.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM t").Scan(&n) == nil
	})
	defer func() { _ = held.Rollback() }()
	fill(w.connect(two))
}

// If temporary files take too much space, the connections that make them must be ended.
func TestTemporaryFiles(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *database.Config) { c.Work = 1 << 20 })
	one := w.site(anna, "one")
	w.database(anna, one)
	a := w.connect(one)
	w.exec(
		a,
		"CREATE TABLE t (x INT, y VARCHAR(2000))",
		"INSERT INTO t SELECT seq, REPEAT('y', 2000) FROM (WITH RECURSIVE s AS (SELECT 1 AS seq UNION ALL SELECT seq+1 FROM s WHERE seq < 900) SELECT seq FROM s) n",
	)
	_, err := a.ExecContext(
		t.Context(),
		"SELECT SUM(LENGTH(y)) FROM (SELECT p.y, q.x FROM t p JOIN t q JOIN t r ORDER BY RAND(), p.y LIMIT 1000000000) z",
	)
	if code(err) != 1317 && code(err) != 1927 && !broken(err) {
		t.Errorf("a sort of a billion rows: %v", err)
	}
	w.until("the site reads why", func() bool { return w.heard(one, "temporary files took more than 1 MiB") })
	ok(t, a.PingContext(t.Context()))
}

func broken(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "invalid connection") || strings.Contains(err.Error(), "bad connection"))
}

// Earlier versions had one server for all owners. After the next start its databases must be on servers of their
// owners, with the same names and passwords.
func TestLeaveSharedServer(t *testing.T) {
	t.Parallel()
	quick := func(c *database.Config) { c.Sleep = 50 * time.Millisecond }
	w := newWorld(t, quick)
	one, two := w.site(anna, "one"), w.site(ben, "two")
	x := w.database(anna, one)
	w.exec(w.connect(one), "CREATE TABLE t (x INT)", "INSERT INTO t VALUES (1)")
	first := w.dump(x.ID)
	l, err := w.Load(t.Context(), anna, strings.NewReader(string(first)), database.LoadOptions{Check: true})
	ok(t, err)
	w.write(func(tx *db.Tx) error { _, err := l.PutTx(t.Context(), tx, ben, two, "main", 0); return err })
	before, _, err := w.Env(t.Context(), two)
	ok(t, err)
	w.endSockets()
	w.stop()

	// Now both databases are on one server, at its old place.
	ok(t, os.Rename(w.server(anna), filepath.Join(w.dir, "mariadb", "server")))
	id, err := os.ReadFile(filepath.Join(w.dir, "mariadb", "id"))
	ok(t, err)
	ok(t, w.db.Admin(t.Context(), fmt.Sprintf("UPDATE databases SET server = 'private/%s'", id)))
	sealer, err := seal.Load(filepath.Join(w.dir, "key"))
	ok(t, err)
	w.start(sealer, quick)
	for _, s := range []struct {
		owner account.OwnerID
		pool  *sql.DB
	}{{anna, w.connect(one)}, {ben, w.connect(two)}} {
		w.until("it is on a server of its owner's", func() bool {
			var server string
			ok(t, w.db.QueryRow(t.Context(), `SELECT server FROM databases WHERE owner_id = $1`, s.owner).Scan(&server))
			return server == fmt.Sprintf("private/%s/%s", id, s.owner)
		})
		var n int
		w.until("it is there", func() bool { return s.pool.QueryRowContext(t.Context(), "SELECT x FROM t").Scan(&n) == nil })
		if n != 1 || !runs(w.server(s.owner)) {
			t.Errorf("%s: %d", s.owner, n)
		}
	}
	after, _, err := w.Env(t.Context(), two)
	ok(t, err)
	if before["DATABASE_URL"] != after["DATABASE_URL"] {
		t.Error("DATABASE_URL has changed, so programs would need a restart")
	}
	ok(t, w.db.Admin(t.Context(), "UPDATE database_scratch SET until = 0")) // as if a minute had passed
	w.until("the old server is gone", func() bool {
		_, err := os.Stat(filepath.Join(w.dir, "mariadb", "server"))
		return errors.Is(err, fs.ErrNotExist)
	})
}
