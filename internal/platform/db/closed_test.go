package db

import (
	"context"
	"database/sql/driver"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// If a connection turns out to be closed when a transaction begins or a statement is sent, the error is Lost, so that
// Write uses another connection.
func TestClosedConnectionIsLost(t *testing.T) {
	t.Parallel()
	dsn := os.Getenv("SLIPWAY_TEST_DSN")
	if !strings.HasPrefix(dsn, "postgres") {
		t.Skip("SQLite has no connections to lose")
	}
	d, err := Open(t.Context(), Config{URL: dsn})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	for name, use := range map[string]func(c *connection) error{
		"begin": func(c *connection) error {
			_, err := c.BeginTx(d.marking(t.Context(), &Tx{d: d}), driver.TxOptions{})
			return err
		},
		"query":     func(c *connection) error { _, err := c.QueryContext(t.Context(), "SELECT 1", nil); return err },
		"statement": func(c *connection) error { _, err := c.ExecContext(t.Context(), "SELECT 1", nil); return err },
	} {
		pooled, err := d.write.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		err = pooled.Raw(func(raw any) error {
			c := raw.(*connection)
			_ = c.Conn.Conn().Close(context.Background())
			return use(c)
		})
		if !Lost(err) {
			t.Errorf("%s: %v is not taken for a lost connection", name, err)
		}
		pooled.Close()
	}
}

// A lasting conflict with other transactions isn't an internal error: requests get 503, and jobs are retried.
func TestConflictIsBusy(t *testing.T) {
	t.Parallel()
	d, err := Open(t.Context(), Config{URL: "sqlite:" + t.TempDir() + "/slipway.db"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	for _, code := range []string{"40001", "40P01"} {
		tries := 0
		err := d.Write(t.Context(), func(*Tx) error { tries++; return &pgconn.PgError{Code: code} })
		if tries < 2 || !Busy(err) || !Away(err) {
			t.Errorf("%s: %d tries, %v", code, tries, err)
		}
	}
}
