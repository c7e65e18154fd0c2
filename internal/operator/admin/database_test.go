package admin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"slipway/internal/operator/installation"
	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/wait"
	"slipway/internal/tenant/account"
)

// moving makes the test binary run as a process that moves a database and is killed.
const moving = "SLIPWAY_TEST_MOVING"

// An installation moves to PostgreSQL and back. If the command is killed at any moment, the old database is complete
// and the new one is empty or complete. The service always uses the database that was moved to.
func TestMoveDatabase(t *testing.T) {
	t.Parallel()
	if dir := os.Getenv(moving); dir != "" {
		must(t, MoveDatabase(t.Context(), installation.Store{DataDir: dir}, os.Getenv(moving+"_TO"), "", io.Discard))
		return
	}
	if os.Getenv("SLIPWAY_TEST_DSN") == "" {
		t.Skip("needs PostgreSQL beside SQLite; make test runs it there")
	}
	s := installation.Store{DataDir: t.TempDir()}
	var out bytes.Buffer
	must(t, CreateUser(t.Context(), s, NewUser{Email: "root@example.test", Password: "correct horse battery", Admin: true}, &out))
	d, _, err := s.Open(t.Context(), nil)
	must(t, err)
	must(t, d.Write(t.Context(), func(tx *db.Tx) error {
		for i := range 20_000 {
			if _, err := tx.Exec(t.Context(), `INSERT INTO database_scratch (schema_name, server, until) VALUES ($1, $2, 0)`,
				fmt.Sprint("s", i), strings.Repeat("x", 200)); err != nil {
				return err
			}
		}
		return nil
	}))
	must(t, d.Close())

	address := dbtest.Empty(t)
	target, err := db.Open(t.Context(), db.Config{URL: address})
	must(t, err)
	defer target.Close()
	number := func(q string) (n int) {
		_ = target.QueryRow(t.Context(), q).Scan(&n) // 0 if a table doesn't exist yet
		return n
	}
	for when, reached := range map[string]func() bool{
		"it has begun":    func() bool { return number(`SELECT count(*) FROM pg_tables WHERE tablename = 'load_under_way'`) > 0 },
		"tables are made": func() bool { return number(`SELECT max(version_id) FROM goose_db_version`) > 100 },
		"rows are copied": func() bool {
			return number(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'COPY%'`) > 0
		},
	} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestMoveDatabase$")
		cmd.Env = append(os.Environ(), moving+"="+s.DataDir, moving+"_TO="+address)
		must(t, cmd.Start())
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		wait.Until(t, when, func() bool {
			select {
			case err := <-ended:
				ended <- err
				return true
			default:
				return reached()
			}
		})
		_ = cmd.Process.Kill()
		<-ended
		users := number(`SELECT count(*) FROM users`)
		if scratch := number(`SELECT count(*) FROM database_scratch`); users != 0 && (users != 1 || scratch != 20_000) {
			t.Errorf("killed when %s: %d users and %d rows are there", when, users, scratch)
		}
	}

	settings := filepath.Join(t.TempDir(), "server.toml")
	must(t, os.WriteFile(settings, []byte("site-domain = \"sites.test\"\n"), 0o640))
	if err := os.Remove(s.Path("database.moved")); err != nil && !errors.Is(err, os.ErrNotExist) { // left by a process that had finished
		t.Fatal(err)
	}
	out.Reset()
	must(t, MoveDatabase(t.Context(), s, secret(t, address), settings, &out))
	if said, err := os.ReadFile(settings); err != nil || !strings.Contains(out.String(), "rows of") ||
		!strings.Contains(string(said), "\n# slipway database move") || !strings.Contains(string(said), "Set database = ") {
		t.Errorf("%s\n%s %v", out.String(), said, err)
	}
	for _, file := range []string{settings, s.Path("database.moved")} {
		if text, err := os.ReadFile(file); err != nil || bytes.Contains(text, []byte("sesame")) || strings.Contains(out.String(), "sesame") {
			t.Errorf("a password is in %s or the output: %s\n%s %v", file, text, out.String(), err)
		}
	}
	// The old database can't be opened by mistake.
	if _, _, err := s.Open(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "was moved") {
		t.Errorf("the database before opens: %v", err)
	}
	there := s
	there.Database = address
	has := func(s installation.Store, email string) bool {
		d, _, err := s.Open(t.Context(), nil)
		must(t, err)
		defer d.Close()
		_, err = account.New(account.Config{DB: d}).UserByEmail(t.Context(), email)
		return err == nil
	}
	if !has(there, "root@example.test") {
		t.Error("the user didn't move")
	}
	must(t, CreateUser(t.Context(), there, NewUser{Email: "new@example.test", Password: "correct horse battery"}, &out))

	// While the database is in use, it can't be moved. Then it moves back, and the old file is kept.
	unlock, err := there.Lock()
	must(t, err)
	if err := MoveDatabase(t.Context(), there, "sqlite", "", &out); err == nil || !strings.Contains(err.Error(), "stop the service first") {
		t.Errorf("moved while it is served: %v", err)
	}
	unlock()
	must(t, MoveDatabase(t.Context(), there, "sqlite", settings, &out))
	if !has(s, "new@example.test") || !has(s, "root@example.test") {
		t.Error("a user didn't move back")
	}
	if kept, _ := filepath.Glob(s.Path("slipway.db.before-*")); len(kept) != 1 {
		t.Errorf("kept: %v", kept)
	}
	if left, _ := filepath.Glob(s.Path("slipway.db.moving*")); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	if _, _, err := there.Open(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "moved to SQLite") {
		t.Errorf("the database before opens: %v", err)
	}
}

// secret adds a password, which isn't needed, to a database's URL.
func secret(t *testing.T, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	must(t, err)
	q := u.Query()
	q.Set("sslpassword", "sesame")
	u.RawQuery = q.Encode()
	return u.String()
}

// A database URL is printed and stored without its password.
func TestWithoutPassword(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"postgres://u:secret@h/x":                                            "postgres://u@h/x",
		"postgres://u@h/x?password=secret&sslmode=disable":                   "postgres://u@h/x?sslmode=disable",
		"postgres://h/x?user=u&p%61ssword=secret&password=secret":            "postgres://h/x?user=u",
		"postgresql://u:secret@h:1/x?sslkey=/k&sslpassword=secret":           "postgresql://u@h:1/x?sslkey=%2Fk",
		"postgres://u@h/x?sslmode=disable&connect_timeout=1;password=secret": "postgres://u@h/x?sslmode=disable",
	} {
		u, err := url.Parse(address)
		must(t, err)
		if got := withoutPassword(*u); got != want {
			t.Errorf("%s: %s", address, got)
		}
	}
}

// An impossible move is refused before anything is created.
func TestMoveDatabaseRefuses(t *testing.T) {
	t.Parallel()
	s := installation.Store{DataDir: t.TempDir()}
	for to, want := range map[string]string{
		"sqlite": "already", "mysql://x": "--to", "postgres://127.0.0.1:1/x": "has no installation",
		"postgres://u:1?2@h/x": "%40", "postgres://u:1#2@h/x": "%23", "postgres://u@h/x?password=1#2": "%23",
	} {
		if err := MoveDatabase(context.Background(), s, to, "", io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", to, err)
		}
	}
	// A move between two PostgreSQL databases is refused, because the service couldn't tell which one is current.
	s.Database = "postgres://127.0.0.1:1/x"
	for to, want := range map[string]string{s.Database: "already", "postgres://127.0.0.1:1/y": "only sqlite"} {
		if err := MoveDatabase(context.Background(), s, to, "", io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", to, err)
		}
	}
	if list, err := os.ReadDir(s.DataDir); err != nil || len(list) != 0 {
		t.Errorf("made: %v %v", list, err)
	}
}
