package database_test

import (
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/program/database"
)

// external is a MariaDB that an operator runs, with an administrator account for us.
type external struct {
	t    *testing.T
	dir  string
	port string
	more []string // flags
	stop func()
}

func newExternal(t *testing.T, more ...string) *external {
	t.Helper()
	dir, err := os.MkdirTemp("", "mariadb-")
	ok(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ok(t, err)
	x := &external{t: t, dir: dir, port: strconv.Itoa(l.Addr().(*net.TCPAddr).Port), more: more}
	ok(t, l.Close())
	t.Cleanup(func() { os.RemoveAll(dir) })
	// The server has its own directory for temporary tables, because each server that starts removes all it finds in
	// /tmp, even the tables of another server.
	out, err := exec.Command(
		"mariadb-install-db",
		"--no-defaults",
		"--user=root",
		"--basedir=/usr",
		"--datadir="+filepath.Join(dir, "data"),
		"--tmpdir="+dir,
		"--skip-test-db",
		"--auth-root-authentication-method=normal",
		"--innodb-log-file-size=4M",
	).CombinedOutput()
	if err != nil {
		t.Fatalf("mariadb-install-db: %v: %s", err, out)
	}
	ok(
		t,
		os.WriteFile(
			filepath.Join(dir, "init.sql"),
			[]byte(
				"DELETE FROM mysql.global_priv WHERE User = '';\nFLUSH PRIVILEGES;\nCREATE USER IF NOT EXISTS admin@'%' IDENTIFIED BY 'secret';\nGRANT ALL PRIVILEGES ON *.* TO admin@'%' WITH GRANT OPTION;\n",
			),
			0o600,
		),
	)
	x.start()
	return x
}

func (x *external) start() {
	x.t.Helper()
	cmd := exec.Command("mariadbd", append([]string{
		"--no-defaults",
		"--user=root",
		"--basedir=/usr",
		"--datadir=" + filepath.Join(x.dir, "data"),
		"--tmpdir=" + x.dir,
		"--socket=" + filepath.Join(x.dir, "s"),
		"--bind-address=127.0.0.1",
		"--port=" + x.port,
		"--init-file=" + filepath.Join(x.dir, "init.sql"),
		"--innodb-buffer-pool-size=32M",
		"--innodb-log-file-size=4M",
		"--performance-schema=OFF",
	}, x.more...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	ok(x.t, cmd.Start())
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }()
	x.stop = func() {
		_ = cmd.Process.Kill()
		<-done
	}
	x.t.Cleanup(x.stop)
}

func (x *external) address() string { return "mysql://admin:secret@127.0.0.1:" + x.port }

// Databases on an operator's own server must work as on ours: they are isolated from each other, can be dumped and
// loaded, and are back when the server is back.
func TestExternal(t *testing.T) {
	t.Parallel()
	server := newExternal(t)
	w := newWorld(t, func(c *database.Config) { c.External = server.address() })
	one, two := w.site(anna, "one"), w.site(ben, "two")
	x, y := w.database(anna, one), w.database(ben, two)
	a := w.connect(one)
	w.exec(a, "CREATE TABLE t (x INT)", "INSERT INTO t VALUES (42)")
	if _, err := a.ExecContext(t.Context(), "CREATE TABLE `"+y.Schema+"`.t (x INT)"); code(err) == 0 {
		t.Errorf("another's database: %v", err)
	}
	if _, err := os.Stat(filepath.Join(w.dir, "mariadb", "owners")); !os.IsNotExist(err) {
		t.Errorf("a private server is there too: %v", err)
	}
	first := w.dump(x.ID)
	l, err := w.Load(t.Context(), anna, bytes.NewReader(first), database.LoadOptions{Check: true})
	ok(t, err)
	w.exec(a, "UPDATE t SET x = 7")
	w.write(func(tx *db.Tx) error { _, err := l.PutTx(t.Context(), tx, anna, one, x.Name, 0); return err })
	a = w.connect(one)
	var n int
	ok(t, a.QueryRowContext(t.Context(), "SELECT x FROM t").Scan(&n))
	if n != 42 {
		t.Errorf("restored: %d", n)
	}
	w.until("its size is read", func() bool {
		got, err := w.Get(t.Context(), w.db, anna, x.ID)
		ok(t, err)
		return got.Size > 0
	})

	server.stop()
	w.until("the site reads that it is away", func() bool { return w.heard(one, "The database server does not answer") })
	server.start()
	w.until("it is back", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		return w.connect(one).QueryRowContext(ctx, "SELECT x FROM t").Scan(&n) == nil
	})
	if n != 42 {
		t.Errorf("after a restart: %d", n)
	}
	w.until("the site's databases are gone", func() bool { return w.ForgetSite(t.Context(), one) == nil })
	ok(t, w.db.Admin(t.Context(), "UPDATE database_scratch SET until = 0")) // as if a minute had passed
	w.until("what was replaced is gone too", func() bool {
		entries, err := os.ReadDir(filepath.Join(server.dir, "data"))
		ok(t, err)
		var schemas []string
		for _, e := range entries {
			if e.IsDir() && strings.HasPrefix(e.Name(), "s") && len(e.Name()) == 27 {
				schemas = append(schemas, e.Name())
			}
		}
		return len(schemas) == 1 && schemas[0] == y.Schema
	})
}
