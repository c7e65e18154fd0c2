package db_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
)

// A copy taken during writes contains all committed data of one moment, and can be opened by itself.
func TestCopyTo(t *testing.T) {
	t.Parallel()
	url := dbtest.URL(t)
	d := dbtest.Open(t, url)
	ctx, cancel := context.WithCancel(t.Context())
	insert := func(id string) error {
		return d.Write(t.Context(), func(tx *db.Tx) error {
			for _, part := range []string{"a", "b"} { // a copy has both or none
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
		t.Error("CopyTo replaced an existing copy")
	}
}

// A copy of PostgreSQL can be restored completely, whatever its rows contain. A truncated copy, one of a newer program,
// or one that names an unknown table leaves nothing. A database that isn't empty isn't changed.
func TestLoadPostgres(t *testing.T) {
	t.Parallel()
	if os.Getenv("SLIPWAY_TEST_DSN") == "" {
		t.Skip("of PostgreSQL alone; make test runs it there")
	}
	d := dbtest.New(t)
	long := strings.Repeat("long \\ \n\\.\n\t", 100_000)
	for _, q := range []string{
		`INSERT INTO users (id, email, password, admin, created_at) VALUES ('usr_a', 'a', '\.', FALSE, 0)`,
		`INSERT INTO database_scratch (schema_name, server, until) VALUES ('long', '` + long + `', 0), (E'\\.', E'\\.\n\\.', 0)`,
	} {
		if err := d.Admin(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(t.TempDir(), "copy")
	if _, err := d.CopyTo(t.Context(), file); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	again := func(d *db.DB) string {
		t.Helper()
		file := filepath.Join(t.TempDir(), "again")
		if _, err := d.CopyTo(t.Context(), file); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	url := dbtest.Empty(t)
	for what, bad := range map[string]string{
		"the copy lacks 1 tables":    string(text[:strings.LastIndex(string(text), "COPY ")]),
		"is no table":                strings.Replace(string(text), "COPY users (", "COPY pg_authid (", 1),
		"unexpected EOF":             string(text[:strings.LastIndex(string(text), "\\.\n")]),
		"use the newer slipway":      strings.Replace(string(text), "schema version ", "schema version 9", 1),
		"does not say the version":   strings.Replace(string(text), "schema version ", "schema version x", 1),
		`invalid input syntax`:       strings.Replace(string(text), "\tf\t0\t", "\twhat\t0\t", 1),
		"is no table of schema vers": strings.Replace(string(text), "COPY users (id", "COPY users (email", 1),
	} {
		if err := db.LoadPostgres(t.Context(), url, strings.NewReader(bad)); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%v, want %q", err, what)
		}
	}
	// After these failures, a restore works.
	if err := db.LoadPostgres(t.Context(), url, strings.NewReader(string(text))); err != nil {
		t.Fatal(err)
	}
	c := dbtest.Open(t, url)
	if got := again(c); got != string(text) {
		t.Errorf("the dump has %d bytes after a load, and differs from the one before with %d", len(got), len(text))
	}
	references := `SELECT count(*) FROM pg_constraint WHERE contype = 'f'`
	var before, after int
	if err := errors.Join(d.QueryRow(t.Context(), references).Scan(&before), c.QueryRow(t.Context(), references).Scan(&after)); err != nil || before != after || before == 0 {
		t.Errorf("%d references, there were %d: %v", after, before, err)
	}
	if err := db.LoadPostgres(t.Context(), url, strings.NewReader(string(text))); err == nil || !strings.Contains(err.Error(), "already has tables") {
		t.Errorf("a load over an installation: %v", err)
	}
	// Copies that an earlier program made with pg_dump can be restored.
	older := dbtest.Empty(t)
	if err := db.LoadPostgres(t.Context(), older, strings.NewReader("CREATE TABLE kept (a TEXT);\nINSERT INTO kept VALUES ('b');\n")); err != nil {
		t.Fatal(err)
	}
	o, err := db.Open(t.Context(), db.Config{URL: older})
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	var kept string
	if err := o.QueryRow(t.Context(), `SELECT a FROM kept`).Scan(&kept); err != nil || kept != "b" {
		t.Errorf("%q, %v", kept, err)
	}
	if err := db.LoadPostgres(t.Context(), older, strings.NewReader(string(text))); err == nil || !strings.Contains(err.Error(), "already has tables") {
		t.Errorf("a load over somebody else's tables: %v", err)
	}
}
