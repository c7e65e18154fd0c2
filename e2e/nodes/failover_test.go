package nodes

import (
	"context"
	"errors"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"slipway/e2e/world"
	"slipway/internal/platform/dbtest"
)

// server is a separate PostgreSQL server that listens on a Unix socket.
type server struct {
	t   *testing.T
	dir string // of the socket and the data
	cmd *exec.Cmd
}

// command returns a PostgreSQL command, which runs as an unprivileged user if the tests run as root.
func (s *server) command(name string, args ...string) *exec.Cmd {
	s.t.Helper()
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if err != nil || len(found) == 0 {
		s.t.Fatalf("%s of PostgreSQL is missing, %v", name, err)
	}
	cmd := exec.Command(slices.Max(found), args...)
	cmd.Dir, cmd.Env = s.dir, []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C.UTF-8"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGQUIT}
	if os.Geteuid() == 0 {
		uid, gid := postgres(s.t)
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)} //nolint:gosec // small
	}
	return cmd
}

func postgres(t *testing.T) (uid, gid int) {
	t.Helper()
	who, err := user.Lookup("postgres")
	if err != nil {
		t.Fatal(err)
	}
	uid, _ = strconv.Atoi(who.Uid)
	gid, _ = strconv.Atoi(who.Gid)
	return uid, gid
}

func newServer(t *testing.T) *server {
	t.Helper()
	dir, err := os.MkdirTemp("", "pg") // the path of a Unix socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if os.Geteuid() == 0 {
		uid, gid := postgres(t)
		if err := os.Chown(dir, uid, gid); err != nil {
			t.Fatal(err)
		}
	}
	return &server{t: t, dir: dir}
}

func (s *server) data() string { return filepath.Join(s.dir, "data") }

func (s *server) run(name string, args ...string) {
	s.t.Helper()
	if out, err := s.command(name, args...).CombinedOutput(); err != nil {
		s.t.Fatalf("%s: %v: %s", name, err, out)
	}
}

func (s *server) start() {
	s.t.Helper()
	s.cmd = s.command("postgres", "-D", s.data(), "-k", s.dir, "-c", "listen_addresses=", "-c", "max_connections=200", "-c", "fsync=off")
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(s.kill)
}

// kill kills the server with all of its processes, like a machine failure.
func (s *server) kill() {
	_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL)
	_ = s.cmd.Wait()
}

// execute runs a statement in the database postgres and scans one value into into, unless it is nil.
func (s *server) execute(q string, into any) error {
	ctx, cancel := context.WithTimeout(s.t.Context(), 10*time.Second)
	defer cancel()
	c, err := pgx.Connect(ctx, "host="+s.dir+" user=postgres dbname=postgres")
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	if into != nil {
		return c.QueryRow(ctx, q).Scan(into)
	}
	_, err = c.Exec(ctx, q)
	return err
}

// PostgreSQL with a synchronous standby is killed during writes, and the standby is promoted. No acknowledged write is
// lost, both nodes write again within 30 seconds without a restart, and failed requests get 503 with Retry-After.
func TestFailover(t *testing.T) {
	world.Long(t)
	first, second := newServer(t), newServer(t)
	first.run("initdb", "-D", first.data(), "-U", "postgres", "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync")
	first.start()
	i := related(t)
	i.until("the primary is there", func() bool { return first.execute("CREATE DATABASE slipway", nil) == nil })
	second.run("pg_basebackup", "-h", first.dir, "-U", "postgres", "-D", second.data(), "-R", "-X", "stream", "-c", "fast", "--no-sync")
	second.start()
	for _, q := range []string{`ALTER SYSTEM SET synchronous_standby_names = '*'`, `SELECT pg_reload_conf()`} {
		if err := first.execute(q, nil); err != nil {
			t.Fatal(err)
		}
	}
	i.until("the standby is synchronous", func() bool {
		var n int
		return first.execute(`SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'`, &n) == nil && n == 1
	})
	address := (&url.URL{
		Scheme: "postgres", User: url.User("postgres"), Path: "/slipway",
		RawQuery: url.Values{"host": {first.dir + "," + second.dir}, "target_session_attrs": {"read-write"}}.Encode(),
	}).String()
	for _, w := range i.nodes {
		w.Flags[slices.Index(w.Flags, "--database")+1] = address
	}
	var err error
	if i.key, err = i.nodes[0].User("ada@example.test"); err != nil {
		t.Fatal(err)
	}
	i.start(i.nodes...)

	var mu sync.Mutex // guards the following variables
	acknowledged := map[string]bool{}
	latest := map[*world.World]time.Time{} // node → when its latest acknowledged write was sent
	stop := make(chan struct{})
	var writers sync.WaitGroup
	for n, w := range i.nodes {
		writers.Go(func() {
			for k := 0; ; k++ {
				select {
				case <-stop:
					return
				default:
				}
				var made struct{ Data struct{ ID string } }
				sent := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				a, err := w.Do(ctx, world.Request{Method: "POST", Path: "/sites", Key: i.key, Body: map[string]any{
					"name": "site " + strconv.Itoa(n) + " " + strconv.Itoa(k), "type": "static", "source": "upload",
				}})
				cancel()
				switch {
				case err != nil:
					t.Errorf("no answer after %s: %v", time.Since(sent), err)
				case a.Status/100 == 2:
					if err := errors.Join(a.JSON(&made)); err != nil || made.Data.ID == "" {
						t.Errorf("%v: %.200s", err, a.Body)
					}
					mu.Lock()
					acknowledged[made.Data.ID] = true
					latest[w] = sent
					mu.Unlock()
				case a.Status != 503 || a.Header.Get("Retry-After") == "":
					t.Errorf("answered with %d after %s: %.200s", a.Status, time.Since(sent), a.Body)
					return
				}
			}
		})
	}
	before := func(at time.Time) bool { // whether both nodes have completed a write that was sent after at
		mu.Lock()
		defer mu.Unlock()
		return !slices.ContainsFunc(i.nodes, func(w *world.World) bool { return !latest[w].After(at) })
	}
	i.until("both write", func() bool { return t.Failed() || before(time.Time{}) })
	started := time.Now()
	i.until("both have written for a while", func() bool { return t.Failed() || before(started.Add(3*time.Second)) })
	first.kill()
	second.run("pg_ctl", "promote", "-D", second.data())
	promoted := time.Now()
	i.until("both write again", func() bool { return t.Failed() || before(promoted) })
	took := time.Since(promoted)
	if took > world.Patience(30*time.Second) {
		t.Errorf("nodes wrote again after %s", took)
	}
	close(stop)
	writers.Wait()
	i.db = dbtest.Open(t, address)
	for id := range acknowledged {
		if i.count(`SELECT count(*) FROM sites WHERE id = $1`, id) != 1 {
			t.Errorf("site %s was acknowledged, and is lost", id)
		}
	}
	t.Logf("%d sites acknowledged, none lost; written again %s after the promotion", len(acknowledged), took.Round(100*time.Millisecond))
}
