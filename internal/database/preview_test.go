package database_test

import (
	"slices"
	"testing"

	"github.com/go-sql-driver/mysql"

	"slipway/internal/db"
)

// Previews have databases of their own: empty, reached by credentials and a socket that are
// not production's, and gone with the database or the site.
func TestPreviewsHaveTheirOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.site(anna, "one")
	if env, _, err := w.PreviewEnv(t.Context(), string(id)); err != nil || len(env) > 0 {
		t.Errorf("without databases: %v, %v", env, err)
	}
	x := w.database(anna, id)
	w.exec(w.connect(id), "CREATE TABLE t (x INT)", "INSERT INTO t VALUES (1)")

	env, secrets, err := w.PreviewEnv(t.Context(), string(id))
	ok(t, err)
	production, _, err := w.Env(t.Context(), string(id))
	ok(t, err)
	for _, key := range []string{"DATABASE_URL", "DB_DATABASE", "DB_USERNAME", "DB_PASSWORD"} {
		if env[key] == "" || env[key] == production[key] {
			t.Errorf("%s of previews is %q, production's %q", key, env[key], production[key])
		}
	}
	if !slices.Equal(secrets, []string{env["DB_PASSWORD"]}) {
		t.Errorf("%d secrets", len(secrets))
	}
	socket, err := w.Socket(string(id) + "-preview")
	ok(t, err)
	if own, err := w.Socket(string(id)); err != nil || own == socket {
		t.Errorf("previews and production share the socket %s, %v", own, err)
	}
	preview := w.connect(id, func(c *mysql.Config) {
		c.User, c.Passwd, c.DBName = env["DB_USERNAME"], env["DB_PASSWORD"], env["DB_DATABASE"]
	})
	if _, err := preview.ExecContext(t.Context(), "SELECT * FROM `"+x.Schema+"`.t"); code(err) == 0 {
		t.Errorf("a preview reads production's table: %v", err)
	}
	w.exec(preview, "CREATE TABLE t (y TEXT)") // it isn't there

	again, _, err := w.PreviewEnv(t.Context(), string(id))
	if err != nil || again["DATABASE_URL"] != env["DATABASE_URL"] {
		t.Errorf("the next preview: %v, %v", again["DATABASE_URL"], err)
	}
	list, err := w.List(t.Context(), w.db, anna, id)
	if err != nil || len(list) != 1 || list[0].ID != x.ID {
		t.Errorf("listed: %+v, %v", list, err)
	}
	if ofSite, err := w.OfSite(t.Context(), id); err != nil || len(ofSite) != 1 {
		t.Errorf("backed up: %+v, %v", ofSite, err)
	}
	w.write(func(tx *db.Tx) error {
		_, err := w.DeleteTx(t.Context(), tx, anna, x.ID)
		return err
	})
	w.until("both are dropped", func() bool {
		var n int
		ok(t, w.db.QueryRow(t.Context(), `SELECT count(*) FROM databases WHERE site_id = $1`, id).Scan(&n))
		return n == 0
	})
	if err := preview.PingContext(t.Context()); code(err) == 0 {
		t.Errorf("the database of previews is still there: %v", err)
	}
}
