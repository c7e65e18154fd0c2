package dashboard

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
)

var invitationLink = regexp.MustCompile(`/invitations/[a-z0-9]{30,}`)

// member returns a user's current membership in a team.
func (w *world) member(team string, user account.User) (m account.Membership) {
	w.t.Helper()
	t, err := w.dash.Teams.Named(w.t.Context(), w.db, team)
	must(w.t, err)
	m, err = account.MembershipOf(w.t.Context(), w.db, user.ID, t.Owner)
	must(w.t, err)
	return m
}

// A user without teams sees only one link about teams. A team's pages invite, change and remove members; nobody can act
// above their role, the last owner can't be removed, and everything is in the audit log.
func TestTeamMembers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.user("ada@example.test", false)
	grace, linus := w.user("grace@example.test", false), w.user("linus@example.test", false)
	ada := w.as("ada@example.test")
	if p := ada.get("/"); strings.Contains(p.body, "Personal account") || strings.Count(p.body, "eam") != 3 { // the link in the account menu
		t.Errorf("a person alone notices teams: %d mentions", strings.Count(p.body, "eam"))
	}
	if p := ada.post("/teams/new", "name", " "); p.status != 422 || !p.has("wrong-name") {
		t.Errorf("a team without a name: %s", p)
	}
	ada.post("/teams/new", "name", "Acme").to(t, "/teams/acme/members")
	if p := ada.post("/teams/new", "name", "Acme two", "slug", "acme"); p.status != 409 || !p.has("wrong-slug") {
		t.Errorf("a slug that is taken: %s", p)
	}
	ada.get("/").want(t, 200, "Personal account", `href="/?team=acme"`)
	var shop site.Site
	must(t, w.db.Write(t.Context(), func(tx *db.Tx) (err error) {
		acme, err := w.dash.Teams.Named(t.Context(), tx, "acme")
		if err == nil {
			shop, err = w.dash.Sites.CreateTx(t.Context(), tx, acme.Owner, site.NewSite{Name: "Shop", Type: "static", Repository: "git.test/acme/shop"})
		}
		return err
	}))

	// Without email, the invitation's link is shown once.
	join := func(by, who *browser, pairs ...string) {
		t.Helper()
		link := invitationLink.FindString(by.post("/teams/acme/invite", pairs...).want(t, 200, "shown only once").body)
		who.get(link).want(t, 200, "Accept invitation")
		if p := who.post(link); p.status != 303 {
			t.Fatalf("accept the invitation: %s", p)
		}
	}
	inGrace, inLinus := w.as("grace@example.test"), w.as("linus@example.test")
	join(ada, inGrace, "email", "Grace@example.test", "role", "admin")
	join(inGrace, inLinus, "email", "linus@example.test", "role", "guest", "sites", string(shop.ID), "site_role", "contributor")
	if m := w.member("acme", linus); m.Role != account.RoleGuest || m.Sites[shop.ID] != account.RoleContributor {
		t.Errorf("the guest is %+v", m)
	}
	for what, pairs := range map[string][]string{
		"no role":                {"email", "x@example.test"},
		"a guest without a site": {"email", "x@example.test", "role", "guest"},
		"no address":             {"email", "x", "role", "viewer"},
	} {
		if p := ada.post("/teams/acme/invite", pairs...); p.status != 422 || !strings.Contains(p.body, `data-test="wrong-`) {
			t.Errorf("an invitation with %s: %s", what, p)
		}
	}
	if p := inGrace.post("/teams/acme/invite", "email", "x@example.test", "role", "owner"); p.status != 403 {
		t.Errorf("an admin invites an owner: %s", p)
	}
	if p := inGrace.get("/teams/acme/invite"); !strings.Contains(p.body, "Only owners give this role.") {
		t.Error("the form doesn't say which roles are the owners'")
	}

	// The inviter is told that the invited address has no account.
	ada.post("/teams/acme/invite", "email", "y@example.test", "role", "viewer").want(t, 200, "ask an operator to create it")

	// Resending an invitation invalidates the first link, and revoking it the second.
	first := invitationLink.FindString(ada.post("/teams/acme/invite", "email", "x@example.test", "role", "viewer").body)
	list := ada.get("/teams/acme/members").want(t, 200, "x@example.test").body
	at := regexp.MustCompile(`/teams/acme/invitations/inv_[a-z0-9]+`).FindString(list)
	second := invitationLink.FindString(ada.post(at+"/resend").want(t, 200).body)
	if first == second || w.browser().get(first).status != 404 || w.browser().get(second).status != 200 {
		t.Errorf("sent again: %s, then %s", first, second)
	}
	ada.post(at+"/revoke").to(t, "/teams/acme/members")
	if p := w.browser().get(second); p.status != 404 {
		t.Errorf("a revoked invitation: %s", p)
	}

	page := "/teams/acme/members/" + string(linus.ID)
	ada.get(page).want(t, 200, "Shop", "Contributor")
	ada.post(page+"/role", "role", "viewer").to(t, "/teams/acme/members")
	ada.post(page+"/sites", "site", string(shop.ID), "site_role", "manager").to(t, page)
	if m := w.member("acme", linus); m.Role != account.RoleViewer || m.Sites[shop.ID] != account.RoleManager {
		t.Errorf("after the changes: %+v", m)
	}
	if p := ada.post(page+"/sites", "site", "site_none", "site_role", "manager"); p.status != 404 && p.status != 422 {
		t.Errorf("a role on an unknown site: %s", p)
	}
	ada.post(page+"/sites/remove", "site", string(shop.ID)).to(t, page)
	own := "/teams/acme/members/" + string(w.users["ada@example.test"].ID)
	if p := inGrace.post(own+"/role", "role", "viewer"); p.status != 403 {
		t.Errorf("an admin demotes an owner: %s", p)
	}
	if p := ada.post(own+"/role", "role", "admin"); p.status != 409 {
		t.Errorf("the last owner steps down: %s", p)
	}
	if p := ada.post("/teams/acme/leave"); p.status != 409 {
		t.Errorf("the last owner leaves: %s", p)
	}
	if p := inLinus.post(page+"/role", "role", "admin"); p.status != 403 {
		t.Errorf("a viewer makes themselves an admin: %s", p)
	}
	if p := inLinus.get("/teams/acme/members"); p.status != 200 || strings.Contains(p.body, "Invite member") {
		t.Errorf("a viewer's list: %s", p)
	}
	for _, path := range []string{"/teams/acme/invite", page, "/teams/acme/audit"} {
		if p := inLinus.get(path); p.status != 403 {
			t.Errorf("a viewer opens %s: %s", path, p)
		}
	}

	// An admin removes a member and then leaves.
	inGrace.post(page+"/remove").to(t, "/teams/acme/members")
	if p := inLinus.get("/sites/" + string(shop.ID)); p.status != 404 {
		t.Errorf("a removed member: %s", p)
	}
	inGrace.post("/teams/acme/leave").to(t, "/")
	if m := w.member("acme", grace); m.Member() {
		t.Errorf("who left is %+v", m)
	}

	log := ada.get("/teams/acme/audit/download?format=ndjson").body
	for _, want := range []string{
		"team.created", "invitation.created", "invitation.resent", "invitation.revoked", "member.added", "member.role_changed",
		"member.removed", "member.left",
	} {
		if !strings.Contains(log, want) {
			t.Errorf("the log lacks %s", want)
		}
	}
	if lines := strings.Split(strings.TrimSpace(log), "\n"); len(lines) < 10 || slices.ContainsFunc(lines, func(l string) bool {
		return !strings.HasPrefix(l, "{") || !strings.HasSuffix(l, "}")
	}) {
		t.Errorf("the export is not one object per line:\n%s", log)
	}
	ada.get("/teams/acme/audit?user="+string(grace.ID)).want(t, 200, "grace@example.test", `data-test="audit-member.removed"`)
}

// A team's name can be changed, required two-factor authentication blocks members instead of removing them, and the
// team can be deleted.
func TestTeamSettings(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ada := w.user("ada@example.test", false)
	w.user("grace@example.test", false)
	in, grace := w.as("ada@example.test"), w.as("grace@example.test")
	in.post("/teams/new", "name", "Acme").to(t, "/teams/acme/members")
	link := invitationLink.FindString(in.post("/teams/acme/invite", "email", "grace@example.test", "role", "admin").body)
	grace.post(link)
	in.post("/teams/acme/settings", "name", "Acme Works", "slug", "works").to(t, "/teams/works/settings")
	in.get("/teams/works/settings").want(t, 200, "2 members would be blocked")
	if p := in.post("/teams/works/two-factor", "to", "on"); p.status != 409 {
		t.Errorf("required by an owner without it: %s", p)
	}
	must(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), `INSERT INTO passkeys (id, user_id, credential, record, name, created_at, used_at) VALUES ('psk_1', $1, 'x', '{}', 'x', 1, 0)`, ada.ID)
		return err
	}))
	if p := grace.post("/teams/works/two-factor", "to", "on"); p.status != 403 {
		t.Errorf("required by an admin: %s", p)
	}
	in.post("/teams/works/two-factor", "to", "on").to(t, "/step-up") // she signed in without it
	must(t, w.db.Admin(t.Context(), `UPDATE sessions SET method = 'passkey' WHERE user_id = '`+string(ada.ID)+`'`))
	in.post("/teams/works/two-factor", "to", "on").to(t, "/teams/works/settings")
	if p := grace.get("/?team=works"); p.status != 403 || !strings.Contains(p.body, "two-factor") {
		t.Errorf("a member without it: %s", p)
	}
	in.get("/teams/works/members").want(t, 200, "Blocked: no 2FA")
	in.post("/teams/works/two-factor", "to", "off").to(t, "/teams/works/settings")

	in.get("/account/keys/new?team=works").want(t, 200, "Service key")
	in.post("/account/keys/new?team=works", "name", "CI", "service", "1", "power", "some", "scopes", "sites:read", "reach", "all", "expires", "90d").want(t, 200, "slw_")
	in.get("/account/keys?team=works").want(t, 200, "Service key", "by ada@example.test")
	if p := in.get("/account/keys"); strings.Contains(p.body, "Service key") {
		t.Error("the team's key is among the person's own")
	}

	if p := in.post("/teams/works/delete", "confirm", "acme"); p.status != 422 || !p.has("problem") && !p.has("wrong-confirm") {
		t.Errorf("deleted without its slug: %s", p)
	}
	if p := grace.post("/teams/works/delete", "confirm", "works"); p.status != 403 {
		t.Errorf("deleted by an admin: %s", p)
	}
	in.post("/teams/works/delete", "confirm", "works").to(t, "/")
	if p := in.get("/teams/works/members"); p.status != 404 {
		t.Errorf("after its end: %s", p)
	}
}
