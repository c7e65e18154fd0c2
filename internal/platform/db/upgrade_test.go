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

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
)

// released lists schema versions of earlier programs, oldest first. testdata has a file per version with the rows that
// its program added. Each version in production gets an entry, and migrations up to it no longer change.
var released = []int64{14, 63}

// moved lists tables and columns of earlier versions that no longer exist, with what happened to their content.
// Everything else must keep its content.
var moved = map[string]string{"portraits": "thumbnails (0110), which were deleted (0311)"}

// A database with rows in every table of each earlier version keeps all of them when it is migrated to the newest
// version.
func TestMigrationKeepsEveryRow(t *testing.T) {
	t.Parallel()
	d := empty(t, dbtest.Empty(t))
	var before snapshot
	for _, version := range released {
		if err := d.MigrateTo(t.Context(), version); err != nil {
			t.Fatal(err)
		}
		before.compare(t, d, version == 63)
		file := fmt.Sprintf("testdata/version%d.sql", version)
		text, err := os.ReadFile(file)
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
		if before = take(t, d); len(before) < 30 {
			t.Fatalf("only %d tables: %v", len(before), slices.Sorted(maps.Keys(before)))
		}
		for name, table := range before {
			if len(table.rows) == 0 {
				t.Errorf("%s leaves table %s without a row", file, name)
			}
		}
	}
	if err := d.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := d.Integrity(t.Context()); err != nil {
		t.Error(err)
	}
	before.compare(t, d, false)
	after := take(t, d)
	if err := d.Migrate(t.Context()); err != nil { // migrating again changes nothing
		t.Fatal(err)
	}
	after.compare(t, d, false)
}

// The migration deletes thumbnails. During an upgrade, nodes of the previous version can still write them, on
// PostgreSQL also under their former name portraits.
func TestThumbnailsOfEarlierVersions(t *testing.T) {
	t.Parallel()
	d := empty(t, dbtest.Empty(t))
	if err := d.MigrateTo(t.Context(), 109); err != nil {
		t.Fatal(err)
	}
	exec := func(statement string) {
		t.Helper()
		if err := d.Admin(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	const row = ` (release, title, text, %s, icon, image, made_at) VALUES ('%s', 'Blog', 'Words', '#336699', 'i', 'j', 7) ON CONFLICT (release) DO NOTHING`
	exec(`INSERT INTO portraits` + fmt.Sprintf(row, "colour", "old"))
	if err := d.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := rows(t, d, "thumbnails", []string{"release"}); len(got) > 0 {
		t.Errorf("thumbnails are %q", got)
	}
	exec(`INSERT INTO thumbnails` + fmt.Sprintf(row, "color", "new"))
	if got := rows(t, d, "portraits", []string{"release", "colour"}); !slices.Equal(got, []string{"new|#336699"}) {
		t.Errorf("under the former name they are %q", got)
	}
	if d.Single() {
		return
	}
	exec(`INSERT INTO portraits` + fmt.Sprintf(row, "colour", "new")) // twice, like a repeated job
	exec(`INSERT INTO portraits` + fmt.Sprintf(row, "colour", "newer"))
	exec(`DELETE FROM portraits WHERE made_at < 8 AND release NOT IN ('newer')`)
	if got := rows(t, d, "thumbnails", []string{"release"}); !slices.Equal(got, []string{"newer"}) {
		t.Errorf("after the writes of a node of the version before: %q", got)
	}
}

// snapshot is the content of every table.
type snapshot map[string]struct{ columns, rows []string }

func take(t *testing.T, d *db.DB) snapshot {
	t.Helper()
	s := snapshot{}
	for _, name := range tables(t, d) {
		table := s[name]
		table.columns = columnsOf(t, d, name)
		table.rows = rows(t, d, name, table.columns)
		s[name] = table
	}
	return s
}

// compare reports content of the snapshot that the database no longer has. split means that a migration in between
// separated owners from users (0015).
func (s snapshot) compare(t *testing.T, d *db.DB, split bool) {
	t.Helper()
	now := tables(t, d)
	for name, table := range s {
		if !slices.Contains(now, name) {
			if moved[name] == "" {
				t.Errorf("table %s is gone with its rows", name)
			}
			continue
		}
		have := columnsOf(t, d, name)
		lost := slices.DeleteFunc(slices.Clone(table.columns), func(c string) bool { return slices.Contains(have, c) })
		for _, c := range lost {
			if moved[name+"."+c] == "" {
				t.Errorf("column %s.%s is gone with its values", name, c)
			}
		}
		if len(lost) > 0 {
			continue // tested separately
		}
		want := table.rows
		if split && slices.Contains(table.columns, "owner_id") { // owners are no longer users, so their IDs have another prefix
			want = slices.Clone(want)
			for i := range want {
				want[i] = strings.TrimPrefix(strings.ReplaceAll("|"+want[i], "|user_", "|own__"), "|")
			}
			slices.Sort(want)
		}
		got := rows(t, d, name, table.columns)
		if !slices.Equal(got, want) {
			t.Errorf("table %s:\n got %q\nwant %q", name, got, want)
		}
	}
}

// Several nodes with a new version can start at the same moment on an older database.
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

// rows returns a table's rows as text, in the same order on both databases.
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

// Migration numbers are unique, so that of two migrations written at the same time none is skipped.
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
