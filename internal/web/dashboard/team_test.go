package dashboard

import (
	"strings"
	"testing"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/team"
)

// Owners and admins of a team see its sites, by the path or by ?team=; other members are told to use the API, and those who
// don't belong to it find nothing. A removed member's open page ends.
func TestTeamPages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ada := w.user("ada@example.test", false)
	users := map[string]account.User{}
	for _, name := range []string{"admin", "developer", "stranger"} {
		users[name] = w.user(name+"@example.test", false)
	}
	ctx := t.Context()
	var acme team.Team
	var shop site.Site
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
		shop, err = w.dash.Sites.CreateTx(ctx, tx, acme.Owner, site.NewSite{Name: "Team shop", Type: "static", Repository: "git.test/acme/site"})
		return err
	})
	for _, name := range []string{"admin", "developer"} {
		write(func(tx *db.Tx) error {
			_, token, err := w.dash.Teams.InviteTx(ctx, tx, owner(tx), team.NewInvitation{Email: name + "@example.test", Role: account.Role(name)})
			if err != nil {
				return err
			}
			_, _, err = w.dash.Teams.AcceptTx(ctx, tx, users[name], token)
			return err
		})
	}
	page := "/sites/" + string(shop.ID)
	for name, want := range map[string]int{"ada": 200, "admin": 200, "developer": 403, "stranger": 404} {
		if p := w.as(name + "@example.test").get(page); p.status != want {
			t.Errorf("%s: %s, want %d", name, p, want)
		}
	}
	admin := w.as("admin@example.test")
	if p := admin.get("/?team=acme"); p.status != 200 || !strings.Contains(p.body, "Team shop") {
		t.Errorf("the team's sites: %s", p)
	}
	if p := admin.get("/"); p.status != 200 || strings.Contains(p.body, "Team shop") {
		t.Errorf("their own sites: %s", p)
	}
	if p := w.as("stranger@example.test").get("/?team=acme"); strings.Contains(p.body, "Team shop") {
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
