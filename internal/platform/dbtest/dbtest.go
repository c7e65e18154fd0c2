// Package dbtest owns temporary databases for tests: a new, migrated one per call.
package dbtest

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"slipway/internal/platform/db"
)

// New returns a migrated database that is deleted after the test: SQLite in the test's temporary folder, or PostgreSQL
// if SLIPWAY_TEST_DSN is set.
func New(t testing.TB, with ...func(*db.Config)) *db.DB {
	t.Helper()
	return Open(t, URL(t), with...)
}

// Open opens and migrates the database at url and runs it until the test ends. Two calls with the same url act as two
// nodes of one installation.
func Open(t testing.TB, url string, with ...func(*db.Config)) *db.DB {
	t.Helper()
	c := db.Config{URL: url, Log: slog.New(slog.DiscardHandler), Readers: 8, Wait: 2 * time.Minute, Volatile: true}
	if n, _ := strconv.Atoi(os.Getenv("SLIPWAY_TEST_FAULTS")); n > 0 {
		c.Faults = Every(n, db.Dropped, db.Muted)
	}
	for _, f := range with {
		f(&c)
	}
	d, err := db.Open(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Migrate(context.Background()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); d.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done; d.Close() })
	return d
}

// Faults is a function as the Faults of [db.Config].
type Faults func() db.Fault

// Next calls the function.
func (f Faults) Next() db.Fault { return f() }

// Every returns Faults of [db.Config]: each nth commit has one of the faults, in turn. With the variable SLIPWAY_TEST_FAULTS=n, each test's
// database loses transactions and the answers to commits so.
func Every(n int, faults ...db.Fault) Faults {
	var commits atomic.Int64
	return func() db.Fault {
		i := int(commits.Add(1))
		if i%n != 0 {
			return db.Sound
		}
		return faults[i/n%len(faults)]
	}
}

// URL returns the URL of a new database that is deleted after the test. It is a copy of a migrated template, which is
// much faster than migrating.
func URL(t testing.TB) string {
	t.Helper()
	dsn := os.Getenv("SLIPWAY_TEST_DSN")
	if dsn == "" {
		return file(t)
	}
	template, err := migrated(dsn)
	if err != nil {
		t.Fatal(err)
	}
	return create(t, dsn, " TEMPLATE "+template+" STRATEGY file_copy") // file_copy skips the WAL
}

// Bubble returns a migrated database for a test in a synctest bubble. It is always SQLite, because code in a bubble
// can't wait for a server outside. It runs nothing in the background.
func Bubble(t testing.TB) *db.DB {
	t.Helper()
	d, err := db.Open(context.Background(), db.Config{URL: file(t), Volatile: true, Idle: 1000 * 24 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// file returns the URL of a new SQLite database that is deleted after the test.
func file(t testing.TB) string {
	t.Helper()
	text, err := migratedFile()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "slipway.db")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return "sqlite:" + path
}

// Empty returns the URL of a new database without a schema, for tests of migrations.
func Empty(t testing.TB) string {
	t.Helper()
	if dsn := os.Getenv("SLIPWAY_TEST_DSN"); dsn != "" {
		return create(t, dsn, "")
	}
	return "sqlite:" + filepath.Join(t.TempDir(), "slipway.db")
}

// migratedFile returns an empty SQLite database with the newest schema.
var migratedFile = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "dbtest-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "slipway.db")
	d, err := db.Open(context.Background(), db.Config{URL: "sqlite:" + path, Volatile: true})
	if err != nil {
		return nil, err
	}
	if err := d.Migrate(context.Background()); err != nil {
		d.Close()
		return nil, err
	}
	if err := d.Close(); err != nil { // moves the WAL's content into the file
		return nil, err
	}
	if log, err := os.Stat(path + "-wal"); err == nil && log.Size() > 0 {
		return nil, errors.New("the template has a log besides the file")
	}
	return os.ReadFile(path)
})

// create creates a database on the cluster and drops it after the test.
func create(t testing.TB, dsn, like string) string {
	t.Helper()
	url, drop, err := createOn(dsn, like)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := drop(); err != nil {
			t.Errorf("drop test database: %v", err)
		}
	})
	return url
}

// Create creates a database without a schema on the cluster at dsn, outside a test. The caller drops it.
func Create(dsn string) (url string, drop func() error, err error) { return createOn(dsn, "") }

func createOn(dsn, like string) (url string, drop func() error, err error) {
	name := fresh()
	if err := admin(dsn, "CREATE DATABASE "+name+like); err != nil {
		return "", nil, err
	}
	return beside(dsn, name), func() error { return admin(dsn, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)") }, nil
}

// template is the migrated template database, created once per process. With SLIPWAY_TEST_TEMPLATE, all processes that
// use the cluster share the one with that name. It is deleted with the temporary cluster.
var template struct {
	sync.Mutex // guards the following fields
	name       string
	err        error
}

func migrated(dsn string) (string, error) {
	template.Lock()
	defer template.Unlock()
	if template.name != "" || template.err != nil {
		return template.name, template.err
	}
	name, shared := fresh(), os.Getenv("SLIPWAY_TEST_TEMPLATE")
	if shared != "" && admin(dsn, "ALTER DATABASE "+shared+" IS_TEMPLATE true") == nil { // it exists
		template.name = shared
		return shared, nil
	}
	template.err = func() error {
		if err := admin(dsn, "CREATE DATABASE "+name); err != nil {
			return err
		}
		d, err := db.Open(context.Background(), db.Config{URL: beside(dsn, name)})
		if err != nil {
			return err
		}
		defer d.Close()
		return d.Migrate(context.Background())
	}()
	if shared != "" && template.err == nil && admin(dsn, "ALTER DATABASE "+name+" RENAME TO "+shared) == nil { // or another process created it
		name = shared
	}
	template.name = name
	return name, template.err
}

func fresh() string { return strings.ReplaceAll(db.NewID("t"), "_", "") }

// beside returns the URL of another database on the same cluster.
func beside(dsn, name string) string {
	u, err := url.Parse(dsn)
	if err != nil {
		panic(err) // db.Open has parsed it
	}
	u.Path = "/" + name
	return u.String()
}

// admins holds a connection per cluster for statements about databases, because connecting takes as long as such a
// statement. They end with the process.
var admins struct {
	sync.Mutex
	of map[string]*db.DB
}

// admin runs one statement on the cluster.
func admin(dsn, q string) error {
	admins.Lock()
	d := admins.of[dsn]
	if d == nil {
		var err error
		if d, err = db.Open(context.Background(), db.Config{URL: dsn}); err != nil {
			admins.Unlock()
			return err
		}
		if admins.of == nil {
			admins.of = map[string]*db.DB{}
		}
		admins.of[dsn] = d
	}
	admins.Unlock()
	return d.Admin(context.Background(), q)
}
