package db_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"slipway/internal/db"
	"slipway/internal/dbtest"
)

// previous is the schema version of the last release.
const previous = 14

// moved are tables and columns of the previous version that the newest one no longer has,
// with what became of their content. Everything else must read as before.
var moved = map[string]string{}

// A database of the previous version, with rows in every table, has all of them after
// the migration to the newest.
func TestMigrationKeepsEveryRow(t *testing.T) {
	t.Parallel()
	d := empty(t, dbtest.Empty(t))
	if err := d.MigrateTo(t.Context(), previous); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("testdata/version14.sql")
	if err != nil {
		t.Fatal(err)
	}
	for statement := range strings.SplitSeq(string(text), ";\n") {
		if strings.TrimSpace(statement) == "" {
			continue
		}
		if err := d.Admin(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	before := map[string][]string{}
	columns := map[string][]string{}
	for _, table := range tables(t, d) {
		columns[table] = columnsOf(t, d, table)
		if before[table] = rows(t, d, table, columns[table]); len(before[table]) == 0 {
			t.Errorf("testdata/version14.sql has no row for table %s", table)
		}
	}
	if len(before) < 30 {
		t.Fatalf("only %d tables: %v", len(before), slices.Sorted(maps.Keys(before)))
	}
	if err := d.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := d.Integrity(t.Context()); err != nil {
		t.Error(err)
	}
	now := tables(t, d)
	for table, want := range before {
		if !slices.Contains(now, table) {
			if moved[table] == "" {
				t.Errorf("table %s is gone with its rows", table)
			}
			continue
		}
		var kept []string
		have := columnsOf(t, d, table)
		for _, c := range columns[table] {
			switch {
			case slices.Contains(have, c):
				kept = append(kept, c)
			case moved[table+"."+c] == "":
				t.Errorf("column %s.%s is gone with its values", table, c)
			}
		}
		if len(kept) < len(columns[table]) {
			continue // what moved has a test of its own
		}
		if slices.Contains(kept, "owner_id") { // since 0015 an owner is no user: its id begins otherwise
			for i := range want {
				want[i] = strings.TrimPrefix(strings.ReplaceAll("|"+want[i], "|user_", "|own__"), "|")
			}
			slices.Sort(want)
		}
		if got := rows(t, d, table, kept); !slices.Equal(got, want) {
			t.Errorf("table %s:\n got %q\nwant %q", table, got, want)
		}
	}
	// A second time changes nothing.
	if err := d.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Several nodes of a new version start at the same moment on an older database.
func TestMigrateAtOnce(t *testing.T) {
	t.Parallel()
	url := dbtest.Empty(t)
	var nodes []*db.DB
	for range 4 {
		nodes = append(nodes, empty(t, url))
	}
	if err := nodes[0].MigrateTo(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for _, d := range nodes {
		wg.Go(func() {
			if err := d.Migrate(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func empty(t *testing.T, url string) *db.DB {
	t.Helper()
	d, err := db.Open(t.Context(), db.Config{URL: url, Readers: 4})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func tables(t *testing.T, d *db.DB) []string {
	t.Helper()
	q := `SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'goose_db_version'`
	if d.Single() {
		q = `SELECT name FROM sqlite_master WHERE type = 'table' AND name <> 'goose_db_version' AND name NOT LIKE 'sqlite_%'`
	}
	return column(t, d, q)
}

func columnsOf(t *testing.T, d *db.DB, table string) []string {
	t.Helper()
	q := `SELECT column_name FROM information_schema.columns WHERE table_schema = 'public' AND table_name = '` + table + `'`
	if d.Single() {
		q = `SELECT name FROM pragma_table_info('` + table + `')`
	}
	return column(t, d, q)
}

// rows reads a table as text, in one order on both databases.
func rows(t *testing.T, d *db.DB, table string, columns []string) []string {
	t.Helper()
	parts := make([]string, len(columns))
	for i, c := range columns {
		parts[i] = fmt.Sprintf("COALESCE(CAST(%s AS TEXT), 'NULL')", c)
	}
	return column(t, d, "SELECT "+strings.Join(parts, " || '|' || ")+" FROM "+table)
}

func column(t *testing.T, d *db.DB, q string) []string {
	t.Helper()
	r, err := d.Query(t.Context(), q)
	all, err := db.Collect(r, err, func(s db.Scanner) (v string, err error) { return v, s.Scan(&v) })
	if err != nil {
		t.Fatalf("%s: %v", q, err)
	}
	slices.Sort(all)
	return all
}

// The numbers of migrations are unique, so that two that were written at the same time
// can't hide each other.
func TestMigrationNumbers(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("migrations/*.sql")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	seen := map[string]string{}
	for _, f := range files {
		n, _, _ := strings.Cut(filepath.Base(f), "_")
		if seen[n] != "" {
			t.Errorf("%s and %s have one number", seen[n], f)
		}
		seen[n] = f
	}
}
