package api_test

import (
	"context"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"slipway/internal/tenant/account"

	"slipway/internal/platform/seal"
	"slipway/internal/tenant/sso"
	"slipway/internal/web/api"
)

// acmeDNS serves a TXT record for acme.test's verification.
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

// An owner adds a provider and a domain, which is verified once its record exists. The client secret is never shown.
// Admins can read what only owners can change.
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

// A user sees the linked accounts and the providers to link, with the URL to start, and can unlink all but the last
// sign-in method.
func TestIdentities(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	u, key := w.user("ada@example.test")
	eve, _ := w.user("eve@example.test")
	hers := w.identity(eve, "")
	team, teamKey := w.teamOf(key, "Acme")
	w.must(201, "POST", "/teams/"+team+"/sso", teamKey, m{"kind": "oidc", "name": "Okta", "issuer": "https://acme.okta.com", "clientId": "c", "clientSecret": "s"})
	id := w.identity(u, "")
	providers := w.must(200, "GET", "/account/providers", key, nil)["data"].([]any)
	if len(providers) != 2 {
		t.Fatalf("providers: %v", providers)
	}
	google, okta := providers[0].(m), providers[1].(m)
	if google["linked"] != true || google["teamId"] != nil || google["linkUrl"] != "http://slipway.test/account/security?link=google" {
		t.Errorf("the installation's provider: %v", google)
	}
	if okta["linked"] != false || okta["teamId"] != team || okta["name"] != "Okta" {
		t.Errorf("the team's provider: %v", okta)
	}
	one := func() m { return w.must(200, "GET", "/account/identities", key, nil)["data"].([]any)[0].(m) }
	if got := one(); got["id"] != id || got["provider"] != "Google" || got["email"] != "elsewhere@example.test" || got["lastUsedAt"] != nil {
		t.Errorf("linked: %v", got)
	}
	// Team keys, apps and narrower keys can't read or change a user's sign-in methods.
	_, app := w.grant(u, account.AccountRead)
	for _, k := range []string{teamKey, app, w.key(u, account.NewKey{Scopes: account.Scopes{account.AccountRead, account.KeysWrite}})} {
		for _, x := range [][2]string{{"GET", "/account/identities"}, {"GET", "/account/providers"}, {"DELETE", "/account/identities/" + id}} {
			if a := w.api(x[0], x[1], k, nil); a.status != 403 {
				t.Errorf("%s %s with another key: %s", x[0], x[1], a)
			}
		}
	}
	if a := w.api("DELETE", "/account/identities/"+hers, key, nil); a.status != 404 {
		t.Errorf("another user's: %s", a)
	}
	if err := w.db.Admin(t.Context(), "UPDATE users SET password = ''"); err != nil {
		t.Fatal(err)
	}
	if a := w.api("DELETE", "/account/identities/"+id, key, nil); a.status != 409 || !strings.Contains(a.body, "last_way_in") {
		t.Errorf("the last way to sign in: %s", a)
	}
	other := w.identity(u, "") // also gives the user a password again
	w.must(200, "DELETE", "/account/identities/"+id, key, nil)
	if got := one(); got["id"] != other {
		t.Errorf("left: %v", got)
	}
	if err := w.db.Admin(t.Context(), "DELETE FROM sso_providers WHERE id = 'google'"); err != nil {
		t.Fatal(err)
	}
	if got := one(); got["providerId"] != nil || got["provider"] != nil || got["issuer"] != "https://accounts.google.com" {
		t.Errorf("of a provider that is gone: %v", got)
	}
}
