package api_test

import (
	"context"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"slipway/internal/platform/id"

	"slipway/internal/platform/seal"
	"slipway/internal/tenant/account"
	"slipway/internal/web/api"
	"slipway/internal/wordpress/wordpress"
)

// Without Redis, turning on the object cache is refused with an error message and nothing else of the request is done.
// With Redis it can be turned on. It can always be turned off.
func TestObjectCacheWithoutRedis(t *testing.T) {
	t.Parallel()
	sealer, err := seal.Load(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	why := "Redis is not installed"
	w := newWorld(t, func(c *api.Config) {
		c.WordPress = wordpress.New(wordpress.Config{DB: c.DB, Sites: c.Sites, Seal: sealer, Host: noRedis{&why}})
	})
	_, key := w.user("ada@example.test", account.SitesRead, account.SitesWrite)
	x := things{"site": w.site(key, "blog")}
	wordpressed(w, key, x)
	path := "/sites/" + x["site"] + "/wordpress"
	is := func(objects, xmlrpc bool) {
		t.Helper()
		var o, r bool
		if err := w.db.QueryRow(t.Context(), `SELECT object_cache, xmlrpc FROM wordpress_sites WHERE site_id = $1`, x["site"]).Scan(
			&o,
			&r,
		); err != nil || o != objects || r != xmlrpc {
			t.Errorf("the object cache is %v and XML-RPC %v, %v", o, r, err)
		}
	}
	a := w.must(503, "PATCH", path, key, m{"objectCache": true, "xmlrpc": true})
	if a["code"] != "no_object_cache" || !strings.Contains(a["details"].(string), why) {
		t.Errorf("the refusal is %v", a)
	}
	is(false, false)
	w.must(400, "PATCH", path, key, m{"objectCache": "yes"})
	w.must(200, "PATCH", path, key, m{"objectCache": false, "xmlrpc": true})
	is(false, true)
	why = ""
	w.must(200, "PATCH", path, key, m{"objectCache": true})
	is(true, true)
	why = "Redis has been removed"
	w.must(200, "PATCH", path, key, m{"objectCache": true, "xmlrpc": false}) // it is on already
	is(true, false)
	w.must(200, "PATCH", path, key, m{"objectCache": false})
	is(false, false)
}

// A WordPress PATCH with an unsupported change is refused as a whole. One without a change purges nothing.
func TestWordPressPatch(t *testing.T) {
	t.Parallel()
	sealer, err := seal.Load(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, func(c *api.Config) {
		c.WordPress = wordpress.New(wordpress.Config{DB: c.DB, Sites: c.Sites, Seal: sealer, Host: noRedis{new(string)}})
	})
	_, key := w.user("ada@example.test", account.SitesRead, account.SitesWrite)
	x := things{"site": w.site(key, "blog")}
	wordpressed(w, key, x)
	path := "/sites/" + x["site"] + "/wordpress"
	for code, bad := range map[string]m{
		"field_not_changeable": {"version": "6.9", "xmlrpc": true},
		"invalid_debug":        {"debug": nil, "xmlrpc": true},
		"invalid_wordpress":    {"php": m{"memoryMiB": nil}, "xmlrpc": true},
		"invalid_php":          {"php": nil, "xmlrpc": true},
	} {
		if a := w.must(400, "PATCH", path, key, bad); a["code"] != code {
			t.Errorf("%v: %v, want %s", bad, a, code)
		}
	}
	purged := func(want bool) {
		t.Helper()
		var on bool
		var at int64
		if err := w.db.QueryRow(t.Context(), `SELECT xmlrpc, purged_at FROM wordpress_sites WHERE site_id = $1`, x["site"]).Scan(
			&on,
			&at,
		); err != nil || on != want || at > 0 != want {
			t.Errorf("XML-RPC is %v, pages were purged at %d, %v", on, at, err)
		}
	}
	purged(false)
	w.must(200, "PATCH", path, key, m{"xmlrpc": true})
	purged(true)
	if err := w.db.Admin(t.Context(), `UPDATE wordpress_sites SET xmlrpc = FALSE, purged_at = 0`); err != nil {
		t.Fatal(err)
	}
	w.must(200, "PATCH", path, key, m{"xmlrpc": false})
	w.must(200, "PATCH", path, key, m{})
	purged(false)
}

// noRedis is a WordPress host without Redis, for the reason in why.
type noRedis struct{ why *string }

func (noRedis) FetchStorage(context.Context, id.Site) (io.Closer, error) {
	return io.NopCloser(nil), nil
}

func (noRedis) KeepStorage(context.Context, id.Site) error { return nil }

func (noRedis) MakeStorage(context.Context, id.Site, string) (string, error) { return "", nil }

func (noRedis) StorageFolders(id.Site) (map[string]string, error)   { return nil, nil }
func (noRedis) StorageDir(id.Site) (string, bool)                   { return "", false }
func (noRedis) Hold(id.Site) (release func())                       { return func() {} }
func (noRedis) StorageSize(context.Context, id.Site) (int64, error) { return 0, nil }
func (noRedis) ClearRedis(id.Site) bool                             { return false }
func (h noRedis) NoRedis() string                                   { return *h.why }
