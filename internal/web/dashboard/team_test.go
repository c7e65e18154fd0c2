package dashboard

import (
	"slices"
	"strings"
	"testing"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/team"
)

// Members of a team see its sites, by the path or by ?team=, and do there what their role includes; those who don't belong
// to it find nothing. A removed member's open page ends.
func TestTeamPages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ada := w.user("ada@example.test", false)
	users := map[string]account.User{}
	for _, name := range []string{"admin", "developer", "contributor", "viewer", "billing", "guest", "stranger"} {
		users[name] = w.user(name+"@example.test", false)
	}
	ctx := t.Context()
	var acme team.Team
	var shop, other site.Site
	write := func(do func(tx *db.Tx) error) {
		t.Helper()
		if err := w.db.Write(ctx, do); err != nil {
			t.Fatal(err)
		}
	}
	owner := func(tx *db.Tx) account.Caller {
		t.Helper()
		c, err := w.dash.Accounts.CallerFor(ctx, tx, ada, acme.Owner)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	write(func(tx *db.Tx) (err error) {
		if acme, err = w.dash.Teams.CreateTx(ctx, tx, ada, team.NewTeam{Name: "Acme"}); err != nil {
			return err
		}
		if other, err = w.dash.Sites.CreateTx(ctx, tx, acme.Owner, site.NewSite{
			Name: "Back office", Type: "static", Repository: "git.test/acme/office",
		}); err != nil {
			return err
		}
		shop, err = w.dash.Sites.CreateTx(ctx, tx, acme.Owner, site.NewSite{Name: "Team shop", Type: "static", Repository: "git.test/acme/site"})
		return err
	})
	for _, name := range []string{"admin", "developer", "contributor", "viewer", "billing", "guest"} {
		n := team.NewInvitation{Email: name + "@example.test", Role: account.Role(name)}
		if name == "guest" {
			n.Role, n.Sites = account.RoleGuest, map[string]account.Role{string(shop.ID): account.RoleDeveloper}
		}
		write(func(tx *db.Tx) error {
			_, token, err := w.dash.Teams.InviteTx(ctx, tx, owner(tx), n)
			if err != nil {
				return err
			}
			_, _, err = w.dash.Teams.AcceptTx(ctx, tx, users[name], token)
			return err
		})
	}
	in := map[string]*browser{"ada": w.as("ada@example.test")}
	for name := range users {
		in[name] = w.as(name + "@example.test")
	}
	page := "/sites/" + string(shop.ID)
	for path, want := range map[string]string{ // by who may open it
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
	// What a role doesn't include is refused, and the page doesn't offer it.
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
	// Links and redirects keep the team.
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
	write(func(tx *db.Tx) error {
		_, _, err := w.dash.Teams.RemoveTx(ctx, tx, owner(tx), users["admin"].ID)
		return err
	})
	if p := admin.get(page); p.status != 404 {
		t.Errorf("a removed admin: %s", p)
	}
}

// No page of a site is left without the scope that it takes, or members would not find it.
func TestTeamRoutes(t *testing.T) {
	t.Parallel()
	for _, rt := range newWorld(t).dash.routes {
		if strings.HasPrefix(rt.Path, "/sites/{id}") && rt.Scope() == "" {
			t.Errorf("%s %s takes no scope", rt.Method, rt.Path)
		}
	}
}
