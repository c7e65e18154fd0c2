package api_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"slipway/internal/platform/id"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/oauth"
	"slipway/internal/tenant/operation"
	"slipway/internal/web/api"
)

// mayByRole lists the permissions of each role as docs/teams.md describes them. The guest here is a developer on one
// site.
var mayByRole = func() map[string]string {
	read := "sites:read deployments:read domains:read backups:read "
	write := "previews:write deployments:write env:read sites:write env:write domains:write backups:write "
	return map[string]string{
		"owner":       "* " + read + write + "webhooks:read webhooks:write account:read team:read team:write keys:write apps:write audit:read billing:read billing:write ",
		"admin":       read + write + "webhooks:read webhooks:write account:read team:read team:write keys:write apps:write audit:read ",
		"developer":   read + write + "webhooks:read webhooks:write account:read team:read keys:write ",
		"contributor": read + "previews:write webhooks:read account:read team:read ",
		"viewer":      read + "webhooks:read account:read team:read ",
		"billing":     "account:read team:read billing:read billing:write ",
		"guest":       read + write,
	}
}()

// admitted reports whether a role may call a route, with a key or an app's token.
func admitted(r api.Route, role string, app bool) bool {
	least := map[account.Role]string{account.RoleManager: "owner admin ", account.RoleAdmin: "owner admin ", account.RoleOwner: "owner ", account.RoleDeveloper: "owner admin developer guest "}
	switch {
	case r.Person, app && r.NoApps, app && slices.Contains(oauth.NotGrantable, r.Scope), r.Wide && role == "guest":
		return false
	case r.Role != "" && !strings.Contains(least[r.Role], role+" "):
		return false
	}
	return strings.Contains(mayByRole[role], string(r.Scope)+" ")
}

// ofSites maps the first parts of paths that name a resource of a site to the placeholder for {id}.
var ofSites = map[string]string{
	"sites": "site", "deployments": "deployment", "domains": "domain", "hooks": "hook", "databases": "database", "backups": "backup",
	"operations": "operation", "uploads": "upload",
}

// parts creates the resources of a site that routes can name.
func (w *world) parts(key, site, name string) things {
	w.t.Helper()
	x := things{"site": site}
	text := func(v m, name string) string { return v[name].(string) }
	x["deployment"] = text(w.must(200, "POST", "/sites/"+site+"/deploy", key, nil), "deploymentId")
	x["hook"] = text(w.must(201, "POST", "/sites/"+site+"/hooks", key, m{"name": "ci"}), "id")
	x["database"] = text(w.must(201, "POST", "/sites/"+site+"/databases", key, m{"engine": "mariadb"}), "id")
	x["domain"] = text(w.must(201, "POST", "/sites/"+site+"/domains", key, m{"name": name + ".example-4711.com"}), "id")
	x["backup"] = text(w.must(201, "POST", "/sites/"+site+"/backups", key, nil), "id")
	w.must(201, "POST", "/sites/"+site+"/env", key, m{"key": "A", "value": "a"})
	uploading(w, key, x)
	if err := w.db.Write(w.t.Context(), func(tx *db.Tx) error {
		var owner account.OwnerID
		if err := tx.QueryRow(w.t.Context(), `SELECT owner_id FROM sites WHERE id = $1`, site).Scan(&owner); err != nil {
			return err
		}
		o, err := w.c.Operations.OpenTx(w.t.Context(), tx, owner, operation.NewOperation{Kind: "test", Site: id.Site(site)})
		x["operation"] = string(o.ID)
		return err
	}); err != nil {
		w.t.Fatal(err)
	}
	return x
}

// Every operation is called with every role's key and app token: on the team's site where the guest has a role, on the
// team's other site, and on another team's site. The expected result depends only on the operation's scope and role, so
// new operations are covered. TestRolesBySession in the dashboard does the same for sessions.
func TestRoleMatrix(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, ada := w.user("ada@example.test")
	id, key := w.teamOf(ada, "Acme")
	_, eve := w.user("eve@example.test")
	sites := map[string]things{}
	shop, other := w.site(key, "Shop"), w.site(key, "Other")
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
		w.join(key, id, email, personal, invitation)
		set := func(role string) {
			if err := w.db.Admin(t.Context(), "UPDATE team_members SET role = '"+role+"' WHERE user_id = '"+string(u)+"'"); err != nil {
				t.Fatal(err)
			}
		}
		// Credentials have all scopes, so that only the role limits them.
		set("owner")
		credentials["key"][role] = w.teamKey(personal, id)
		_, credentials["token"][role] = w.grantAs(w.acting(u, id), apps...)
		was, _ := invitation["role"].(string)
		set(was)
	}
	sites["own"] = w.parts(key, shop, "shop")
	sites["other"] = w.parts(key, other, "other")
	sites["stranger's"] = w.parts(eve, w.site(eve, "Theirs"), "theirs")

	// With unknown IDs, an authorized request gets a 404 or 400 and changes nothing.
	none := strings.NewReplacer("{id}", "none_x", "{key}", "NONE", "{userId}", "usr_x", "{invitation}", "inv_x", "{number}", "1",
		"{name}", "none", "{delivery}", "dlv_x", "{deliveryId}", "dlv_x", "{identity}", "idn_x")
	tried := map[string]int{}
	before := len(w.log())
	for _, r := range api.New(w.c).Routes() {
		if r.Open || r.Hook {
			continue
		}
		thing := ofSites[strings.Split(r.Path, "/")[1]]
		for credential, roles := range credentials {
			for role, secret := range roles {
				want := admitted(r, role, credential == "token")
				path := none.Replace(r.Path)
				if r.Method != "GET" && !strings.Contains(r.Path, "{") {
					path += "?page=%FF" // invalid, which is detected after the authorization
				}
				a := w.api(r.Method, path, secret, nil)
				if got := a.status != 403; got != want || a.status == 401 {
					t.Errorf("%s with a %s, %s %s (%s): %s, let in: want %t", role, credential, r.Method, r.Path, r.Scope, a, want)
				}
				if thing == "" || !strings.Contains(r.Path, "{id}") {
					continue
				}
				for whose, x := range sites {
					on := strings.Replace(r.Path, "{id}", x[thing], 1)
					if _, query, ok := strings.Cut(matrix[r.ID].path, "?"); ok {
						on += "?" + x.fill(query)
					}
					body := matrix[r.ID].body
					if b, ok := body.(m); ok {
						filled := maps.Clone(b)
						for k, v := range filled {
							if s, ok := v.(string); ok {
								filled[k] = x.fill(s)
							}
						}
						body = filled
					}
					ask := func() answer { return w.api(r.Method, none.Replace(on), secret, body) }
					tried[whose]++
					switch {
					case whose != "stranger's" && (whose == "own" || role != "guest") && want: // authorized
						if r.Method != "GET" || strings.Count(r.Path, "{") > 1 {
							continue // would change something: TestAuthorizationMatrix covers the owner
						}
						if a := ask(); a.status == 401 || a.status == 403 || a.status == 404 {
							t.Errorf("%s with a %s, %s %s on %s site: %s", role, credential, r.Method, r.Path, whose, a)
						}
					case !want:
						if a := ask(); a.status != 403 {
							t.Errorf("%s with a %s, %s %s on %s site: %s, want 403", role, credential, r.Method, r.Path, whose, a)
						}
					default: // a guest on the other site, and every role on another team's site
						a := ask()
						if want := map[string]int{"other": 403, "stranger's": 404}[whose]; a.status != want {
							t.Errorf("%s with a %s, %s %s on %s site: %s, want %d", role, credential, r.Method, r.Path, whose, a, want)
						}
						for name, v := range x {
							if strings.Contains(a.body, v) {
								t.Errorf("%s with a %s, %s %s: the refusal holds the %s: %s", role, credential, r.Method, r.Path, name, a)
							}
						}
					}
				}
			}
		}
	}
	if n := len(w.log()) - before; n != 0 {
		t.Errorf("refused requests left %d entries in the audit log: %s", n, fmt.Sprint(w.log()[:n]))
	}
	t.Logf("requests: %v", tried)
}
