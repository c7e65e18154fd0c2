package database_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/program/database"
	"slipway/internal/tenant/site"
)

// preview makes a preview of a site; end ends it.
func (w *world) preview(id site.ID, key string) (end func()) {
	w.t.Helper()
	ok(
		w.t,
		w.db.Admin(
			w.t.Context(),
			`INSERT INTO preview_hosts (site_id, branch, label, deployment_id, release, used_at) VALUES ('`+string(id)+`', '`+key+`', 'label-`+key+`', '', '', 1)`,
		),
	)
	return func() {
		ok(w.t, w.db.Admin(w.t.Context(), `DELETE FROM preview_hosts WHERE site_id = '`+string(id)+`' AND branch = '`+key+`'`))
	}
}

// connectPreview connects as connect does, but as a program of a preview.
func (w *world) connectPreview(id site.ID, key string, copied bool) (*sql.DB, map[string]string) {
	w.t.Helper()
	env, secrets, err := w.PreviewEnv(w.t.Context(), id, key, copied)
	ok(w.t, err)
	if env["DATABASE_URL"] == "" || !slices.Contains(secrets, env["DB_PASSWORD"]) {
		w.t.Fatalf("the preview's variables: %v", env)
	}
	return w.connect(id, func(c *mysql.Config) {
		c.User, c.Passwd, c.DBName = env["DB_USERNAME"], env["DB_PASSWORD"], env["DB_DATABASE"]
	}), env
}

// A preview must have its own databases, empty or copied. They must neither see nor change those of production, and
// must be deleted with the preview.
func TestPreviewDatabases(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	shop := w.site(anna, "Shop")
	if env, _, err := w.PreviewEnv(t.Context(), shop, "feature", true); len(env) > 0 || err != nil {
		t.Errorf("of a site without databases: %v %v", env, err)
	}
	w.database(anna, shop)
	production := w.connect(shop)
	w.exec(production, `CREATE TABLE orders (id INT PRIMARY KEY)`, `INSERT INTO orders VALUES (1), (2)`)
	own, _, err := w.Env(t.Context(), shop)
	ok(t, err)

	if env, _, err := w.PreviewEnv(t.Context(), shop, "feature", false); len(env) > 0 || err != nil {
		t.Errorf("of a preview that there is not: %v %v", env, err)
	}
	endEmpty, endCopy := w.preview(shop, "feature"), w.preview(shop, ":7")
	empty, env := w.connectPreview(shop, "feature", false)
	copied, other := w.connectPreview(shop, ":7", true)
	if env["DB_DATABASE"] == own["DB_DATABASE"] || env["DB_PASSWORD"] == own["DB_PASSWORD"] || env["DB_DATABASE"] == other["DB_DATABASE"] {
		t.Fatal("a preview shares the site's database or another preview's")
	}
	if again, _, err := w.PreviewEnv(t.Context(), shop, "feature", true); err != nil || again["DATABASE_URL"] != env["DATABASE_URL"] {
		t.Errorf("asked for again it is another: %v %v", again, err)
	}
	var n int
	if err := empty.QueryRow(`SELECT count(*) FROM orders`).Scan(&n); code(err) != 1146 {
		t.Errorf("the empty one has orders: %d %v", n, err)
	}
	if err := copied.QueryRow(`SELECT count(*) FROM orders`).Scan(&n); n != 2 || err != nil {
		t.Errorf("the copy has %d orders: %v", n, err)
	}
	w.exec(copied, `DELETE FROM orders`)
	w.exec(empty, `CREATE TABLE orders (id INT)`)
	if err := production.QueryRow(`SELECT count(*) FROM orders`).Scan(&n); n != 2 || err != nil {
		t.Errorf("production has %d orders: %v", n, err)
	}
	for _, pool := range []*sql.DB{empty, copied} {
		if err := pool.QueryRow(`SELECT count(*) FROM ` + own["DB_DATABASE"] + `.orders`).Scan(&n); err == nil {
			t.Errorf("a preview reads %d orders of production", n)
		}
	}
	if now, _, err := w.Env(t.Context(), shop); err != nil || now["DATABASE_URL"] != own["DATABASE_URL"] || len(now) != len(own) {
		t.Errorf("production's variables: %v %v", now, err)
	}
	if list, err := w.List(t.Context(), w.db, anna, shop); len(list) != 1 || err != nil {
		t.Errorf("%d databases of the site are listed: %v", len(list), err)
	}

	endCopy()
	left := func() (n int) {
		list, err := w.AllOfSite(t.Context(), w.db, shop)
		ok(t, err)
		return len(list)
	}
	w.until("the database of the preview that ended is deleted", func() bool { return left() == 2 })
	if env, _, err := w.PreviewEnv(t.Context(), shop, ":7", true); len(env) > 0 || err != nil {
		t.Errorf("a preview that has ended: %v %v", env, err)
	}
	w.exec(empty, `INSERT INTO orders VALUES (3)`)
	endEmpty()
	w.until("no preview's database is left", func() bool { return left() == 1 })
	w.exec(production, `INSERT INTO orders VALUES (3)`)

	w.preview(shop, "last")
	w.connectPreview(shop, "last", false)
	w.until("all are deleted with the site", func() bool { return w.ForgetSite(t.Context(), shop) == nil })
	if n := left(); n != 0 {
		t.Errorf("%d databases of a deleted site", n)
	}
}

// The program of a preview must not start until its database is ready, and the error must say why.
func TestPreviewDatabaseFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	shop := w.site(anna, "Shop")
	w.database(anna, shop)
	w.preview(shop, "feature")
	set := func(status string, at db.Time) {
		w.write(func(tx *db.Tx) error {
			_, err := tx.Exec(
				t.Context(),
				`UPDATE databases SET status = $1, created_at = $2, reason = 'the disk is full' WHERE preview <> ''`,
				status,
				at,
			)
			return err
		})
	}
	w.connectPreview(shop, "feature", false)
	set("creating", db.Now())
	for within := 50 * time.Millisecond; ; within *= 2 { // on a busy machine the first check may take longer
		short, cancel := context.WithTimeout(t.Context(), within)
		_, _, err := w.PreviewEnv(short, shop, "feature", false)
		cancel()
		if f := fault.As(err); f != nil && f.Code == "database_creating" {
			break
		}
		if !errors.Is(err, context.DeadlineExceeded) || within > time.Minute {
			t.Fatalf("while it is made: %v", err)
		}
	}
	set("error", db.Now())
	if _, _, err := w.PreviewEnv(
		t.Context(),
		shop,
		"feature",
		false,
	); fault.As(err) == nil || fault.As(err).Code != "database_failed" || fault.As(err).Details != "the disk is full" {
		t.Errorf("after it failed: %v", err)
	}
	set("error", db.Now().Add(-time.Hour))
	w.connectPreview(shop, "feature", false)
	if list, err := w.AllOfSite(t.Context(), w.db, shop); err != nil || len(list) != 2 || list[1].Status != database.Active {
		t.Errorf("the database was created again: %+v %v", list, err)
	}
}
