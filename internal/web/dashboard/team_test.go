package dashboard

import (
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/team"
	"slipway/internal/tenant/webhook"
)

// agency is a team with two sites, a member of each role, a guest who is a developer on one site, and a user outside
// the team, all signed in.
type agency struct {
	*world
	acme        team.Team
	shop, other site.Site // the guest has a role on shop
	users       map[string]account.User
	in          map[string]*browser // by name: ada is the owner, the others are named after their role
}

func newAgency(t *testing.T) *agency {
	t.Helper()
	w := &agency{world: newWorld(t), users: map[string]account.User{}}
	ada := w.user("ada@example.test", false)
	for _, name := range []string{"admin", "developer", "contributor", "viewer", "billing", "guest", "stranger"} {
		w.users[name] = w.user(name+"@example.test", false)
	}
	ctx := t.Context()
	must(t, w.db.Write(ctx, func(tx *db.Tx) (err error) {
		if w.acme, err = w.dash.Teams.CreateTx(ctx, tx, ada, team.NewTeam{Name: "Acme"}); err != nil {
			return err
		}
		if w.other, err = w.dash.Sites.CreateTx(ctx, tx, w.acme.Owner, site.NewSite{
			Name: "Back office", Type: "static", Repository: "git.test/acme/office",
		}); err != nil {
			return err
		}
		w.shop, err = w.dash.Sites.CreateTx(ctx, tx, w.acme.Owner, site.NewSite{Name: "Team shop", Type: "static", Repository: "git.test/acme/site"})
		return err
	}))
	for _, name := range []string{"admin", "developer", "contributor", "viewer", "billing", "guest"} {
		n := team.NewInvitation{Email: name + "@example.test", Role: account.Role(name)}
		if name == "guest" {
			n.Role, n.Sites = account.RoleGuest, map[site.ID]account.Role{w.shop.ID: account.RoleDeveloper}
		}
		must(t, w.db.Write(ctx, func(tx *db.Tx) error {
			c, err := w.dash.Accounts.CallerFor(ctx, tx, ada, w.acme.Owner)
			if err != nil {
				return err
			}
			_, token, err := w.dash.Teams.InviteTx(ctx, tx, c, n)
			if err != nil {
				return err
			}
			_, _, err = w.dash.Teams.AcceptTx(ctx, tx, w.users[name], token)
			return err
		}))
	}
	w.in = map[string]*browser{"ada": w.as("ada@example.test")}
	for name := range w.users {
		w.in[name] = w.as(name + "@example.test")
	}
	return w
}

// Members open a team's sites, by path or with ?team=, and can do what their role includes. Users outside the team get
// a 404. A removed member's open stream ends.
func TestTeamPages(t *testing.T) {
	t.Parallel()
	w := newAgency(t)
	ctx, acme, shop, other, users, in := t.Context(), w.acme, w.shop, w.other, w.users, w.in
	page := "/sites/" + string(shop.ID)
	for path, want := range map[string]string{ // value: names of those who can open it
		page:                               "ada admin developer contributor viewer guest",
		page + "/deployments":              "ada admin developer contributor viewer guest",
		page + "/domains":                  "ada admin developer contributor viewer guest",
		page + "/settings":                 "ada admin developer contributor viewer guest",
		page + "/env":                      "ada admin developer guest",
		page + "/git":                      "ada admin developer guest",
		page + "/hooks":                    "ada admin developer guest",
		page + "/terminal":                 "ada admin developer guest",
		"/sites/" + string(other.ID):       "ada admin developer contributor viewer",
		"/?team=acme":                      "ada admin developer contributor viewer guest",
		"/new?team=acme":                   "ada admin developer",
		"/deleted?team=acme":               "ada admin developer contributor viewer",
		"/webhooks?team=acme":              "ada admin developer contributor viewer",
		"/webhooks/new?team=acme":          "ada admin developer",
		"/account/security?team=acme":      "ada admin developer contributor viewer billing guest stranger", // never the team's
		"/find?q=shop&team=acme":           "ada admin developer contributor viewer guest",
		"/sites/" + string(other.ID) + "x": "",
	} {
		for _, name := range []string{"ada", "admin", "developer", "contributor", "viewer", "billing", "guest", "stranger"} {
			p := in[name].get(path)
			if may := slices.Contains(strings.Fields(want), name); may != (p.status == 200) || p.status >= 500 {
				t.Errorf("%s asks for %s: %d, want allowed: %t", name, path, p.status, may)
			}
			if name == "stranger" && p.status == 403 {
				t.Errorf("a stranger learns that %s is there", path)
			}
		}
	}
	// Actions outside a role are refused, and the page doesn't offer them.
	deploy := map[string]bool{"developer": true, "guest": true}
	for _, name := range []string{"developer", "guest", "contributor", "viewer"} {
		b := in[name]
		p := b.get(page)
		form, _, _ := strings.Cut(p.body[strings.Index(p.body, page+"/deploy\""):], "</form>")
		if got := !strings.Contains(form, "disabled"); got != deploy[name] {
			t.Errorf("%s is offered to deploy: %t in %s", name, got, form)
		}
		if got := strings.Contains(p.body, page+"/env"); got != deploy[name] {
			t.Errorf("%s is offered the environment: %t", name, got)
		}
		if p := b.post(page + "/deploy"); (p.status == 303) != deploy[name] || !deploy[name] && p.status != 403 {
			t.Errorf("%s deploys: %s", name, p)
		}
		if p := b.post(page+"/delete", "confirm", shop.Name); p.status != 403 {
			t.Errorf("%s deletes the site: %s", name, p)
		}
		if p := b.post(page+"/domains", "domain", name+".example.com"); (p.status == 303) != deploy[name] {
			t.Errorf("%s adds a domain: %s", name, p)
		}
	}
	guest := in["guest"]
	if p := guest.get("/?team=acme"); !strings.Contains(p.body, "Team shop") || strings.Contains(p.body, "Back office") {
		t.Errorf("a guest's sites: %s", p)
	}
	if p := guest.get("/find?q=o&team=acme"); strings.Contains(p.body, "Back office") {
		t.Errorf("a guest finds another site: %s", p)
	}
	// Links and redirects stay in the team.
	if p := in["ada"].get("/?team=acme"); !strings.Contains(p.body, `href="/new?team=acme"`) ||
		!strings.Contains(p.body, `name="team" value="acme"`) || !strings.Contains(p.body, `href="/webhooks?team=acme"`) {
		t.Errorf("the team's links: %s", p.body)
	}
	if p := in["ada"].post("/sites/"+string(other.ID)+"/delete", "confirm", other.Name); p.header.Get("Location") != "/?team=acme" {
		t.Errorf("after the site was deleted: %s", p)
	}
	admin := in["admin"]
	if p := admin.get("/?team=acme"); p.status != 200 || !strings.Contains(p.body, "Team shop") {
		t.Errorf("the team's sites: %s", p)
	}
	if p := admin.get("/"); p.status != 200 || strings.Contains(p.body, "Team shop") {
		t.Errorf("their own sites: %s", p)
	}
	if p := in["stranger"].get("/?team=acme"); p.status != 404 || strings.Contains(p.body, "Team shop") {
		t.Errorf("a stranger sees the team's sites: %s", p)
	}
	if p := admin.post(page + "/deploy"); p.status >= 400 {
		t.Errorf("an admin deploys the site: %s", p)
	}
	list, err := w.dash.Accounts.Audit(ctx, audit.Filter{Owner: acme.Owner, By: users["admin"].ID, Action: "deployment"})
	if err != nil || len(list) != 1 || list[0].Session == "" {
		t.Errorf("the team's log has %+v, %v", list, err)
	}
	must(t, w.db.Write(ctx, func(tx *db.Tx) error {
		c, err := w.dash.Accounts.CallerFor(ctx, tx, w.world.users["ada@example.test"], acme.Owner)
		if err == nil {
			_, _, err = w.dash.Teams.RemoveTx(ctx, tx, c, users["admin"].ID)
		}
		return err
	}))
	if p := admin.get(page); p.status != 404 {
		t.Errorf("a removed admin: %s", p)
	}
}

// Every page and form of a site is requested with each role's session: on the team's site where the guest has a role,
// on the team's other site, and on another owner's site. The expected result depends only on the route's scope and role
// in docs/teams.md, so new routes are covered. TestRoleMatrix in the API does the same for keys and tokens.
func TestRolesBySession(t *testing.T) {
	t.Parallel()
	w := newAgency(t)
	theirs := w.site(w.users["stranger"], "Theirs")
	read := "sites:read deployments:read domains:read backups:read "
	write := "previews:write deployments:write env:read sites:write env:write domains:write backups:write "
	may := map[string]string{
		"ada":       read + write + "webhooks:read webhooks:write account:read team:read team:write keys:write apps:write audit:read ",
		"developer": read + write + "webhooks:read webhooks:write account:read team:read keys:write ",
		"viewer":    read + "webhooks:read account:read team:read ",
		"billing":   "account:read team:read ",
		"guest":     read + write,
	}
	may["admin"], may["contributor"] = may["ada"], may["viewer"]+"previews:write "
	least := map[account.Role]string{
		account.RoleManager: "ada admin", account.RoleAdmin: "ada admin", account.RoleOwner: "ada",
		account.RoleDeveloper: "ada admin developer guest",
	}
	none := regexp.MustCompile(`\{[a-z]+\}`)
	logged, tried := w.logged(""), 0
	for _, rt := range w.dash.routes {
		if !strings.HasPrefix(rt.Path, "/sites/{id}") {
			continue
		}
		if rt.Scope() == "" { // otherwise members would get a 404
			t.Errorf("%s %s takes no scope", rt.Method, rt.Path)
			continue
		}
		form := map[string]url.Values{http.MethodPost: {}}[rt.Method]
		for role, scopes := range may {
			want := strings.Contains(scopes, string(rt.Scope())+" ") && (rt.Role() == "" || slices.Contains(strings.Fields(least[rt.Role()]), role))
			for _, s := range []site.Site{w.shop, w.other, theirs} {
				path := none.ReplaceAllString(strings.Replace(strings.TrimSuffix(rt.Path, "{$}"), "{id}", string(s.ID), 1), "none")
				expect := 0
				switch {
				case s.ID == theirs.ID || s.ID == w.other.ID && role == "guest":
					expect = http.StatusNotFound
				case !want:
					expect = http.StatusForbidden
				case rt.Method != http.MethodGet || strings.HasSuffix(rt.Path, "/follow") || strings.HasSuffix(rt.Path, "/connect"):
					continue // would change something, or stay open
				}
				tried++
				p := w.in[role].do(rt.Method, path, form, "Accept: text/html")
				if expect != 0 && p.status != expect || expect == 0 && (p.status == 403 || p.status >= 500) {
					t.Errorf("%s, %s %s (%s %s) of %s: %d, want %d", role, rt.Method, rt.Path, rt.Scope(), rt.Role(), s.Name, p.status, expect)
				}
			}
		}
	}
	if n := w.logged("") - logged; n != 0 {
		t.Errorf("refused requests left %d entries in the audit log", n)
	}
	t.Logf("%d requests", tried)
}

// After a removal, the page lists the secrets that the member could read and that still work, with links to rotate
// them.
func TestRemovalNamesWhatMembersKnow(t *testing.T) {
	t.Parallel()
	w := newAgency(t)
	must(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
		if _, err := w.dash.Sites.CreateHookTx(t.Context(), tx, w.acme.Owner, w.shop.ID, site.NewHook{Name: "nightly"}); err != nil {
			return err
		}
		_, err := w.dash.Webhooks.CreateTx(t.Context(), tx, w.acme.Owner, webhook.NewWebhook{
			URL: "https://receiver.example/in?key=a-secret-of-theirs", Events: []string{"site.created"},
		})
		return err
	}))
	ada := w.as("ada@example.test")
	ada.get("/?team=acme")
	remove := func(name string) reply {
		return ada.post("/teams/acme/members/" + string(w.users[name].ID) + "/remove")
	}
	p := remove("developer").want(t, 200, "rotate what developer@example.test knows", "Deploy hook nightly of Team shop",
		"/sites/"+string(w.shop.ID)+"/hooks", "Secret of the webhook at receiver.example", `href="/webhooks?team=acme"`)
	if strings.Contains(p.body, "a-secret-of-theirs") {
		t.Error("the page tells the address of the webhook")
	}
	p = remove("guest").want(t, 200, "rotate what guest@example.test knows", "Deploy hook nightly of Team shop")
	if strings.Contains(p.body, "receiver.example") {
		t.Error("a guest knows the team's webhooks")
	}
	remove("viewer").to(t, "/teams/acme/members")
}
