package db

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write schema.sql anew")

// A new database created from schema.sql equals one created by the migrations one by one, and schema.sql is what they
// create up to its version.
func TestSchema(t *testing.T) {
	t.Parallel()
	newest, err := Newest()
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		text := fmt.Sprintf("-- version %d\n%s", newest, dumped(t, fresh(t, newest)))
		if err := os.WriteFile("schema.sql", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	version, err := schemaVersion()
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("-- version %d\n%s", version, dumped(t, fresh(t, version))); schema != want {
		t.Error("the migrations up to the version of schema.sql give another schema: run this test with -update")
	}
	one, all := fresh(t, newest), fresh(t, 0)
	if a, b := dumped(t, one), dumped(t, all); a != b {
		t.Errorf("applied one by one, the migrations give\n%s\napplied at once\n%s", a, b)
	}
	for _, q := range []string{
		`SELECT version_id || ' ' || is_applied FROM goose_db_version ORDER BY id`,
		`SELECT schema_known FROM schema_readers`,
		`SELECT COUNT(*) FROM sqlite_schema`,
	} {
		if a, b := column(t, one, q), column(t, all, q); strings.Join(a, "\n") != strings.Join(b, "\n") {
			t.Errorf("%s: applied one by one %v, at once %v", q, a, b)
		}
	}
	if err := all.Migrate(t.Context()); err != nil { // migrating again changes nothing
		t.Error(err)
	}
}

// fresh creates a SQLite database with the migrations up to a version, or like Migrate if version is 0.
func fresh(t *testing.T, version int64) *DB {
	t.Helper()
	d, err := Open(t.Context(), Config{URL: "sqlite:" + filepath.Join(t.TempDir(), "slipway.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	if err := d.MigrateTo(t.Context(), version); err != nil {
		t.Fatal(err)
	}
	return d
}

// dumped returns statements that create a database's tables and rows, without Migrate's own tables.
func dumped(t *testing.T, d *DB) string {
	t.Helper()
	const ours = `name NOT LIKE 'sqlite%' AND name <> 'goose_db_version' AND name <> 'sites_search'`
	var all strings.Builder
	for _, sql := range column(t, d, `SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND `+ours+` ORDER BY rowid`) {
		all.WriteString(sql + ";\n")
	}
	for _, table := range column(t, d, `SELECT name FROM sqlite_schema WHERE type = 'table' AND name <> 'schema_readers' AND `+ours+` ORDER BY rowid`) {
		var values []string
		for _, name := range column(t, d, `SELECT name FROM pragma_table_info('`+table+`') ORDER BY cid`) {
			values = append(values, `quote("`+name+`")`)
		}
		for _, row := range column(t, d, `SELECT `+strings.Join(values, ` || ', ' || `)+` FROM "`+table+`" ORDER BY rowid`) {
			fmt.Fprintf(&all, "INSERT INTO %s VALUES (%s);\n", table, row)
		}
	}
	return all.String()
}

// column returns the rows of a query for a single text column.
func column(t *testing.T, d *DB, q string) (all []string) {
	t.Helper()
	rows, err := d.write.QueryContext(t.Context(), q)
	if err != nil {
		t.Fatalf("%s: %v", q, err)
	}
	defer rows.Close()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			t.Fatal(err)
		}
		all = append(all, text)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}
