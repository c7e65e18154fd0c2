package db_test

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/wait"
)

var installing sync.Mutex // held while a package is installed

// pooled starts PgBouncer for a database's server, and returns the database's URL through it.
func pooled(t *testing.T, address, mode string) string {
	t.Helper()
	installing.Lock()
	defer installing.Unlock()
	if _, err := exec.LookPath("pgbouncer"); err != nil {
		install := exec.CommandContext(t.Context(), "apt-get", "-o", "DPkg::Lock::Timeout=300", "install", "-y", "-qq", "--no-install-recommends", "pgbouncer")
		install.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1") // don't start its service
		if out, err := install.CombinedOutput(); err != nil {
			t.Fatalf("NOT TESTED WITH PGBOUNCER: it can't be installed: %v: %s", err, out)
		}
	}
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "pooler") // the path of a Unix socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	server := u.Query().Get("host")
	if server == "" {
		server = u.Hostname()
	}
	to := "host=" + server
	if u.Port() != "" {
		to += " port=" + u.Port()
	}
	config := filepath.Join(dir, "pgbouncer.ini")
	text := fmt.Sprintf(`[databases]
* = %s user=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = %s
default_pool_size = 40
`, to, u.User.Username(), port, mode)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // another user reads it
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "pgbouncer", config)
	if os.Geteuid() == 0 { // PgBouncer refuses to run as root
		who, err := user.Lookup("postgres")
		if err != nil {
			t.Fatal(err)
		}
		uid, _ := strconv.Atoi(who.Uid)
		gid, _ := strconv.Atoi(who.Gid)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}} //nolint:gosec // small
	}
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
		if t.Failed() {
			t.Log(said.String())
		}
	})
	at := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	wait.Until(t, "PgBouncer listens", func() bool {
		select {
		case <-ended:
			t.Fatalf("PgBouncer has ended: %s", said.String())
		default:
		}
		c, err := net.DialTimeout("tcp", at, time.Second)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	return (&url.URL{Scheme: "postgres", User: url.User(u.User.Username()), Host: at, Path: u.Path, RawQuery: "sslmode=disable"}).String()
}

// Behind PgBouncer with pool_mode = session everything works. In the other modes, Slipway reports at the start which
// setting to change.
func TestPgBouncer(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("make test-all tells it")
	}
	if os.Getenv("SLIPWAY_TEST_DSN") == "" {
		t.Skip("it is about PostgreSQL")
	}
	for _, mode := range []string{"session", "transaction", "statement"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			address := pooled(t, dbtest.URL(t), mode)
			if mode != "session" {
				d, err := db.Open(t.Context(), db.Config{URL: address})
				if err != nil {
					t.Fatal(err)
				}
				defer d.Close()
				if err := d.Sessions(t.Context()); err == nil || !strings.Contains(err.Error(), "pool_mode = session") {
					t.Errorf("got %v", err)
				}
				return
			}
			d := dbtest.Open(t, address)
			if err := d.Sessions(t.Context()); err != nil {
				t.Fatal(err)
			}
			wake, stop := d.Listen("topic")
			defer stop()
			write := func() error {
				err := d.Write(t.Context(), func(tx *db.Tx) error {
					first, err := tx.MarkTx(t.Context(), db.NewMark())
					if err == nil && !first {
						t.Error("MarkTx reports a new mark as an existing one")
					}
					tx.Notify("topic")
					return err
				})
				if err != nil {
					return err
				}
				return d.Snapshot(t.Context(), func(r db.Reader) error {
					var n int
					return r.QueryRow(t.Context(), `SELECT COUNT(*) FROM commit_marks WHERE id < $1`, "z").Scan(&n)
				})
			}
			var writers sync.WaitGroup
			for range 20 { // several connections, and prepared statements that are used again
				writers.Go(func() {
					for range 20 {
						if err := write(); err != nil {
							t.Error(err)
						}
					}
				})
			}
			writers.Wait()
			select {
			case <-wake:
			case <-time.After(time.Minute):
				t.Error("no notification")
			}
			if err := d.Migrate(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
}
