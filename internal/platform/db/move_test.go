package db_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
)

// odd is a text with characters that need escaping in a copy.
const odd = "a\tb\\N\n\\.\r\b\f\v ü 🚢 '\" \x01 end\\"

// filled returns a SQLite database with rows of each type, and references between tables.
func filled(t *testing.T) *db.DB {
	t.Helper()
	d := dbtest.Open(t, "sqlite:"+filepath.Join(t.TempDir(), "slipway.db"))
	err := d.Write(t.Context(), func(tx *db.Tx) error {
		for i := range 3000 {
			id := fmt.Sprintf("usr_%04d", i)
			if _, err := tx.Exec(t.Context(), `INSERT INTO users (id, owner_id, email, password, admin, created_at) VALUES ($1, $1, $2, $3, $4, $5)`,
				id, id+"@example.com", odd+id, i%2 == 0, int64(i)*1e15); err != nil {
				return err
			}
			if _, err := tx.Exec(t.Context(), `INSERT INTO setup_links (hash, user_id, expires_at) VALUES ($1, $2, -5)`, "s"+id, id); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// unmigrated opens a database without a schema.
func unmigrated(t *testing.T, url string) *db.DB {
	t.Helper()
	d, err := db.Open(t.Context(), db.Config{URL: url, Volatile: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// dumped returns all rows of users, in order.
func dumped(t *testing.T, d *db.DB) string {
	t.Helper()
	rows, err := d.Query(t.Context(), `SELECT id, email, password, admin, created_at FROM users ORDER BY id`)
	list, err := db.Collect(rows, err, func(s db.Scanner) (string, error) {
		var id, email, password string
		var admin bool
		var at int64
		err := s.Scan(&id, &email, &password, &admin, &at)
		return fmt.Sprintf("%q %q %q %v %d\n", id, email, password, admin, at), err
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(list, "")
}

// A database moved from SQLite to PostgreSQL and back has the same content. After an interrupted move, the next one
// works. A move that isn't possible leaves no rows.
func TestMove(t *testing.T) {
	t.Parallel()
	if os.Getenv("SLIPWAY_TEST_DSN") == "" {
		t.Skip("needs PostgreSQL beside SQLite; make test runs it there")
	}
	from := filled(t)
	want := dumped(t, from)
	to := unmigrated(t, dbtest.Empty(t))

	// The move is canceled, then fails on text that PostgreSQL can't store.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := db.Move(ctx, from, to); err == nil {
		t.Fatal("a canceled move succeeded")
	}
	if err := from.Admin(t.Context(), `UPDATE users SET password = 'a' || char(0) || 'b' WHERE id = 'usr_2999'`); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Move(t.Context(), from, to); err == nil || !strings.Contains(err.Error(), "copy table users: column password") {
		t.Fatalf("a text with a zero byte: %v", err)
	}
	var n int
	if err := to.QueryRow(t.Context(), `SELECT count(*) FROM users`).Scan(&n); err != nil || n != 0 {
		t.Errorf("a failed move left %d users: %v", n, err)
	}
	if err := to.Migrate(t.Context()); err == nil || !strings.Contains(err.Error(), "was interrupted") {
		t.Errorf("a service would begin with what an interrupted move left: %v", err)
	}
	if err := from.Admin(t.Context(), `UPDATE users SET password = (SELECT replace(password, 'usr_0000', 'usr_2999') FROM users WHERE id = 'usr_0000') WHERE id = 'usr_2999'`); err != nil {
		t.Fatal(err)
	}

	m, err := db.Move(t.Context(), from, to)
	if err != nil || m.Rows < 6000 || m.Tables < 100 || m.Before {
		t.Fatalf("%+v, %v", m, err)
	}
	if got := dumped(t, to); got != want {
		t.Errorf("%d bytes on PostgreSQL, %d before", len(got), len(want))
	}
	if err := to.Migrate(t.Context()); err != nil {
		t.Error(err)
	}
	if err := to.Admin(t.Context(), `DELETE FROM users WHERE id = 'usr_0001'`); err == nil {
		t.Error("the foreign keys are gone: a referenced row was deleted")
	}
	// A repeated move finds the same content. If the target's content differs, the move overwrites nothing.
	if again, err := db.Move(t.Context(), from, to); err != nil || !again.Before || again.Rows != m.Rows {
		t.Errorf("once more: %+v, %v", again, err)
	}
	if err := to.Admin(t.Context(), `UPDATE users SET email = 'new@example.com' WHERE id = 'usr_0001'`); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Move(t.Context(), from, to); err == nil || !strings.Contains(err.Error(), "already has tables") {
		t.Errorf("into a database that is used: %v", err)
	}

	back := unmigrated(t, "sqlite:"+filepath.Join(t.TempDir(), "back.db"))
	if m, err := db.Move(t.Context(), to, back); err != nil || m.Rows < 6000 {
		t.Fatalf("back: %+v, %v", m, err)
	}
	if got := dumped(t, back); got != dumped(t, to) || !strings.Contains(got, "new@example.com") {
		t.Error("the rows differ after moving there and back")
	}
	if err := back.Admin(t.Context(), `DELETE FROM users WHERE id = 'usr_0001'`); err == nil {
		t.Error("the foreign keys are gone: a referenced row was deleted")
	}
}

// A move between two SQLite files keeps the content, too.
func TestMoveBetweenFiles(t *testing.T) {
	t.Parallel()
	a, b := filled(t), filled(t)
	same := unmigrated(t, "sqlite:"+filepath.Join(t.TempDir(), "same.db"))
	if _, err := db.Move(t.Context(), a, same); err != nil {
		t.Fatal(err)
	}
	if dumped(t, same) != dumped(t, b) {
		t.Error("two equal ones differ")
	}
}

// A database with errors that SQLite's own checks find isn't moved.
func TestMoveChecksBeforeItCommits(t *testing.T) {
	t.Parallel()
	from := filled(t)
	for _, q := range []string{"PRAGMA foreign_keys = OFF", `DELETE FROM users WHERE id = 'usr_0001'`, "PRAGMA foreign_keys = ON"} {
		if err := from.Admin(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	to := unmigrated(t, "sqlite:"+filepath.Join(t.TempDir(), "to.db"))
	if m, err := db.Move(t.Context(), from, to); err == nil || !strings.Contains(err.Error(), "of setup_links refers to nothing in users") || m.Rows != 0 {
		t.Errorf("moved %+v, %v", m, err)
	}
	if left := dumped(t, to); left != "" {
		t.Errorf("the failed move left %d bytes", len(left))
	}
}
