package api_test

import (
	"path/filepath"
	"testing"

	"slipway/internal/account"
	"slipway/internal/api"
	"slipway/internal/seal"
	"slipway/internal/wordpress"
)

// What a value must be is said in words: not as a pattern, nor as a number of schemas.
func TestInvalidInWords(t *testing.T) {
	t.Parallel()
	sealer, err := seal.Load(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, func(c *api.Config) {
		c.WordPress = wordpress.New(wordpress.Config{DB: c.DB, Sites: c.Sites, Seal: sealer})
	})
	_, key := w.user("ada@example.test", account.SitesRead, account.SitesWrite)
	x := things{"site": w.site(key, "blog")}
	wordpressed(w, key, x)
	path := "/sites/" + x["site"]
	for _, row := range []struct {
		path, want string
		body       any
	}{
		{"/databases", "name must be 1 to 32 lowercase letters, digits and underscores, beginning with a letter", m{"engine": "mariadb", "name": "My data"}},
		{"/wordpress/update", `plugins must be "all" or an array of strings`, m{"plugins": "some"}},
		{"/wordpress/update", `plugins must be "all" or an array of strings`, m{"plugins": []any{1}}},
		{"/rules/test", "country must be a country code of two letters, such as DE", m{"path": "/", "country": "Germany"}},
	} {
		if a := w.must(400, "POST", path+row.path, key, row.body); a["details"] != row.want {
			t.Errorf("%s %v: %v", row.path, row.body, a)
		}
	}
}

// A PATCH of a WordPress that changes nothing says so, and leaves nothing in the audit log.
func TestWordPressUnchanged(t *testing.T) {
	t.Parallel()
	sealer, err := seal.Load(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, func(c *api.Config) {
		c.WordPress = wordpress.New(wordpress.Config{DB: c.DB, Sites: c.Sites, Seal: sealer})
	})
	_, key := w.user("ada@example.test", account.SitesRead, account.SitesWrite)
	x := things{"site": w.site(key, "blog")}
	wordpressed(w, key, x)
	entries := func() (n int) {
		if err := w.db.QueryRow(t.Context(), `SELECT count(*) FROM audit WHERE action = 'site.updated'`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	path := "/sites/" + x["site"] + "/wordpress"
	before := entries()
	if a := w.must(200, "PATCH", path, key, m{"xmlrpc": true}); a["message"] != "WordPress settings changed" || entries() != before+1 {
		t.Errorf("a change: %v, %d entries", a, entries()-before)
	}
	for _, same := range []m{{}, {"xmlrpc": true}, {"autoUpdate": "off", "php": m{}}} {
		if a := w.must(200, "PATCH", path, key, same); a["message"] != "WordPress settings are unchanged" || entries() != before+1 {
			t.Errorf("%v: %v, %d entries", same, a, entries()-before)
		}
	}
}
