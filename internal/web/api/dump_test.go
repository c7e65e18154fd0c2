package api_test

import (
	"strings"
	"testing"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
)

// A dump that fails before its first byte returns an error status and frees the account's slot.
func TestDumpsThatDontBegin(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	user, key := w.user("ada@example.test")
	site := w.must(201, "POST", "/sites", key, m{"name": "x", "type": "static", "repository": "git.test/acme/site"})["data"].(map[string]any)
	id := w.must(201, "POST", "/sites/"+site["id"].(string)+"/databases", key, m{"engine": "mariadb"})["id"].(string)
	path := "/databases/" + id + "/dump"
	if a := w.must(409, "GET", path, key, nil); a["code"] != "database_not_ready" {
		t.Errorf("%v", a)
	}
	err := w.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), `UPDATE databases SET status = 'active' WHERE id = $1`, id)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the server can't be reached
		if a := w.send("GET", "/api/v1"+path, key, nil); a.status < 500 || strings.Contains(a.body, "slipway:end") {
			t.Errorf("%v", a)
		}
	}
	reads := w.key(user, account.NewKey{Scopes: account.Scopes{account.SitesWrite}})
	w.must(403, "GET", path, reads, nil)
	_, stranger := w.user("eve@example.test")
	w.must(404, "GET", path, stranger, nil)
}
