package api_test

import (
	"context"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"slipway/internal/platform/seal"
	"slipway/internal/tenant/sso"
	"slipway/internal/web/api"
)

// acmeDNS has one TXT record, at the place where acme.test's belongs.
type acmeDNS struct {
	mu    sync.Mutex // guards value
	value string
}

func (a *acmeDNS) set(value string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.value = value
}

func (a *acmeDNS) TXT(_ context.Context, name string) ([]string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if name != "_slipway-sso.acme.test" {
		return nil, nil
	}
	return []string{a.value}, nil
}

// An owner adds a provider and a domain, which is verified once its record is there. The client secret is never shown, and
// admins see what owners alone change.
func TestTeamProviders(t *testing.T) {
	t.Parallel()
	key, err := seal.Load(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	dns := &acmeDNS{}
	w := newWorld(t, func(c *api.Config) {
		c.SSO = sso.New(sso.Config{
			DB: c.DB, Accounts: c.Accounts, Seal: key, Base: c.BaseURL, Members: c.Teams,
			Records: dns,
		})
	})
	_, ada := w.user("ada@example.test")
	id, owner := w.teamOf(ada, "Acme")
	at := "/teams/" + id + "/sso"
	_, other := w.user("grace@example.test")
	w.join(owner, id, "grace@example.test", other, m{"role": "admin"})
	admin := w.must(201, "POST", "/keys", other, m{"name": "k", "scopes": []string{"team:write"}, "teamId": id})["key"].(string)

	p := w.must(201, "POST", at, owner, m{"kind": "oidc", "issuer": "https://login.acme.test", "clientId": "c", "clientSecret": "very-secret", "joinRole": "viewer"})
	if p["joinRole"] != "viewer" || p["redirectUri"] != "http://slipway.test/sign-in/sso/"+p["id"].(string)+"/callback" {
		t.Errorf("provider %v", p)
	}
	at += "/" + p["id"].(string)
	d := w.must(201, "POST", at+"/domains", owner, m{"domain": "Acme.test"})
	dom := at + "/domains/" + d["id"].(string)
	if d = w.must(200, "POST", dom+"/verify", owner, nil); d["status"] != "pending" || d["problem"] == nil {
		t.Errorf("without a record: %v", d)
	}
	dns.set(d["value"].(string))
	if d = w.must(200, "POST", dom+"/verify", owner, nil); d["status"] != "verified" || d["problem"] != nil {
		t.Errorf("with the record: %v", d)
	}
	if p = w.must(200, "PATCH", at, owner, m{"joinRole": nil}); p["joinRole"] != nil || len(p["domains"].([]any)) != 1 {
		t.Errorf("changed: %v", p)
	}
	for name, want := range map[string]struct {
		method, path string
		body         any
		status       int
		code         string
	}{
		"issuer":        {"PATCH", at, m{"issuer": "https://evil.test"}, 400, "field_not_changeable"},
		"no name":       {"PATCH", at, m{"name": nil}, 400, "invalid_name"},
		"public domain": {"POST", at + "/domains", m{"domain": "gmail.com"}, 400, "invalid_domain"},
		"twice":         {"POST", at + "/domains", m{"domain": "acme.test"}, 409, "domain_exists"},
		"github":        {"POST", "/teams/" + id + "/sso", m{"kind": "github", "clientId": "c", "clientSecret": "s"}, 400, ""},
		"another team":  {"GET", "/teams/team_x/sso", nil, 404, ""},
	} {
		if a := w.api(want.method, want.path, owner, want.body); a.status != want.status || !strings.Contains(a.body, want.code) {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	list := w.api("GET", "/teams/"+id+"/sso", admin, nil)
	if list.status != 200 || !strings.Contains(list.body, "acme.test") || strings.Contains(list.body, "very-secret") {
		t.Errorf("the admin's list: %d %s", list.status, list.body)
	}
	if a := w.api("DELETE", at, admin, nil); a.status != 403 || !strings.Contains(a.body, "role_required") {
		t.Errorf("an admin deletes: %d %s", a.status, a.body)
	}
	w.must(200, "DELETE", dom, owner, nil)
	w.must(200, "DELETE", at, owner, nil)
	if a := w.api("GET", "/teams/"+id+"/sso", owner, nil); strings.Contains(a.body, "sso_") {
		t.Errorf("still there: %s", a.body)
	}
}
