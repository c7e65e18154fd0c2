package db_test

import (
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"slipway/internal/platform/db"
)

// fill writes 8 MB and deletes most of it again.
func fill(t *testing.T, d *db.DB) {
	t.Helper()
	for _, q := range []string{
		`CREATE TABLE IF NOT EXISTS bulk (n BIGINT PRIMARY KEY, x TEXT)`,
		`DELETE FROM bulk`,
		`INSERT INTO bulk (n, x) WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 8000) SELECT n, '` + strings.Repeat("x", 1000) + `' FROM c`,
		`DELETE FROM bulk WHERE n > 10`,
		`PRAGMA wal_checkpoint(TRUNCATE)`,
	} {
		if err := d.Admin(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
}

func size(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

func openFile(t *testing.T, path string) *db.DB {
	t.Helper()
	d, err := db.Open(t.Context(), db.Config{URL: "sqlite:" + path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// A new file shrinks after rows are deleted, and keeps the remaining rows.
func TestShrink(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "new.db")
	d := openFile(t, path)
	if err := d.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	fill(t, d)
	before := size(t, path)
	freed, err := d.Shrink(t.Context())
	if after := size(t, path); err != nil || freed < 6<<20 || before-after != freed {
		t.Errorf("freed %d of %d bytes, %d are left: %v", freed, before, after, err)
	}
	if freed, err := d.Shrink(t.Context()); freed != 0 || err != nil {
		t.Errorf("once more: %d, %v", freed, err)
	}
	var left int
	if err := d.QueryRow(t.Context(), `SELECT count(*) FROM bulk`).Scan(&left); err != nil || left != 10 {
		t.Errorf("%d rows are left: %v", left, err)
	}
	if err := d.Integrity(t.Context()); err != nil {
		t.Error(err)
	}
}

// A file from an earlier program can't shrink until Shrinkable has rewritten it once, which needs room for temporary
// files.
func TestShrinkable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "old.db")
	old, err := sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(WAL)")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := old.Exec(`CREATE TABLE t (x TEXT)`); err != nil {
		t.Fatal(err)
	}
	old.Close()
	d := openFile(t, path)
	fill(t, d)
	if freed, err := d.Shrink(t.Context()); freed != 0 || err != nil {
		t.Errorf("before: %d, %v", freed, err)
	}
	before := size(t, path)
	if os.Geteuid() == 0 { // only root: otherwise SQLite can't write to /sys and uses another directory
		t.Setenv("SQLITE_TMPDIR", "/sys") // has no free space
		if err := d.Shrinkable(t.Context()); err != nil || size(t, path) != before {
			t.Errorf("without room for temporary files: %v, %d bytes became %d", err, before, size(t, path))
		}
		t.Setenv("SQLITE_TMPDIR", t.TempDir())
	}
	if err := d.Shrinkable(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after := size(t, path); before-after < 6<<20 {
		t.Errorf("%d bytes became %d", before, after)
	}
	if log := size(t, path+"-wal"); log != 0 {
		t.Errorf("the log still has %d bytes", log)
	}
	fill(t, d)
	if freed, err := d.Shrink(t.Context()); freed < 6<<20 || err != nil {
		t.Errorf("afterwards: %d, %v", freed, err)
	}
}
