package api_test

import (
	"slices"
	"strings"
	"testing"

	"slipway/internal/tenant/account"
	"slipway/internal/tenant/oauth"
	"slipway/internal/web/api"
)

// Every billing operation, which an installation without billing doesn't have, is tested with each role's key and app
// token, with a key that lacks the operation's scope, and without credentials. Operator operations are refused to all
// of them.
func TestBillingMatrix(t *testing.T) {
	t.Parallel()
	w := newBillingWorld(t)
	_, ada := w.user("ada@example.test")
	team, key := w.teamOf(ada, "Acme")
	shop := w.site(key, "Shop")
	var apps account.Scopes
	for _, s := range account.AllScopes {
		if !slices.Contains(oauth.NotGrantable, s) {
			apps = append(apps, s)
		}
	}
	credentials := map[string]map[string]string{"key": {}, "token": {}}
	for role, invitation := range map[string]m{
		"owner": {"role": "owner"}, "admin": {"role": "admin"}, "developer": {"role": "developer"}, "contributor": {"role": "contributor"},
		"viewer": {"role": "viewer"}, "billing": {"role": "billing"}, "guest": {"sites": []m{{"siteId": shop, "role": "developer"}}},
	} {
		email := role + "@example.test"
		u, personal := w.user(email)
		w.join(key, team, email, personal, invitation)
		set := func(role string) {
			if err := w.db.Admin(t.Context(), "UPDATE team_members SET role = '"+role+"' WHERE user_id = '"+string(u)+"'"); err != nil {
				t.Fatal(err)
			}
		}
		set("owner") // a key with all scopes, so that only the role limits it
		credentials["key"][role] = w.teamKey(personal, team)
		_, credentials["token"][role] = w.grantAs(w.acting(u, team), apps...)
		was, _ := invitation["role"].(string)
		set(was)
	}
	bob, _ := w.user("bob@example.test")
	fill := strings.NewReplacer("{id}", "inv_x", "{invoice}", "inv_x", "{name}", "none", "{plan}", "none", "{coupon}", "NONE", "{owner}", "own_x", "{currency}", "EUR")
	tenants, operators := 0, 0
	for _, r := range api.New(w.c).Routes() {
		if r.Tag != "Billing" || r.Open || r.Hook {
			continue
		}
		path := fill.Replace(r.Path)
		if r.Method != "GET" && !strings.Contains(r.Path, "{") {
			path += "?page=%FF" // invalid, which is detected after the authorization
		}
		ask := func(key string) answer { return w.api(r.Method, path, key, nil) }
		if a := ask(""); a.status != 401 && !(r.Operator && a.status == 404) {
			t.Errorf("without credentials, %s %s: %s", r.Method, r.Path, a)
		}
		if r.Operator {
			operators++
		} else {
			tenants++
			var others account.Scopes
			for _, s := range account.AllScopes {
				if s != account.All && !(account.Scopes{s}).Include(r.Scope) {
					others = append(others, s)
				}
			}
			if a := ask(w.keyAs(w.caller(bob), account.NewKey{Name: "others", Scopes: others})); a.status != 403 || !strings.Contains(a.body, string(r.Scope)) {
				t.Errorf("without the scope, %s %s (%s): %s", r.Method, r.Path, r.Scope, a)
			}
		}
		for credential, roles := range credentials {
			for role, secret := range roles {
				a := ask(secret)
				if r.Operator {
					if a.status != 403 && a.status != 404 {
						t.Errorf("%s with a %s, %s %s: %s", role, credential, r.Method, r.Path, a)
					}
				} else if want := admitted(r, role, credential == "token"); (a.status != 403) != want || a.status == 401 {
					t.Errorf("%s with a %s, %s %s (%s): %s, let in: want %t", role, credential, r.Method, r.Path, r.Scope, a, want)
				}
			}
		}
	}
	if tenants < 15 || operators < 10 {
		t.Errorf("%d operations of tenants, %d of operators", tenants, operators)
	}
}
