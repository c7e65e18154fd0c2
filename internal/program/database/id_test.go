package database_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/disk"
	"slipway/internal/program/database"
)

// If a power cut emptied the file with the id of a node's databases, a new id must be made if there are no databases,
// and otherwise the id must be taken from their rows: under another one, sites would lose their databases. If the rows
// list several ids, the error must name them.
func TestEmptyServerID(t *testing.T) {
	t.Parallel()
	d, dir := dbtest.New(t), t.TempDir()
	file := filepath.Join(dir, "id")
	start := func(id string) (string, error) {
		t.Helper()
		ok(t, disk.Write(file, []byte(id), 0o600))
		_, err := database.New(database.Config{DB: d, Dir: dir})
		now, readErr := os.ReadFile(file)
		ok(t, readErr)
		return string(now), err
	}
	row := func(name, server string) {
		t.Helper()
		ok(t, d.Write(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), `
				INSERT INTO databases (id, site_id, owner_id, engine, name, place, schema_name, password, server, status, reason, size_bytes,
					is_full, created_at)
				VALUES ($1, $1, 'own_ada', 'mariadb', $1, 0, $1, '', $2, 'active', '', 0, FALSE, 0)`, name, server)
			return err
		}))
	}
	first, err := start("")
	if err != nil || first == "" {
		t.Fatalf("without databases the id is %q, %v", first, err)
	}
	if kept, err := start(first); err != nil || kept != first {
		t.Errorf("the next start has %q, %v; want %q", kept, err, first)
	}
	row("one", "private/"+first+"/own_ada")
	if again, err := start(""); d.Single() && (err != nil || again != first) {
		t.Errorf("with databases the id is %q, %v; want %q", again, err, first)
	}
	row("two", "private/other/own_ada")
	if _, err := start(""); err == nil || !strings.Contains(err.Error(), first) || !strings.Contains(err.Error(), "other") {
		t.Errorf("with databases of two nodes: %v", err)
	}
}
