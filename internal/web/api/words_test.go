package api_test

import (
	"path/filepath"
	"testing"

	"slipway/internal/platform/seal"
	"slipway/internal/tenant/account"
	"slipway/internal/web/api"
	"slipway/internal/wordpress/wordpress"
)

// newWordPress returns a world with ada's WordPress, her key and the site's path.
func newWordPress(t *testing.T) (w *world, key, path string) {
	t.Helper()
	sealer, err := seal.Load(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	w = newWorld(t, func(c *api.Config) {
		c.WordPress = wordpress.New(wordpress.Config{DB: c.DB, Sites: c.Sites, Seal: sealer})
	})
	_, key = w.user("ada@example.test", account.All)
	x := things{"site": w.site(key, "blog")}
	wordpressed(w, key, x)
	return w, key, "/sites/" + x["site"]
}

// Validation errors describe the expected value in words, not as a pattern or a schema number.
func TestInvalidInWords(t *testing.T) {
	t.Parallel()
	w, key, path := newWordPress(t)
	for _, row := range []struct {
		path, want string
		body       any
	}{
		{
			"/databases",
			"name must be 1 to 32 lowercase letters, digits and underscores, beginning with a letter",
			m{"engine": "mariadb", "name": "My data"},
		},
		{"/wordpress/update", `plugins must be "all" or an array of strings`, m{"plugins": "some"}},
		{"/wordpress/update", `plugins must be "all" or an array of strings`, m{"plugins": []any{1}}},
		{"/rules/test", "country must be a country code of two letters, such as DE", m{"path": "/", "country": "Germany"}},
	} {
		if a := w.must(400, "POST", path+row.path, key, row.body); a["details"] != row.want {
			t.Errorf("%s %v: %v", row.path, row.body, a)
		}
	}
}

// A WordPress PATCH without a change says so and adds nothing to the audit log.
func TestWordPressUnchanged(t *testing.T) {
	t.Parallel()
	w, key, path := newWordPress(t)
	entries := func() (n int) {
		if err := w.db.QueryRow(t.Context(), `SELECT count(*) FROM audit WHERE action = 'site.updated'`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	path += "/wordpress"
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

// A schema violation anywhere in the body is reported as a sentence, with a code that doesn't depend on its position in
// a list.
func TestSchemaErrorsAreSentences(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, key := w.user("ada@example.test", account.All)
	id := w.site(key, "Blog")
	for name, tt := range map[string]struct {
		method, path        string
		body                any
		says, details, code string
	}{
		"one item": {
			"POST", "/webhooks",
			map[string]any{"url": "https://example.com/in", "events": []string{}},
			"Invalid webhook events", "events must have at least 1 item", "invalid_events",
		},
		"below a field": {
			"PATCH", "/sites/" + id,
			map[string]any{"backups": map[string]any{"every": "never"}},
			"Invalid backups.every", "backups.every must be off, hourly, daily or weekly", "invalid_backups_every",
		},
		"in a list": {
			"POST", "/sites/" + id + "/env",
			map[string]any{"key": "A", "value": "x", "target": []string{"build", "nope"}},
			"Invalid variable target", "target[1] must be build, runtime, production or preview", "invalid_target",
		},
		"in a list of a list": {
			"POST",
			"/sites/" + id + "/env",
			[]any{map[string]any{"key": "A", "value": "x", "target": []string{"nope"}}},
			"Invalid variable target",
			"[0].target[0] must be build, runtime, production or preview",
			"invalid_target",
		},
	} {
		got := w.must(400, tt.method, tt.path, key, tt.body)
		if got["error"] != tt.says || got["details"] != tt.details || got["code"] != tt.code {
			t.Errorf("%s: %q, %q, %q", name, got["error"], got["details"], got["code"])
		}
	}
}

// Git settings that would create previews of a WordPress are refused, instead of failing at each push. Production
// settings are accepted.
func TestWordPressHasNoPreviews(t *testing.T) {
	t.Parallel()
	w, key, path := newWordPress(t)
	path += "/git"
	same := m{"previews": "off", "tags": "ignore", "pollMinutes": 5}
	w.must(200, "PATCH", path, key, m{"previews": "all"}) // the site is still static
	w.must(200, "PATCH", path, key, same)
	if err := w.db.Admin(t.Context(), "UPDATE sites SET type = 'wordpress'"); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []m{{"previews": "all"}, {"previews": "pull_requests", "pollMinutes": 7}, {"tags": "preview"}} {
		if a := w.must(400, "PATCH", path, key, bad); a["code"] != "no_wordpress_previews" {
			t.Errorf("%v: %v", bad, a)
		}
	}
	w.must(200, "PATCH", path, key, same)
	if a := w.must(200, "GET", path, key, nil); a["previews"] != "off" || a["tags"] != "ignore" || a["pollMinutes"] != 5.0 {
		t.Errorf("it is %v", a)
	}
}
