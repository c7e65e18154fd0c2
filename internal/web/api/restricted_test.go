package api_test

import (
	"slices"
	"strings"
	"testing"

	"slipway/internal/platform/id"
	"slipway/internal/tenant/account"
	"slipway/internal/web/api"
)

// restrictedMay lists the operations without a site in their path that a key restricted to some sites may call, and
// why.
var restrictedMay = map[string]string{
	"listSites":      "lists the key's sites alone",
	"listDomains":    "lists domains of the key's sites alone",
	"listAllBackups": "lists backups of the key's sites alone",
	"getUsage":       "takes a siteId",
	"checkDomain":    "reads nothing of the account",
	"getAccount":     "says what the key is",
	"listKeys":       "lists keys that can do no more than this one",
	"createKey":      "creates keys that can do no more than this one",
	"revokeKey":      "revokes keys that can do no more than this one",
}

// An operator's key restricted to one site is refused by every operation that isn't about a site, with and without
// billing, including those of operators, users and OAuth apps. The MCP server uses the same API.
func TestRestrictedKeysReachSitesAlone(t *testing.T) {
	t.Parallel()
	w := newBillingWorld(t)
	u, whole := w.operator("root@example.test")
	site := w.site(whole, "shop")
	key := w.key(u, account.NewKey{Sites: []id.Site{id.Site(site)}})
	c := w.caller(u)
	c.Sites = []id.Site{id.Site(site)}
	narrowed, err := w.caller(u).Narrowed(account.Narrowing{Sites: []id.Site{id.Site(site)}})
	if err != nil || narrowed.Admin {
		t.Errorf("an operator narrowed to one site is still one: %t, %v", narrowed.Admin, err)
	}
	refused, allowed := 0, map[string]bool{}
	for _, r := range api.New(w.c).Routes() {
		about := slices.ContainsFunc([]string{"/sites/{", "/deployments/{", "/hooks/{", "/domains/{", "/databases/{", "/backups/{", "/operations/{", "/uploads/{"},
			func(of string) bool { return strings.HasPrefix(r.Path, of) })
		switch {
		case r.Open || r.Hook || about: // the matrix calls these with a key for another site
			continue
		case restrictedMay[r.ID] != "":
			allowed[r.ID] = true
			continue
		}
		if r.ID == "listGrants" { // apps may list their own grants: the handler refuses
			if a := w.api("GET", r.Path, key, nil); a.status != 403 || !strings.Contains(a.body, "site_not_allowed") {
				t.Errorf("%s: %s", r.ID, a)
			}
			continue
		}
		refused++
		if _, err := r.Permit(c); err == nil {
			t.Errorf("%s %s (%s) lets in a key that is restricted to one site", r.Method, r.Path, r.ID)
		}
		if r.Method != "GET" {
			continue
		}
		if a := w.api("GET", strings.NewReplacer("{", "", "}", "").Replace(r.Path), key, nil); a.status != 403 {
			t.Errorf("%s: %s", r.ID, a)
		}
	}
	if refused < 80 {
		t.Errorf("only %d operations are for unrestricted keys", refused)
	}
	for id := range restrictedMay {
		if !allowed[id] {
			t.Errorf("%s is no operation", id)
		}
	}
	if a := w.api("GET", "/usage", key, nil); a.status != 403 {
		t.Errorf("usage of all sites: %s", a)
	}
	if a := w.api("GET", "/admin/owners", whole, nil); a.status != 200 {
		t.Errorf("the operator's whole key: %s", a)
	}
}
