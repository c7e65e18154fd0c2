package database_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/seal"
	"slipway/internal/program/database"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
)

// A site must get a database that no other site can reach. When it is deleted, nothing may remain.
func TestDatabase(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	one, two := w.site(anna, "one"), w.site(ben, "two")
	if _, err := os.Stat(w.server(anna)); !os.IsNotExist(err) {
		t.Errorf("a server nobody asked for is there: %v", err)
	}
	x, y := w.database(anna, one), w.database(ben, two)
	env, secrets, err := w.Env(t.Context(), one)
	ok(t, err)
	if got, want := env["DATABASE_URL"], "mysql://"+x.Schema+":"+env["DB_PASSWORD"]+"@127.0.0.1:33306/"+x.Schema; got != want {
		t.Errorf("DATABASE_URL is %q, want %q", got, want)
	}
	if len(secrets) != 1 || secrets[0] != env["DB_PASSWORD"] || len(secrets[0]) < 40 {
		t.Errorf("secrets: %d", len(secrets))
	}
	for _, key := range x.EnvKeys() {
		if env[key] == "" {
			t.Errorf("%s is empty", key)
		}
	}
	a, b := w.connect(one), w.connect(two)
	w.exec(
		a, "CREATE TABLE t (x INT)", "INSERT INTO t VALUES (1), (2)", "CREATE VIEW v AS SELECT * FROM t",
		"CREATE TRIGGER r BEFORE INSERT ON t FOR EACH ROW SET NEW.x = 1",
	)
	w.exec(b, "CREATE TABLE t (x TEXT) ENGINE=InnoDB")
	var noon string
	const zoned = "SELECT CONVERT_TZ('2026-07-01 12:00:00', 'UTC', 'Europe/Berlin')"
	if err := a.QueryRowContext(t.Context(), zoned).Scan(&noon); err != nil || noon != "2026-07-01 14:00:00" {
		t.Errorf("%s: %q, %v", zoned, noon, err)
	}

	for what, q := range map[string]string{
		"another's table":        "SELECT * FROM `" + y.Schema + "`.t",
		"another's table, write": "DROP TABLE `" + y.Schema + "`.t",
		"users":                  "SELECT * FROM mysql.global_priv",
		"a file, read":           "SELECT LOAD_FILE('/etc/passwd') IS NULL OR 1/0 FROM mysql.user",
		"a file, write":          "SELECT 1 INTO OUTFILE '/build/tmp/x'",
		"a file, load":           "LOAD DATA INFILE '/etc/passwd' INTO TABLE t",
		"another database":       "CREATE DATABASE mine",
		"another user":           "CREATE USER x@localhost",
		"grants":                 "GRANT ALL ON `" + x.Schema + "`.* TO x@localhost",
		"settings":               "SET GLOBAL max_connections = 10",
		"a larger share":         "SET SESSION sql_log_bin = 0",
		"shutdown":               "SHUTDOWN",
		"events":                 "CREATE EVENT e ON SCHEDULE EVERY 1 SECOND DO DELETE FROM t",
		"plugins":                "INSTALL SONAME 'ha_connect'",
		"functions":              "CREATE FUNCTION f RETURNS STRING SONAME 'x.so'",
		"tables in memory":       "SET SESSION sql_mode='NO_ENGINE_SUBSTITUTION', enforce_storage_engine=NULL",
	} {
		if _, err := a.ExecContext(t.Context(), q); code(err) == 0 {
			t.Errorf("%s: %q gives %v", what, q, err)
		}
	}
	var n int
	if err := a.QueryRowContext(
		t.Context(),
		"SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name LIKE 's%'",
	).Scan(&n); err != nil || n != 1 {
		t.Errorf("%d schemas are seen (%v)", n, err)
	}
	if err := a.QueryRowContext(
		t.Context(),
		"SELECT COUNT(*) FROM information_schema.processlist WHERE user <> '"+x.Schema+"'",
	).Scan(&n); err != nil || n != 0 {
		t.Errorf("%d others' connections are seen (%v)", n, err)
	}
	// No account may accept a login without a password, whatever the user name.
	for _, user := range []string{"root", "slipway", "mysql", "mariadb.sys", "", y.Schema} {
		as := w.connect(one, func(c *mysql.Config) { c.User, c.Passwd, c.DBName = user, "", "" })
		if err := as.PingContext(t.Context()); code(err) != 1045 && code(err) != 1698 && code(err) != 4151 {
			t.Errorf("as %q without a password: %v", user, err)
		}
	}
	if _, err := w.Get(t.Context(), w.db, ben, x.ID); !fault.Is(err, fault.NotFound) {
		t.Errorf("another owner reads it: %v", err)
	}

	// After a rotation the new password must work, and the old one must not.
	old := env["DB_PASSWORD"]
	w.write(func(tx *db.Tx) error { _, err := w.RotateTx(t.Context(), tx, anna, x.ID); return err })
	w.until("rotated", func() bool {
		got, err := w.Get(t.Context(), w.db, anna, x.ID)
		ok(t, err)
		return got.Status == database.Active
	})
	if err := w.connect(one, func(c *mysql.Config) { c.Passwd = old }).PingContext(t.Context()); code(err) != 1045 {
		t.Errorf("the old password: %v", err)
	}
	ok(t, w.connect(one).PingContext(t.Context()))

	// When the site is deleted, schema, user, files, socket and row must be deleted too.
	socket := w.socket(one)
	w.until("the site's databases are gone", func() bool { return w.ForgetSite(t.Context(), one) == nil })
	if _, err := os.Stat(filepath.Join(w.server(anna), "data", x.Schema)); !os.IsNotExist(err) {
		t.Errorf("its files: %v", err)
	}
	if _, err := os.Stat(filepath.Dir(socket)); !os.IsNotExist(err) {
		t.Errorf("its socket: %v", err)
	}
	if err := w.connect(two, func(c *mysql.Config) { c.User, c.Passwd, c.DBName = env["DB_USERNAME"], old, "" }).PingContext(t.Context()); code(
		err,
	) != 1045 {
		t.Errorf("its user: %v", err)
	}
	ok(t, w.db.QueryRow(t.Context(), `SELECT count(*) FROM databases WHERE site_id = $1`, one).Scan(&n))
	if n != 0 {
		t.Errorf("%d rows are left", n)
	}
	w.exec(b, "INSERT INTO t VALUES ('still here')")
}

// A server that is killed must soon be back with everything that was committed. New connections must wait meanwhile,
// and the logs of its sites must say why.
func TestServerIsKilled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	one := w.site(anna, "one")
	w.database(anna, one)
	a := w.connect(one)
	w.exec(a, "CREATE TABLE t (x INT)", "INSERT INTO t VALUES (42)")
	for range 2 {
		kill(t, w.server(anna))
		var x int
		// The connection that was open is broken, and the next one must wait for the server.
		w.until("the server is back", func() bool { return a.QueryRowContext(t.Context(), "SELECT x FROM t").Scan(&x) == nil })
		if x != 42 {
			t.Errorf("read %d", x)
		}
	}
	w.until("the site reads why", func() bool {
		return w.heard(
			one,
			"The database server ended unexpectedly (ended by signal SIGKILL)",
		) && w.heard(one, "The database server is back after")
	})
	ok(t, a.PingContext(t.Context()))

	// The same must hold after a stop and another start of the service.
	sealer, err := seal.Load(filepath.Join(w.dir, "key"))
	ok(t, err)
	w.stop()
	w.start(sealer)
	var x int
	ok(t, w.connect(one).QueryRowContext(t.Context(), "SELECT x FROM t").Scan(&x))
	if x != 42 {
		t.Errorf("read %d after a start", x)
	}
}

// kill kills the server that has this work directory.
func kill(t *testing.T, dir string) {
	t.Helper()
	pid := pidOf(dir)
	if pid == 0 {
		t.Fatal("no server runs")
	}
	ok(t, syscall.Kill(pid, syscall.SIGKILL))
}

func runs(dir string) bool { return pidOf(dir) != 0 }

func uidOf(info os.FileInfo) uint32 { return info.Sys().(*syscall.Stat_t).Uid }

// pidOf returns the process of the server that has this work directory, or 0 if none runs.
func pidOf(dir string) int {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if !strings.HasPrefix(string(line), "mariadbd\x00") {
			continue
		}
		if same(fmt.Sprintf("/proc/%d/root/build", pid), dir) {
			return pid
		}
	}
	return 0
}

func same(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}

// A database over its limit must refuse new data, and must accept it again once there is room.
func TestFull(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *database.Config) { c.Size = 4 << 20 })
	one := w.site(anna, "one")
	x := w.database(anna, one)
	a := w.connect(one)
	w.exec(a, "CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, x MEDIUMTEXT)")
	w.until("it is full", func() bool {
		_, err := a.ExecContext(t.Context(), "INSERT INTO t (x) VALUES (REPEAT('x', 500000))")
		return code(err) == 1142
	})
	got, err := w.Get(t.Context(), w.db, anna, x.ID)
	ok(t, err)
	if !w.heard(one, "is over its limit of 4 MiB") {
		t.Errorf("the site isn't told: %q", w.said)
	}
	w.until("its size is shown", func() bool {
		got, err = w.Get(t.Context(), w.db, anna, x.ID)
		ok(t, err)
		return got.Full && got.Size > 4<<20
	})
	// Connections from before the limit are ended, possibly during a statement.
	w.until("it can be read", func() bool {
		var n int
		return a.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM t").Scan(&n) == nil && n > 0
	})
	w.until("it can be emptied", func() bool {
		_, err := a.ExecContext(t.Context(), "TRUNCATE TABLE t")
		return err == nil
	})
	w.until("it takes rows again", func() bool {
		_, err := a.ExecContext(t.Context(), "INSERT INTO t (x) VALUES ('small')")
		return err == nil
	})
}

// A site may have a limited number of connections at once, and one more must wait until another one ends. Statements
// that take long must be logged.
func TestConnections(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *database.Config) { c.Connections = 2 })
	one, two := w.site(anna, "one"), w.site(anna, "two")
	w.database(anna, one)
	w.database(anna, two)
	a := w.connect(one)
	first, err := a.Conn(t.Context())
	ok(t, err)
	second, err := a.Conn(t.Context())
	ok(t, err)
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if c, err := a.Conn(short); err == nil {
		t.Error("a third connection was accepted")
		c.Close()
	}
	other, err := w.connect(two).Conn(t.Context()) // other sites must not wait
	ok(t, err)
	defer other.Close()
	w.until("the slow statement is told", func() bool { // the service may miss a statement that ends between two checks
		if w.heard(one, "SELECT SLEEP(1.8)") {
			return true
		}
		_, err := second.ExecContext(t.Context(), "SELECT SLEEP(1.8)")
		ok(t, err)
		return false
	})
	done := make(chan error, 1)
	go func() {
		c, err := w.connect(one).Conn(t.Context())
		if err == nil {
			err = c.Close()
		}
		done <- err
	}()
	first.Close()
	a.SetMaxIdleConns(0)
	second.Close()
	ok(t, <-done)
}

// Names, numbers and engines must be checked, and the limit of an owner must hold.
func TestCreateRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	one := w.site(anna, "one")
	try := func(owner account.OwnerID, id site.ID, n database.NewDatabase) error {
		return w.db.Write(t.Context(), func(tx *db.Tx) error { _, err := w.CreateTx(t.Context(), tx, owner, id, n); return err })
	}
	for what, tt := range map[string]struct {
		owner account.OwnerID
		n     database.NewDatabase
		kind  fault.Kind
	}{
		"another engine":       {anna, database.NewDatabase{Engine: "oracle"}, fault.Invalid},
		"a name with a quote":  {anna, database.NewDatabase{Name: "a`b"}, fault.Invalid},
		"a name in upper case": {anna, database.NewDatabase{Name: "Main"}, fault.Invalid},
		"another's site":       {ben, database.NewDatabase{}, fault.NotFound},
	} {
		if err := try(tt.owner, one, tt.n); !fault.Is(err, tt.kind) {
			t.Errorf("%s: %v", what, err)
		}
	}
	ok(t, try(anna, one, database.NewDatabase{Name: "shop"}))
	if err := try(anna, one, database.NewDatabase{Name: "shop"}); !fault.Is(err, fault.Conflict) {
		t.Errorf("the same name again: %v", err)
	}
	ok(t, try(anna, one, database.NewDatabase{Name: "log"}))
	list, err := w.List(t.Context(), w.db, anna, one)
	ok(t, err)
	if len(list) != 2 || list[0].EnvKeys()[0] != "DATABASE_URL" || list[1].EnvKeys()[0] != "LOG_DATABASE_URL" {
		t.Errorf("got %+v", list)
	}

	none, err := database.New(database.Config{DB: w.db, Sites: w.sites, Why: "there is no sandbox"})
	ok(t, err)
	err = w.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := none.CreateTx(t.Context(), tx, anna, one, database.NewDatabase{})
		return err
	})
	if !fault.Is(err, fault.Unavailable) || fault.As(err).Details != "there is no sandbox" {
		t.Errorf("without a server: %v", err)
	}
}

// What starts right after a database was asked for, or its password was changed, is let in.
func TestVariablesAreValidAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.site(anna, "one")
	w.database(anna, s) // the server's files are there
	var x database.Database
	in := func(what string) {
		t.Helper()
		w.connectAs(s, "MAIN2_", func(pool *sql.DB) {
			if err := pool.PingContext(t.Context()); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		})
	}
	w.write(func(tx *db.Tx) (err error) {
		x, err = w.CreateTx(t.Context(), tx, anna, s, database.NewDatabase{})
		return err
	})
	in("right after it was asked for")
	for range 3 {
		w.write(func(tx *db.Tx) error {
			_, err := w.RotateTx(t.Context(), tx, anna, x.ID)
			return err
		})
		in("right after another password")
	}
}
