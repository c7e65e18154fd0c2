package database_test

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/id"
	"slipway/internal/platform/job"
	"slipway/internal/platform/sandbox"
	"slipway/internal/platform/seal"
	"slipway/internal/platform/wait"
	"slipway/internal/program/database"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/webhook"
)

const anna, ben = account.OwnerID("usr_anna"), account.OwnerID("usr_ben")

// world runs the service with a real MariaDB.
type world struct {
	*database.Databases
	t     testing.TB
	db    *db.DB
	sites *site.Sites
	dir   string
	stop  func() // stops the service as a signal would

	mu    sync.Mutex // guards the following fields
	said  []string
	held  []func()  // each closes a socket of a site
	pools []*sql.DB // the connections of sites
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newWorld(t testing.TB, with ...func(*database.Config)) *world {
	t.Helper()
	dir, err := os.MkdirTemp("", "databases-")
	ok(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	ok(t, os.Chmod(dir, 0o755))
	w := &world{t: t, db: dbtest.New(t), dir: dir}
	sealer, err := seal.Load(filepath.Join(dir, "key"))
	ok(t, err)
	w.sites = site.New(site.Config{
		DB:     w.db,
		Hooks:  webhook.New(webhook.Config{DB: w.db, Seal: sealer}),
		Seal:   sealer,
		Domain: "sites.test",
	})
	w.start(sealer, with...)
	return w
}

// start runs the service until stop is called.
func (w *world) start(sealer *seal.Sealer, with ...func(*database.Config)) {
	w.t.Helper()
	runner, err := sandbox.New(sandbox.Config{Dir: filepath.Join(w.dir, "sandbox")})
	ok(w.t, err)
	c := database.Config{
		DB:       w.db,
		Sites:    w.sites,
		Seal:     sealer,
		Dir:      filepath.Join(w.dir, "mariadb"),
		Runner:   runner,
		UID:      234_598,
		FirstUID: 234_600,
		UIDs:     100,
		Tick:     100 * time.Millisecond,
		Logs:     logs{w},
	}
	for _, f := range with {
		f(&c)
	}
	log := slog.New(slog.NewTextHandler(w.t.Output(), nil))
	c.Log = log
	w.Databases, err = database.New(c)
	ok(w.t, err)
	jobs := job.New(job.Config{DB: w.db, Log: log, Queues: map[string]int{"default": 4}})
	w.Work(jobs)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = jobs.Run(ctx) })
	running.Go(func() { _ = w.Run(ctx) })
	w.stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	w.t.Cleanup(w.stop)
}

func (w *world) site(owner account.OwnerID, name string) site.ID {
	w.t.Helper()
	s, err := w.sites.Create(w.t.Context(), owner, site.NewSite{
		Name:       name,
		Type:       "static",
		Repository: "git.test/acme/site",
		Branch:     "main",
	})
	ok(w.t, err)
	return s.ID
}

func (w *world) write(fn func(tx *db.Tx) error) {
	w.t.Helper()
	ok(w.t, w.db.Write(w.t.Context(), fn))
}

// until waits for a condition.
func (w *world) until(what string, cond func() bool) {
	w.t.Helper()
	wait.Until(w.t, what, cond)
}

// database creates a database and waits until it is active.
func (w *world) database(owner account.OwnerID, id site.ID) (x database.Database) {
	w.t.Helper()
	w.write(func(tx *db.Tx) (err error) {
		x, err = w.CreateTx(w.t.Context(), tx, owner, id, database.NewDatabase{})
		return err
	})
	w.until("the database is active", func() bool {
		got, err := w.Get(w.t.Context(), w.db, owner, x.ID)
		ok(w.t, err)
		x = got
		return x.Status == database.Active
	})
	return x
}

// socket returns the path of a site's socket to its databases, which stays open until the end of the test.
func (w *world) socket(id site.ID) string {
	w.t.Helper()
	x, err := w.sites.ByID(w.t.Context(), w.db, id)
	ok(w.t, err)
	path, done, err := w.Socket(w.t.Context(), database.Client{Owner: x.Owner, Site: id})
	ok(w.t, err)
	w.mu.Lock()
	w.held = append(w.held, done)
	w.mu.Unlock()
	return path
}

// endSockets closes the sockets and connections of all sites.
func (w *world) endSockets() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, done := range w.held {
		done()
	}
	w.held = nil
	for _, pool := range w.pools {
		pool.Close()
	}
	w.pools = nil
}

// server returns the directory of an owner's server.
func (w *world) server(owner account.OwnerID) string {
	return filepath.Join(w.dir, "mariadb", "owners", string(owner))
}

// connect connects as a program of the site does: with its variables and over its own socket.
func (w *world) connect(id site.ID, change ...func(*mysql.Config)) *sql.DB {
	w.t.Helper()
	socket := w.socket(id)
	env, _, err := w.Env(w.t.Context(), id)
	ok(w.t, err)
	c := mysql.NewConfig()
	c.User, c.Passwd, c.DBName, c.Net = env["DB_USERNAME"], env["DB_PASSWORD"], env["DB_DATABASE"], "unix"
	c.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	for _, f := range change {
		f(c)
	}
	connector, err := mysql.NewConnector(c)
	ok(w.t, err)
	pool := sql.OpenDB(connector)
	w.t.Cleanup(func() { pool.Close() })
	w.mu.Lock()
	w.pools = append(w.pools, pool)
	w.mu.Unlock()
	return pool
}

// connectAs connects to the database whose variables have this prefix, and calls use.
func (w *world) connectAs(id site.ID, prefix string, use func(*sql.DB)) {
	w.t.Helper()
	env, _, err := w.Env(w.t.Context(), id)
	ok(w.t, err)
	use(w.connect(id, func(c *mysql.Config) {
		c.User, c.Passwd, c.DBName = env[prefix+"DB_USERNAME"], env[prefix+"DB_PASSWORD"], env[prefix+"DB_DATABASE"]
	}))
}

func (w *world) exec(pool *sql.DB, statements ...string) {
	w.t.Helper()
	for _, q := range statements {
		if _, err := pool.ExecContext(w.t.Context(), q); err != nil {
			w.t.Fatalf("%s: %v", q, err)
		}
	}
}

func (w *world) heard(id site.ID, text string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, line := range w.said {
		if strings.HasPrefix(line, string(id)+" ") && strings.Contains(line, text) {
			return true
		}
	}
	return false
}

// code returns the server's number of an error, or 0 if the error is not the server's.
func code(err error) uint16 {
	var e *mysql.MySQLError
	if errors.As(err, &e) {
		return e.Number
	}
	return 0
}

// logs keeps the messages that a world's databases write to the logs of sites.
type logs struct{ w *world }

func (l logs) Note(site id.Site, text string) {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	l.w.said = append(l.w.said, string(site)+" "+text)
}
