package database_test

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"testing"

	"github.com/go-sql-driver/mysql"

	"slipway/internal/platform/db"
	"slipway/internal/program/database"
	"slipway/internal/tenant/account"
)

// A site that was transferred to another owner must keep its database. The socket of the previous owner closes when its
// last connection ends; that must not affect the new owner's socket, and neither must closing all sockets of a site.
func TestSocketAfterTransfer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.site(anna, "one")
	open := func(owner account.OwnerID) string {
		path, done, err := w.Socket(t.Context(), database.Client{Owner: owner, Site: id})
		ok(t, err)
		t.Cleanup(done)
		return path
	}
	check := func(path, before string) {
		t.Helper()
		w.until("the socket of the owner before is gone", func() bool {
			_, err := os.Stat(before)
			return errors.Is(err, fs.ErrNotExist)
		})
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal("the new owner's programs don't reach their database:", err)
		}
		c.Close()
	}
	first := open(anna)
	held, err := net.Dial("unix", first)
	ok(t, err)
	defer held.Close()
	second := open(ben)
	check(second, first)
	third := open(anna)
	check(third, second)
	closed := make(chan struct{})
	go func() { defer close(closed); w.CloseSocket(id) }()
	w.until("the socket is closed", func() bool { return open(anna) != third })
	<-closed
	check(open(anna), third)
}

// After a transfer, what the previous owner knows of the site's databases must no longer work: the passwords, those of
// previews too, and the connections made with them. The site must reach its data with the new passwords, on the same
// server.
func TestTransferRotatesPasswords(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id, other := w.site(anna, "one"), w.site(anna, "other")
	x := w.database(anna, id)
	w.database(anna, other)
	before := w.connect(id)
	w.exec(before, "CREATE TABLE t (x INT)", "INSERT INTO t VALUES (7)")
	env, _, err := w.Env(t.Context(), id)
	ok(t, err)
	old := func(c *mysql.Config) {
		c.User, c.Passwd, c.DBName = env["DB_USERNAME"], env["DB_PASSWORD"], env["DB_DATABASE"]
	}
	spy := w.connect(other, old) // the previous owner's other site, with the variables that its owner has read
	held, err := spy.Conn(t.Context())
	ok(t, err)
	var n int
	ok(t, held.QueryRowContext(t.Context(), "SELECT x FROM t").Scan(&n))
	w.write(func(tx *db.Tx) error {
		if _, err := w.sites.MoveSiteTx(t.Context(), tx, id, anna, ben); err != nil {
			return err
		}
		_, err := w.MoveSiteTx(t.Context(), tx, id, anna, ben)
		return err
	})
	w.until("the password is changed", func() bool {
		got, err := w.Get(t.Context(), w.db, ben, x.ID)
		ok(t, err)
		return got.Status == database.Active
	})
	if err := held.QueryRowContext(t.Context(), "SELECT x FROM t").Scan(&n); err == nil {
		t.Error("a connection of the previous owner still works")
	}
	if err := w.connect(other, old).PingContext(t.Context()); code(err) != 1045 {
		t.Errorf("the sender's password: %v", err)
	}
	if err := w.connect(id).QueryRowContext(t.Context(), "SELECT x FROM t").Scan(&n); err != nil || n != 7 {
		t.Errorf("the receiver's data: %d, %v", n, err)
	}
}
