package db_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
)

// A copy that is taken while others write holds what was committed, opens by itself, and is
// of one moment.
func TestCopyTo(t *testing.T) {
	t.Parallel()
	url := dbtest.URL(t)
	d := dbtest.Open(t, url)
	ctx, cancel := context.WithCancel(t.Context())
	insert := func(id string) error {
		return d.Write(t.Context(), func(tx *db.Tx) error {
			for _, part := range []string{"a", "b"} { // both or none
				if _, err := tx.Exec(
					t.Context(),
					`INSERT INTO database_scratch (schema_name, server, until) VALUES ($1, $2, 0)`,
					part+id,
					"it's \\ ;\n--",
				); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := insert("first"); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ctx.Err() == nil && i < 2000; i++ {
			if err := insert(strings.Repeat("x", 1+i%50) + string(rune('a'+i%26)) + db.Random(6)); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	defer func() { cancel(); <-done }()
	path := filepath.Join(t.TempDir(), "copy")
	dialect, err := d.CopyTo(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	var copied string
	switch {
	case strings.HasPrefix(url, "sqlite:") && dialect == "sqlite":
		copied = "sqlite:" + path
	case dialect == "postgres":
		copied = dbtest.Empty(t)
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := db.LoadPostgres(t.Context(), copied, f); err != nil {
			t.Fatal(err)
		}
	default:
		t.Fatalf("%s of %.10s", dialect, url)
	}
	c := dbtest.Open(t, copied)
	var a, b, first int
	if err := c.QueryRow(t.Context(), `SELECT count(*) FILTER (WHERE schema_name LIKE 'a%'), count(*) FILTER (WHERE schema_name LIKE 'b%'), count(*) FILTER (WHERE schema_name LIKE '%first') FROM database_scratch`).Scan(
		&a,
		&b,
		&first,
	); err != nil {
		t.Fatal(err)
	}
	if a != b || first != 2 {
		t.Errorf("%d and %d halves, %d of the first", a, b, first)
	}
	if err := c.Integrity(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := d.CopyTo(t.Context(), path); err == nil {
		t.Error("a copy took another one's place")
	}
}
