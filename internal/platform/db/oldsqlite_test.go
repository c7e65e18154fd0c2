package db_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"slipway/internal/platform/dbtest"
)

// Debian 12's sqlite3 (version 3.40) can open, check and copy a new database and one migrated from the first version,
// and select from each view.
func TestSchemaOpensInSQLite340(t *testing.T) {
	t.Parallel()
	program := sqlite3(t)
	for name, from := range map[string]int64{"new": 0, "migrated": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "slipway.db")
			d := empty(t, "sqlite:"+path)
			if from > 0 {
				if err := d.MigrateTo(t.Context(), from); err != nil {
					t.Fatal(err)
				}
			}
			if err := d.Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			for _, q := range members {
				if err := d.Admin(t.Context(), q); err != nil {
					t.Fatal(err)
				}
			}
			views := column(t, d, `SELECT name FROM sqlite_schema WHERE type = 'view'`)
			if len(views) < 30 {
				t.Fatalf("only %d views: %v", len(views), views)
			}
			run := func(what string) string {
				t.Helper()
				out, err := exec.CommandContext(t.Context(), program, "-bail", "-batch", path, what).CombinedOutput()
				if err != nil {
					t.Fatalf("%s: %v\n%.2000s", what, err, out)
				}
				return strings.TrimSpace(string(out))
			}
			if out := run(".schema"); !strings.Contains(out, "CREATE VIEW memberships") {
				t.Errorf(".schema has no memberships: %.500s", out)
			}
			if out := run("PRAGMA integrity_check"); out != "ok" {
				t.Errorf("integrity_check: %s", out)
			}
			for _, view := range views {
				run(`SELECT * FROM "` + view + `" LIMIT 5`)
			}
			if out, want := run(`SELECT role, sites FROM memberships WHERE team_id <> ''`), "viewer|site_a:manager site_b:viewer"; out != want {
				t.Errorf("memberships has %q, want %q", out, want)
			}
			run(".backup '" + filepath.Join(filepath.Dir(path), "copy.db") + "'")
		})
	}
}

// members creates a team with a member who has roles on two sites.
var members = []string{
	`INSERT INTO users (id, owner_id, email, password, admin, created_at) VALUES ('usr_a', 'own_u', 'a', '', FALSE, 0)`,
	`INSERT INTO teams (id, owner_id, name, slug, require_2fa, require_sso, apps, created_at, suspended_at, deleting_at, deleted_at)
		VALUES ('team_a', 'own_a', 'A', 'a', FALSE, FALSE, 'all', 0, 0, 0, 0)`,
	`INSERT INTO team_members (owner_id, user_id, role, break_glass, joined_at, invited_by) VALUES ('own_a', 'usr_a', 'viewer', FALSE, 0, '')`,
	`INSERT INTO site_members (site_id, user_id, owner_id, role)
		VALUES ('site_b', 'usr_a', 'own_a', 'viewer'), ('site_a', 'usr_a', 'own_a', 'manager')`,
}

// sqlite3 returns the path of Debian's sqlite3, which it installs if it can. The test is only meaningful with version
// 3.40 or older, so it logs when a newer one is installed.
func sqlite3(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("sqlite3")
	if err != nil && os.Getuid() == 0 {
		out, failed := exec.CommandContext(t.Context(), "apt-get", "install", "-y", "-q", "sqlite3").CombinedOutput()
		if path, err = exec.LookPath("sqlite3"); err != nil {
			t.Logf("apt-get install sqlite3: %v\n%s", failed, out)
		}
	}
	if err != nil {
		t.Fatal("this test needs the sqlite3 command: apt-get install sqlite3")
	}
	out, err := exec.CommandContext(t.Context(), path, "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	var major, minor int
	if _, err := fmt.Sscanf(string(out), "%d.%d", &major, &minor); err != nil {
		t.Fatal(err)
	}
	if major > 3 || minor > 40 {
		fmt.Fprintf(os.Stderr, "NOT PROVED: sqlite3 is version %d.%d here, so that nothing shows what 3.40 of Debian 12 reads\n", major, minor)
	}
	return path
}

// Both databases list a member's roles on sites in the same order.
func TestSchemaOrdersSiteRoles(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	for _, q := range members {
		if err := d.Admin(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	var sites string
	if err := d.QueryRow(t.Context(), `SELECT sites FROM memberships WHERE team_id <> ''`).Scan(&sites); err != nil {
		t.Fatal(err)
	}
	if want := "site_a:manager site_b:viewer"; sites != want {
		t.Errorf("memberships has %q, want %q", sites, want)
	}
}
