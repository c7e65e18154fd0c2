package api_test

import (
	"testing"

	"slipway/internal/tenant/account"
)

// A site is created with its variables or not at all, and only by callers that may set variables.
func TestSiteIsCreatedWithVariables(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	u, key := w.user("ada@example.test")
	site := func(env ...map[string]any) map[string]any {
		return map[string]any{"name": "Blog", "type": "static", "repository": "git.test/acme/site", "env": env}
	}
	narrow := w.key(u, account.NewKey{Name: "sites", Scopes: account.Scopes{account.SitesWrite, account.SitesRead}})
	if a := w.must(403, "POST", "/sites", narrow, site(map[string]any{"key": "A", "value": "1"})); a["code"] != "scope_required" {
		t.Errorf("a key without env:write: %v", a)
	}
	w.must(201, "POST", "/sites", narrow, site())
	w.must(400, "POST", "/sites", key, site(map[string]any{"key": "A", "value": "1"}, map[string]any{"key": "SLIPWAY_A", "value": "1"}))
	w.must(400, "POST", "/sites", key, site(map[string]any{"key": "no name", "value": "1"}))
	many := make([]map[string]any, 101)
	for i := range many {
		many[i] = map[string]any{"key": "A", "value": "1"}
	}
	w.must(400, "POST", "/sites", key, site(many...))
	if n := len(w.must(200, "GET", "/sites", key, nil)["data"].([]any)); n != 1 {
		t.Errorf("%d sites, want the one without variables", n)
	}
	made := w.must(201, "POST", "/sites", key, site(map[string]any{"key": "A", "value": "1", "target": []string{"build", "production"}}, map[string]any{"key": "TOKEN", "value": "x", "secret": true}))
	id := made["data"].(map[string]any)["id"].(string)
	vars := w.must(200, "GET", "/sites/"+id+"/env", key, nil)["data"].([]any)
	if len(vars) != 2 || vars[0].(map[string]any)["value"] != "1" || vars[1].(map[string]any)["value"] != nil {
		t.Errorf("variables: %v", vars)
	}
}
