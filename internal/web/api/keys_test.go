package api_test

import (
	"testing"
	"time"

	"slipway/internal/platform/db"
)

// A key can list and delete only keys with at most its own permissions.
func TestNobodySeesOrEndsAWiderKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, all := w.user("a@example.test")
	site, other := w.site(all, "x"), w.site(all, "y")
	later := func(d time.Duration) string { return db.Now().Add(d).String() }
	some := m{
		"scopes":    []string{"keys:write", "sites:read"},
		"sites":     []string{site},
		"addresses": []string{"127.0.0.0/8"},
		"expiresAt": later(time.Hour),
	}
	with := func(changes m) m {
		out := m{"name": "k"}
		for k, v := range some {
			out[k] = v
		}
		for k, v := range changes {
			if out[k] = v; v == nil {
				delete(out, k)
			}
		}
		return out
	}
	made := w.must(201, "POST", "/keys", all, with(nil))
	narrow, own := made["key"].(string), made["id"].(string)
	wider := map[string]string{}
	for name, body := range map[string]m{
		"more scopes":   with(m{"scopes": []string{"keys:write", "sites:read", "env:read"}}),
		"every scope":   with(m{"scopes": []string{"*"}}),
		"all sites":     with(m{"sites": nil}),
		"another site":  with(m{"sites": []string{site, other}}),
		"any address":   with(m{"addresses": nil}),
		"wider range":   with(m{"addresses": []string{"0.0.0.0/0"}}),
		"no expiry":     with(m{"expiresAt": nil}),
		"later expiry":  with(m{"expiresAt": later(2 * time.Hour)}),
		"nothing alike": {"name": "k", "scopes": []string{"webhooks:read"}},
	} {
		wider[name] = w.must(201, "POST", "/keys", all, body)["id"].(string)
	}
	equal := w.must(201, "POST", "/keys", all, with(m{"scopes": []string{"sites:read"}}))["id"].(string)
	seen := map[string]bool{}
	for _, k := range w.must(200, "GET", "/keys", narrow, nil)["data"].([]any) {
		seen[k.(m)["id"].(string)] = true
	}
	if !seen[own] || !seen[equal] || len(seen) != 2 {
		t.Errorf("it sees %v, want itself %s and its equal %s", seen, own, equal)
	}
	for name, id := range wider {
		if a := w.api("DELETE", "/keys/"+id, narrow, nil); a.status != 404 {
			t.Errorf("%s: %s", name, a)
		}
	}
	if n := len(w.must(200, "GET", "/keys", all, nil)["data"].([]any)); n != len(wider)+3 {
		t.Errorf("the widest key sees %d keys", n)
	}
	w.must(200, "DELETE", "/keys/"+equal, narrow, nil)
	w.must(200, "DELETE", "/keys/"+own, narrow, nil) // a key may delete itself
	if a := w.api("GET", "/keys", narrow, nil); a.status != 401 {
		t.Error(a)
	}
}

// A key can be restricted only to existing sites of the caller.
func TestKeysNameSitesOfTheirOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, anna := w.user("a@example.test")
	_, bert := w.user("b@example.test")
	own, foreign := w.site(anna, "x"), w.site(bert, "y")
	for name, sites := range map[string][]string{
		"another user's": {foreign},
		"one of two":     {own, foreign},
		"none at all":    {"site_2al2dyvvrw223zudnge6wjilyk"},
	} {
		a := w.api("POST", "/keys", anna, m{"name": "k", "scopes": []string{"sites:read"}, "sites": sites})
		if a.status != 400 || a.json(t)["code"] != "invalid_sites" || a.json(t)["received"] != sites[len(sites)-1] {
			t.Errorf("%s: %s", name, a)
		}
	}
	if n := len(w.must(200, "GET", "/keys", anna, nil)["data"].([]any)); n != 1 {
		t.Errorf("%d keys, want the one that asked", n)
	}
}
