package api_test

import (
	"path/filepath"
	"testing"

	"slipway/internal/account"
	"slipway/internal/api"
	"slipway/internal/seal"
	"slipway/internal/wordpress"
)

// A purge of what can't be a page's path is refused, instead of succeeding without a purge.
func TestPurgePaths(t *testing.T) {
	t.Parallel()
	sealer, err := seal.Load(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, func(c *api.Config) {
		c.WordPress = wordpress.New(wordpress.Config{DB: c.DB, Sites: c.Sites, Seal: sealer, ClearObjects: func(string) {}})
	})
	_, key := w.user("ada@example.test", account.SitesRead, account.SitesWrite)
	x := things{"site": w.site(key, "blog")}
	wordpressed(w, key, x)
	path := "/sites/" + x["site"] + "/wordpress/purge-cache"
	for _, bad := range []string{"", "shop/", "https://blog.example/shop/", "/shop/?page=2", "/#top"} {
		if a := w.must(400, "POST", path, key, m{"paths": []string{"/", bad}}); a["code"] != "invalid_paths" || a["received"] != bad {
			t.Errorf("%q: %v", bad, a)
		}
	}
	w.must(202, "POST", path, key, m{"paths": []string{"/", "/caf%C3%A9/", "*"}})
	w.must(202, "POST", path, key, nil)
}
