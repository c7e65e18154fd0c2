// Package dbtest owns throw-away databases for tests: a fresh, migrated one per call.
package dbtest

import (
	"context"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"slipway/internal/db"
)

// New returns a migrated database that ends with the test: SQLite in the test's own
// folder, or a fresh PostgreSQL database when SLIPWAY_TEST_DSN names a cluster.
func New(t testing.TB) *db.DB {
	t.Helper()
	return Open(t, URL(t))
}

// Open opens and migrates the database at url and runs it until the test ends. Two
// calls with one url are two nodes of one installation.
func Open(t testing.TB, url string) *db.DB {
	t.Helper()
	d, err := db.Open(context.Background(), db.Config{URL: url, Log: slog.New(slog.DiscardHandler), Readers: 8})
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

// URL returns the address of a new and empty database that ends with the test.
func URL(t testing.TB) string {
	t.Helper()
	dsn := os.Getenv("SLIPWAY_TEST_DSN")
	if dsn == "" {
		return "sqlite:" + filepath.Join(t.TempDir(), "slipway.db")
	}
	name := strings.ReplaceAll(db.NewID("t"), "_", "")
	admin, err := db.Open(context.Background(), db.Config{URL: dsn})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := admin.Admin(context.Background(), "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)"); err != nil {
			t.Errorf("drop test database: %v", err)
		}
		admin.Close()
	})
	if err := admin.Admin(context.Background(), "CREATE DATABASE "+name); err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + name
	return u.String()
}
