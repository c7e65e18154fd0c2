package admin

import (
	"bytes"
	"strings"
	"testing"

	"slipway/internal/operator/installation"
	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/node"
	"slipway/internal/program/placement"
)

// A running node can't be forgotten. A node that holds the only copy of something is forgotten after a confirmation,
// and its sites can run elsewhere.
func TestForgetNode(t *testing.T) {
	t.Parallel()
	url := dbtest.URL(t)
	d := dbtest.Open(t, url)
	if d.Single() {
		t.Skip("SQLite has one node")
	}
	ctx := t.Context()
	self, err := node.New(node.Config{DB: d, Dir: t.TempDir(), Blobs: "s3://files", SiteDomain: "sites.test"})
	if err == nil {
		err = self.Join(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	places := placement.New(d, self, false)
	if err := places.Take(ctx, "site_stores", placement.Files); err != nil {
		t.Fatal(err)
	}
	if err := places.Take(ctx, "site_free", placement.Nothing); err != nil {
		t.Fatal(err)
	}
	exec := func(q string, args ...any) {
		t.Helper()
		if err := d.Write(ctx, func(tx *db.Tx) error { _, err := tx.Exec(ctx, q, args...); return err }); err != nil {
			t.Fatal(err)
		}
	}
	count := func(q string) (n int) {
		t.Helper()
		if err := d.QueryRow(ctx, q).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	exec(`INSERT INTO app_storage (site_id, bytes, capped_bytes, measured_at) VALUES ('site_stores', 7, 0, 1)`)
	s := installation.Store{DataDir: t.TempDir(), Database: url}
	var out bytes.Buffer
	if err := ForgetNode(ctx, s, self.ID(), true, &out); err == nil || !strings.Contains(err.Error(), "runs: stop it first") {
		t.Errorf("while it runs: %v", err)
	}
	exec(`UPDATE nodes SET lease_until = 1`)
	err = ForgetNode(ctx, s, self.ID(), false, &out)
	if err == nil || !strings.Contains(err.Error(), "alone has files or databases of 1 site,") || count(`SELECT count(*) FROM placements`) != 2 {
		t.Errorf("without the confirmation of the loss: %v", err)
	}
	if err := ForgetNode(ctx, s, self.ID(), true, &out); err != nil || !strings.Contains(out.String(), "2 sites can run on other nodes, 1 of them without") {
		t.Fatalf("%v: %s", err, &out)
	}
	for _, q := range []string{`SELECT count(*) FROM placements`, `SELECT count(*) FROM nodes`, `SELECT bytes FROM app_storage`} {
		if n := count(q); n != 0 {
			t.Errorf("%s: %d", q, n)
		}
	}
	if n := count(`SELECT count(*) FROM audit WHERE action = 'node.forgotten'`); n != 1 {
		t.Errorf("the audit log has %d lines", n)
	}
}
