package db

import (
	"context"
	"database/sql/driver"
	"os"
	"strings"
	"testing"
)

// A connection that is found closed just as a transaction begins, or a statement is sent, is a lost one: Write takes another.
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
