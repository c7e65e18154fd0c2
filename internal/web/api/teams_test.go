package api_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
)

// teamOf creates a team owned by the holder of a personal key, and returns its ID and a team key with all scopes.
func (w *world) teamOf(key, name string) (id, teamKey string) {
	w.t.Helper()
	id = w.must(201, "POST", "/teams", key, m{"name": name})["id"].(string)
	return id, w.teamKey(key, id)
}

// teamKey creates a key for a team with these scopes, or with all if none are given.
func (w *world) teamKey(key, id string, scopes ...string) string {
	w.t.Helper()
	if len(scopes) == 0 {
		scopes = []string{"*"}
	}
	return w.must(201, "POST", "/keys", key, m{"name": "test", "scopes": scopes, "teamId": id})["key"].(string)
}

// join invites a user and accepts the invitation.
func (w *world) join(teamKey, id, email, key string, invitation m) {
	w.t.Helper()
	body := m{"email": email}
	for k, v := range invitation {
		body[k] = v
	}
	in := w.must(201, "POST", "/teams/"+id+"/invitations", teamKey, body)
	w.must(200, "POST", "/invitations/accept", key, m{"token": token(in)})
}

func token(invitation m) string {
	address := invitation["url"].(string)
	return address[strings.LastIndexByte(address, '/')+1:]
}

// widest returns the scopes that each role can give a key.
func (w *world) widest(role string) []string {
	switch role {
	case "owner":
		return []string{"*"}
	case "admin":
		return []string{
			"sites:write", "deployments:write", "domains:write", "webhooks:write", "env:write", "backups:write", "keys:write",
			"account:read", "team:write", "apps:write", "audit:read",
		}
	}
	return []string{
		"sites:write", "deployments:write", "domains:write", "webhooks:write", "env:write", "backups:write", "keys:write",
		"account:read", "team:read",
	}
}

// A team owns sites, its members act with their roles, and a removed member loses access at once.
func TestTeamEndToEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, ada := w.user("ada@example.test")
	ben, bens := w.user("ben@example.test")
	id, key := w.teamOf(ada, "Acme")
	if got := w.must(200, "GET", "/teams/acme", key, nil); got["id"] != id || got["role"] != "owner" {
		t.Errorf("the team is %v", got)
	}
	s := w.site(key, "Shop")
	if a := w.api("GET", "/sites/"+s, ada, nil); a.status != 404 {
		t.Errorf("the personal account has the team's site: %s", a)
	}
	w.join(key, id, "Ben@Example.test", bens, m{"role": "developer"})
	dev := w.teamKey(bens, id, w.widest("developer")...)
	w.must(200, "PATCH", "/sites/"+s, dev, m{"name": "Store"})
	for _, no := range [][2]string{{"DELETE", "/sites/" + s}, {"GET", "/teams/" + id + "/audit"}, {"GET", "/teams/" + id + "/invitations"}} {
		if a := w.api(no[0], no[1], dev, nil); a.status != 403 {
			t.Errorf("a developer, %s %s: %s", no[0], no[1], a)
		}
	}
	// The current role applies to each request.
	w.must(200, "PATCH", "/teams/"+id+"/members/"+string(ben), key, m{"role": "viewer"})
	if a := w.api("PATCH", "/sites/"+s, dev, m{"name": "Mine"}); a.status != 403 || !strings.Contains(a.body, "role_required") {
		t.Errorf("a viewer: %s", a)
	}
	w.must(200, "GET", "/sites/"+s, dev, nil)
	w.must(200, "DELETE", "/teams/"+id+"/members/"+string(ben), key, nil)
	if a := w.api("GET", "/sites/"+s, dev, nil); a.status != 401 {
		t.Errorf("a removed member: %s", a)
	}
	if a := w.api("POST", "/keys", bens, m{"name": "x", "scopes": []string{"sites:read"}, "teamId": id}); a.status != 404 {
		t.Errorf("a removed member makes a key: %s", a)
	}
	var did []string
	for _, e := range w.must(200, "GET", "/teams/"+id+"/audit?limit=100", key, nil)["data"].([]any) {
		did = append(did, e.(m)["action"].(string))
	}
	if got := strings.Join(did, " "); got != "member.removed member.role_changed site.updated key.created member.added invitation.created site.created key.created team.created" {
		t.Errorf("the team's log says %s", got)
	}
	if a := w.api("DELETE", "/teams/"+id, key, m{"confirm": "acme"}); a.status != 409 || !strings.Contains(a.body, "team_has_sites") {
		t.Errorf("deleted with a site: %s", a)
	}
	w.must(200, "DELETE", "/sites/"+s, key, nil)
	w.must(200, "DELETE", "/teams/"+id, key, m{"confirm": "acme"})
	if a := w.api("GET", "/sites", key, nil); a.status != 401 {
		t.Errorf("a key of a deleted team: %s", a)
	}
	if a := w.api("POST", "/teams", bens, m{"name": "Acme", "slug": "acme"}); a.status != 409 {
		t.Errorf("the slug of a deleted team: %s", a)
	}
}

// A guest sees only their sites and nothing else of the team.
func TestGuest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, ada := w.user("ada@example.test")
	_, gina := w.user("gina@example.test")
	id, key := w.teamOf(ada, "Acme")
	s, other := w.site(key, "Shop"), w.site(key, "Secret")
	w.join(key, id, "gina@example.test", gina, m{"sites": []m{{"siteId": s, "role": "developer"}}})
	for _, scopes := range [][]string{{"*"}, {"team:read"}, {"webhooks:read"}, {"audit:read"}, {"account:read"}, {"keys:write"}} {
		if a := w.api("POST", "/keys", gina, m{"name": "x", "scopes": scopes, "sites": []string{s}, "teamId": id}); a.status != 403 {
			t.Errorf("a guest makes a key for %s: %s", scopes, a)
		}
	}
	for _, sites := range []any{[]string{}, []string{other}} {
		if a := w.api("POST", "/keys", gina, m{"name": "x", "scopes": []string{"sites:write"}, "sites": sites, "teamId": id}); a.status != 403 {
			t.Errorf("a guest makes a key for the sites %s: %s", sites, a)
		}
	}
	guest := w.must(201, "POST", "/keys", gina, m{
		"name": "x", "scopes": []string{"sites:write", "deployments:write", "env:write"}, "sites": []string{s}, "teamId": id,
	})["key"].(string)
	if got := w.must(200, "GET", "/sites", guest, nil)["data"].([]any); len(got) != 1 || got[0].(m)["id"] != s {
		t.Errorf("a guest lists %v", got)
	}
	w.must(201, "POST", "/sites/"+s+"/env", guest, m{"key": "A", "value": "a"})
	for _, no := range [][2]string{
		{"GET", "/sites/" + other},
		{"POST", "/sites"},
		{"DELETE", "/sites/" + s},
		{"GET", "/teams/" + id},
		{"GET", "/teams/" + id + "/members"},
		{"GET", "/teams/" + id + "/audit"},
		{"GET", "/webhooks"},
		{"GET", "/webhooks/events"},
		{"GET", "/account"},
		{"GET", "/keys"},
	} {
		var body any
		if no[0] == "POST" {
			body = m{"name": "new", "type": "static", "repository": "git.test/acme/site"}
		}
		if a := w.api(no[0], no[1], guest, body); a.status != 403 || strings.Contains(a.body, "Secret") {
			t.Errorf("a guest, %s %s: %s", no[0], no[1], a)
		}
	}
	list := w.must(200, "GET", "/teams", gina, nil)["data"].([]any)
	if len(list) != 1 || list[0].(m)["role"] != nil {
		t.Errorf("the guest's teams are %v", list)
	}
	// A guest whose last site role is removed leaves the team.
	guestID := ""
	for _, one := range w.must(200, "GET", "/teams/"+id+"/members", key, nil)["data"].([]any) {
		if one.(m)["email"] == "gina@example.test" {
			guestID = one.(m)["userId"].(string)
		}
	}
	w.must(200, "DELETE", "/sites/"+s+"/members/"+guestID, key, nil)
	if a := w.api("GET", "/sites", guest, nil); a.status != 401 {
		t.Errorf("a guest without a site: %s", a)
	}
}

// A contributor can deploy previews but not production.
func TestContributor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, ada := w.user("ada@example.test")
	ben, bens := w.user("ben@example.test")
	id, key := w.teamOf(ada, "Acme")
	s := w.site(key, "Shop")
	w.join(key, id, "ben@example.test", bens, m{"role": "developer"})
	dev := w.teamKey(bens, id, "deployments:write")
	w.must(200, "PATCH", "/teams/"+id+"/members/"+string(ben), key, m{"role": "contributor"})
	production := w.must(200, "POST", "/sites/"+s+"/deploy", key, nil)["deploymentId"].(string)
	for _, no := range []string{"/sites/" + s + "/deploy", "/deployments/" + production + "/cancel", "/deployments/" + production + "/promote"} {
		if a := w.api("POST", no, dev, nil); a.status != 403 {
			t.Errorf("%s: %s", no, a)
		}
	}
	preview := w.must(200, "POST", "/sites/"+s+"/deploy", dev, m{"branch": "feature"})["deploymentId"].(string)
	w.must(200, "POST", "/deployments/"+preview+"/cancel", dev, nil)
}

// An invitation is for one address, works once, and never gives a higher role than the inviter's.
func TestInvitations(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, ada := w.user("ada@example.test")
	ben, bens := w.user("ben@example.test")
	_, eve := w.user("eve@example.test")
	id, key := w.teamOf(ada, "Acme")
	invite := func(key, email, role string) m {
		return w.must(201, "POST", "/teams/"+id+"/invitations", key, m{"email": email, "role": role})
	}
	first := invite(key, "ben@example.test", "admin")
	if a := w.api("POST", "/invitations/accept", eve, m{"token": token(first)}); a.status != 403 || !strings.Contains(a.body, "other_address") {
		t.Errorf("another address: %s", a)
	}
	second := invite(key, "BEN@example.test", "admin")
	if a := w.api("POST", "/invitations/accept", bens, m{"token": token(first)}); a.status != 404 {
		t.Errorf("a replaced one: %s", a)
	}
	again := w.must(200, "POST", "/teams/"+id+"/invitations/"+second["id"].(string)+"/resend", key, nil)
	if a := w.api("POST", "/invitations/accept", bens, m{"token": token(second)}); a.status != 404 {
		t.Errorf("one that was sent again: %s", a)
	}
	w.must(200, "POST", "/invitations/accept", bens, m{"token": token(again)})
	if a := w.api("POST", "/invitations/accept", bens, m{"token": token(again)}); a.status != 404 {
		t.Errorf("a spent one: %s", a)
	}
	admin := w.teamKey(bens, id, w.widest("admin")...)
	for _, role := range []string{"owner", "billing"} {
		if a := w.api("POST", "/teams/"+id+"/invitations", admin, m{"email": "x@example.test", "role": role}); a.status != 403 ||
			!strings.Contains(a.body, "role_too_high") {
			t.Errorf("an admin invites as %s: %s", role, a)
		}
		if a := w.api("PATCH", "/teams/"+id+"/members/"+string(ben), admin, m{"role": role}); a.status != 403 {
			t.Errorf("an admin makes themselves %s: %s", role, a)
		}
	}
	// An inviter who was demoted can no longer give that role.
	third := invite(admin, "eve@example.test", "admin")
	w.must(200, "PATCH", "/teams/"+id+"/members/"+string(ben), key, m{"role": "developer"})
	if a := w.api("POST", "/invitations/accept", eve, m{"token": token(third)}); a.status != 403 {
		t.Errorf("of an inviter who was demoted: %s", a)
	}
	// Addresses are compared in a normalized form, and look-alike addresses are refused.
	for _, email := range []string{"\u212Aim@example.test", "d\u0131no@example.test", "ada@example.test.", "ada@exa mple.test"} {
		if a := w.api("POST", "/teams/"+id+"/invitations", key, m{"email": email, "role": "viewer"}); a.status != 400 {
			t.Errorf("%q: %s", email, a)
		}
	}
	if got := invite(key, "Uma@B\u00fccher.example", "viewer"); got["email"] != "uma@xn--bcher-kva.example" {
		t.Errorf("an international domain is stored as %v", got["email"])
	}
	// The response, and the database work, are the same for addresses with and without an account.
	shape := func(in m) (names string) {
		for _, k := range []string{"id", "email", "role", "sites", "createdAt", "expiresAt", "url"} {
			if _, ok := in[k]; ok {
				names += k + " "
			}
		}
		return names
	}
	invite(key, "warm@example.test", "viewer") // runs the statements that are only needed once
	work := func(email string) (string, int64) {
		before := w.statements.Load()
		got := shape(invite(key, email, "viewer"))
		return got, w.statements.Load() - before
	}
	w.user("uma@example.test")
	known, hers := work("uma@example.test")
	if unknown, theirs := work("nobody@example.test"); known != unknown || hers != theirs {
		t.Errorf("%q after %d statements for a user with an account, %q after %d for others", known, hers, unknown, theirs)
	}
}

// A key acts for one owner: a different teamId changes nothing, and one owner's replays aren't another's.
func TestOneCredentialOneOwner(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, ada := w.user("ada@example.test")
	id, key := w.teamOf(ada, "Acme")
	otherID, other := w.teamOf(ada, "Other")
	for _, name := range []string{id, "acme"} {
		w.must(200, "GET", "/sites?teamId="+name, key, nil)
		for _, k := range []string{ada, other} {
			if a := w.api("GET", "/sites?teamId="+name, k, nil); a.status != 403 || !strings.Contains(a.body, "team_mismatch") {
				t.Errorf("teamId=%s: %s", name, a)
			}
		}
	}
	if a := w.api("GET", "/teams/"+otherID, key, nil); a.status != 404 {
		t.Errorf("another team: %s", a)
	}
	if a := w.api("GET", "/teams/"+otherID, ada, nil); a.status != 403 || !strings.Contains(a.body, "team_mismatch") {
		t.Errorf("a personal key: %s", a)
	}
	if a := w.api("POST", "/teams", key, m{"name": "x"}); a.status != 403 {
		t.Errorf("a team makes a team: %s", a)
	}
	body := m{"name": "Shop", "type": "static", "repository": "git.test/acme/site"}
	seen := map[string]bool{}
	for _, k := range []string{ada, key, other, key} {
		a := w.api("POST", "/sites", k, body, "Idempotency-Key: one")
		seen[a.json(t)["data"].(m)["id"].(string)] = true
	}
	if len(seen) != 3 {
		t.Errorf("three owners made %d sites", len(seen))
	}
}

// A team that requires two-factor authentication blocks members without it and their keys, but removes nobody.
func TestTwoFactorRequired(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	u, ada := w.user("ada@example.test")
	_, bens := w.user("ben@example.test")
	id, key := w.teamOf(ada, "Acme")
	w.join(key, id, "ben@example.test", bens, m{"role": "developer"})
	dev := w.teamKey(bens, id, "sites:read")
	service := w.must(201, "POST", "/keys", key, m{"name": "ci", "scopes": []string{"sites:read"}, "service": true})["key"].(string)
	if a := w.api("PATCH", "/teams/"+id, key, m{"requireTwoFactor": true}); a.status != 409 {
		t.Errorf("by an owner without it: %s", a)
	}
	if err := w.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), `INSERT INTO second_factors (user_id, secret, confirmed, last_step, created_at) VALUES ($1, '', TRUE, 0, 1)`, u)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	w.must(200, "PATCH", "/teams/"+id, key, m{"requireTwoFactor": true})
	if a := w.api("GET", "/sites", dev, nil); a.status != 403 || !strings.Contains(a.body, "two_factor_required") {
		t.Errorf("a member without it: %s", a)
	}
	w.must(200, "GET", "/sites", service, nil)
	w.must(200, "GET", "/sites", bens, nil)
	w.must(200, "PATCH", "/teams/"+id, key, m{"requireTwoFactor": false})
	w.must(200, "GET", "/sites", dev, nil)
}

// A service key outlives its creator's membership. A removed member's other keys don't.
func TestServiceKeys(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, ada := w.user("ada@example.test")
	ben, bens := w.user("ben@example.test")
	id, key := w.teamOf(ada, "Acme")
	w.join(key, id, "ben@example.test", bens, m{"role": "admin"})
	admin := w.teamKey(bens, id, w.widest("admin")...)
	service := w.must(201, "POST", "/keys", admin, m{"name": "ci", "scopes": []string{"sites:write"}, "service": true})["key"].(string)
	if a := w.api("POST", "/keys", bens, m{"name": "x", "scopes": []string{"sites:read"}, "service": true}); a.status != 403 {
		t.Errorf("a service key of a personal account: %s", a)
	}
	got := w.must(200, "DELETE", "/teams/"+id+"/members/"+string(ben), key, nil)
	if list := got["serviceKeys"].([]any); len(list) != 1 || list[0] != "ci" {
		t.Errorf("service keys that stay: %v", got)
	}
	if list := got["known"].([]any); len(list) != 1 || list[0].(m)["kind"] != "service_key" {
		t.Errorf("what a removed member knows without hooks: %v", got)
	}
	if a := w.api("GET", "/sites", admin, nil); a.status != 401 {
		t.Errorf("a removed member's key: %s", a)
	}
	w.site(service, "Shop")
	if err := w.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := w.c.Accounts.DeleteUserTx(t.Context(), tx, audit.Actor{}, ben)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	w.must(200, "GET", "/sites", service, nil)
}

// The response to a removal lists the secrets that the member could read and that still work. For a guest these are the
// hooks of the guest's sites.
func TestRemovedMembersKnow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, ada := w.user("ada@example.test")
	id, key := w.teamOf(ada, "Acme")
	shop, blog := w.site(key, "Shop"), w.site(key, "Blog")
	w.must(201, "POST", "/sites/"+shop+"/hooks", key, m{"name": "ci"})
	w.must(201, "POST", "/sites/"+blog+"/hooks", key, m{"name": "nightly"})
	w.must(201, "POST", "/sites/"+blog+"/git/hook", key, nil)
	w.must(201, "POST", "/webhooks", key, m{"url": "https://receiver.example/in?key=hidden", "events": []string{"site.created"}})
	_, other := w.user("other@example.test")
	w.must(201, "POST", "/sites/"+w.site(other, "Theirs")+"/hooks", other, m{"name": "not the team's"})
	all := "[deploy_hook/nightly/" + blog + " deploy_hook/ci/" + shop + " git_hook//" + blog + " webhook/receiver.example/]"
	for name, tt := range map[string]struct {
		as   m
		want string
	}{
		"developer": {m{"role": "developer"}, all},
		"viewer":    {m{"role": "viewer"}, "[]"},
		"guest": {
			m{"sites": []m{{"siteId": blog, "role": "developer"}, {"siteId": shop, "role": "viewer"}}},
			"[deploy_hook/nightly/" + blog + " git_hook//" + blog + "]",
		},
	} {
		u, k := w.user(name + "@example.test")
		w.join(key, id, name+"@example.test", k, tt.as)
		got := []string{}
		for _, x := range w.must(200, "DELETE", "/teams/"+id+"/members/"+string(u), key, nil)["known"].([]any) {
			site, _ := x.(m)["siteId"].(string)
			got = append(got, fmt.Sprintf("%s/%s/%s", x.(m)["kind"], x.(m)["name"], site))
		}
		if fmt.Sprint(got) != tt.want {
			t.Errorf("a %s knows %v, want %s", name, got, tt.want)
		}
	}
}

// A member's streams end soon after a removal, demotion or block. Other members' streams continue.
func TestStreamsEndWithTheMembership(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, ada := w.user("ada@example.test")
	id, key := w.teamOf(ada, "Acme")
	dep := w.must(200, "POST", "/sites/"+w.site(key, "Shop")+"/deploy", key, nil)["deploymentId"].(string)
	w.say(dep, 1, "one")
	ends := map[string]func(user string){
		"removed": func(user string) { w.must(200, "DELETE", "/teams/"+id+"/members/"+user, key, nil) },
		"demoted": func(user string) { w.must(200, "PATCH", "/teams/"+id+"/members/"+user, key, m{"role": "billing"}) },
	}
	streams, users := map[string]*bufio.Scanner{}, map[string]account.UserID{}
	for name := range ends {
		email := name + "@example.test"
		u, personal := w.user(email)
		w.join(key, id, email, personal, m{"role": "viewer"})
		users[name] = u
		if err := w.db.Admin(t.Context(), "UPDATE team_members SET role = 'developer' WHERE user_id = '"+string(u)+"'"); err != nil {
			t.Fatal(err)
		}
		_, streams[name] = w.open(dep, w.teamKey(personal, id, "deployments:read"))
		nextEvent(t, streams[name])
	}
	_, owners := w.open(dep, key)
	nextEvent(t, owners)
	for name, end := range ends {
		end(string(users[name]))
		done := make(chan bool)
		go func() {
			for streams[name].Scan() {
			}
			close(done)
		}()
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Fatalf("the stream of a member who was %s doesn't end", name)
		}
	}
	w.say(dep, 2, "two")
	if n, _, text := nextEvent(t, owners); n != "2" {
		t.Errorf("the owner's stream: %s %s", n, text)
	}
}

// A manager of one site can do there what admins can, and nothing elsewhere.
func TestSiteManager(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, ada := w.user("ada@example.test")
	mia, mias := w.user("mia@example.test")
	id, key := w.teamOf(ada, "Acme")
	s, other := w.site(key, "Shop"), w.site(key, "Other")
	w.join(key, id, "mia@example.test", mias, m{"role": "viewer"})
	made := w.must(200, "PUT", "/sites/"+s+"/members/"+string(mia), key, m{"role": "manager"})
	if len(made["sites"].([]any)) != 1 {
		t.Errorf("the member is %v", made)
	}
	manager := w.must(201, "POST", "/keys", mias, m{
		"name": "x", "scopes": []string{"sites:write"}, "sites": []string{s}, "teamId": id,
	})["key"].(string)
	for _, no := range []string{"/sites/" + other, "/teams/" + id} {
		if a := w.api("DELETE", no, manager, m{"confirm": "acme"}); a.status != 403 {
			t.Errorf("a manager of another site, DELETE %s: %s", no, a)
		}
	}
	if a := w.api("POST", "/sites/"+s+"/transfer", manager, m{"to": "mia@example.test"}); a.status != 403 {
		t.Errorf("a manager takes the site: %s", a)
	}
	w.must(200, "DELETE", "/sites/"+s, manager, nil)
}

// A user without teams sees no mention of teams in limits, keys and errors.
func TestOneAloneSeesNoTeam(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, ada := w.user("ada@example.test")
	for _, path := range []string{"/account", "/keys", "/sites"} {
		if a := w.api("GET", path, ada, nil); strings.Contains(a.body, "team") || strings.Contains(a.body, "member") || strings.Contains(a.body, "createdBy") {
			t.Errorf("%s: %s", path, a)
		}
	}
	w.teamOf(ada, "Acme")
	if a := w.api("GET", "/account", ada, nil); !strings.Contains(a.body, `"teams"`) {
		t.Errorf("an owner of a team: %s", a)
	}
}

// A site can't be transferred into a team that is being deleted, because it would be deleted too.
func TestNoTransferIntoTheEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, ada := w.user("ada@example.test")
	id, key := w.teamOf(ada, "Acme")
	w.site(key, "Doomed")
	s := w.site(ada, "Shop")
	if got := w.must(202, "DELETE", "/teams/"+id+"?sites=delete", key, m{"confirm": "acme"}); got["operation"] == nil {
		t.Errorf("deleting a team with its sites: %v", got)
	}
	if a := w.api("POST", "/sites/"+s+"/transfer", ada, m{"to": "acme"}); a.status != 409 || !strings.Contains(a.body, "team_deleting") {
		t.Errorf("into a team that is being deleted: %s", a)
	}
	// New sites are refused too, because they would keep the deletion from finishing.
	body := m{"name": "More", "type": "static", "repository": "git.test/acme/site"}
	if a := w.api("POST", "/sites", key, body); a.status != 409 || !strings.Contains(a.body, "team_deleting") {
		t.Errorf("a site for a team that is being deleted: %s", a)
	}
	w.must(201, "POST", "/sites", ada, body)
}

// A team's webhooks get events about its members, and both owners' webhooks get the transfer of a site.
func TestTeamEvents(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, ada := w.user("ada@example.test")
	ben, bens := w.user("ben@example.test")
	id, key := w.teamOf(ada, "Acme")
	subscribe := func(key string, events ...string) string {
		return w.must(201, "POST", "/webhooks", key, m{"url": "https://example.test/x", "events": events})["id"].(string)
	}
	team := subscribe(key, "member.added", "member.role_changed", "member.removed", "site.transferred")
	personal := subscribe(ada, "site.transferred")
	told := func(key, hook string) string {
		var names []string
		for _, d := range w.must(200, "GET", "/webhooks/"+hook+"/deliveries", key, nil)["data"].([]any) {
			names = append(names, d.(m)["event"].(string))
		}
		slices.Sort(names)
		return strings.Join(names, " ")
	}
	w.join(key, id, "ben@example.test", bens, m{"role": "developer"})
	w.must(200, "PATCH", "/teams/"+id+"/members/"+string(ben), key, m{"role": "viewer"})
	w.must(200, "PATCH", "/teams/"+id+"/members/"+string(ben), key, m{"role": "viewer"}) // which changes nothing
	w.must(200, "POST", "/teams/"+id+"/leave", bens, nil)
	w.must(201, "POST", "/sites/"+w.site(ada, "Shop")+"/transfer", ada, m{"to": "acme"})
	if got := told(key, team); got != "member.added member.removed member.role_changed site.transferred" {
		t.Errorf("the team's webhooks got %q", got)
	}
	if got := told(ada, personal); got != "site.transferred" {
		t.Errorf("the sender's webhooks got %q", got)
	}
}

// A team's audit log can be paged and exported, filtered by action, user, app and time. Entries name the app that acted
// for a user, even after its grant has ended.
func TestTeamAudit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ada, key := w.user("ada@example.test")
	ben, bens := w.user("ben@example.test")
	id, teamKey := w.teamOf(key, "Acme")
	w.join(teamKey, id, "ben@example.test", bens, m{"role": "developer"})
	site := w.site(teamKey, "Shop")
	_, otherKey := w.teamOf(key, "Other")
	w.site(otherKey, "Elsewhere")
	grant, token := w.grantAs(w.acting(ada, id), account.SitesRead, account.SitesWrite)
	w.must(200, "PATCH", "/sites/"+site, token, m{"name": "By the app"})
	w.must(200, "PATCH", "/sites/"+site, w.teamKey(bens, id, "sites:write"), m{"name": "By Ben"})
	var app string
	for _, g := range w.must(200, "GET", "/oauth/grants", teamKey, nil)["data"].([]any) {
		app = g.(m)["app"].(m)["id"].(string)
	}
	w.must(200, "DELETE", "/oauth/grants/"+grant, teamKey, nil)
	path := "/teams/" + id + "/audit"
	read := func(query string) (paged, exported string) {
		t.Helper()
		for next := ""; ; {
			got := w.must(200, "GET", path+"?limit=2&before="+next+"&"+query, teamKey, nil)
			for _, e := range got["data"].([]any) {
				paged += e.(m)["action"].(string) + " "
			}
			if got["next"] == nil {
				break
			}
			next = got["next"].(string)
		}
		a := w.api("GET", path+"?"+query, teamKey, nil, "Accept: application/x-ndjson")
		if a.status != 200 || a.header.Get("Content-Type") != "application/x-ndjson" || !strings.Contains(a.header.Get("Content-Disposition"), "audit-acme.ndjson") {
			t.Fatalf("export: %s %v", a, a.header)
		}
		for line := range strings.Lines(a.body) {
			var e m
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			exported += e["action"].(string) + " "
		}
		return paged, exported
	}
	all := "app.revoked site.updated key.created site.updated app.authorized site.created member.added invitation.created key.created team.created "
	for query, want := range map[string]string{
		"":                               all,
		"action=site":                    "site.updated site.updated site.created ",
		"action=member.added":            "member.added ",
		"userId=" + string(ben):          "site.updated key.created member.added ",
		"appId=" + app:                   "site.updated app.authorized ",
		"appId=app_none":                 "",
		"since=2000-01-01T00:00:00Z":     all,
		"since=2200-01-01T00:00:00Z":     "",
		"action=site&appId=" + app:       "site.updated ",
		"action=site&userId=usr_nobody_": "",
	} {
		paged, exported := read(query)
		if paged != want || exported != want {
			t.Errorf("%q: the pages hold %q, the export %q, want %q", query, paged, exported, want)
		}
	}
	e := w.must(200, "GET", path+"?appId="+app, teamKey, nil)["data"].([]any)[0].(m)
	if e["appId"] != app || e["grantId"] != grant || e["userId"] != string(ada) || e["keyId"] != nil {
		t.Errorf("the app's line: %v", e)
	}
	for _, k := range []string{w.teamKey(bens, id, "team:read"), key, otherKey, token} {
		for _, accept := range []string{"application/json", "application/x-ndjson"} {
			if a := w.api("GET", path, k, nil, "Accept: "+accept); a.status != 403 && a.status != 404 && a.status != 401 || strings.Contains(a.body, "site.") {
				t.Errorf("%s for another user: %s", accept, a)
			}
		}
	}
}

// While a member is suspended or blocked, the invitations and transfer offers that the member made aren't valid.
func TestSuspendedMembersLeaveNoDoorOpen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, ada := w.user("ada@example.test")
	ben, bens := w.user("ben@example.test")
	_, eve := w.user("eve@example.test")
	id, key := w.teamOf(ada, "Acme")
	w.join(key, id, "ben@example.test", bens, m{"role": "admin"})
	admin := w.teamKey(bens, id, w.widest("admin")...)
	s := w.site(key, "Shop")
	in := w.must(201, "POST", "/teams/"+id+"/invitations", admin, m{"email": "eve@example.test", "role": "admin"})
	code := w.must(201, "POST", "/sites/"+s+"/transfer", admin, m{"to": "eve@example.test"})["code"]
	try := func(why string) {
		t.Helper()
		if a := w.api("POST", "/invitations/accept", eve, m{"token": token(in)}); a.status != 403 || !strings.Contains(a.body, "inviter_demoted") {
			t.Errorf("%s, their invitation: %s", why, a)
		}
		if a := w.api("POST", "/transfers/accept", eve, m{"code": code}); a.status != 404 {
			t.Errorf("%s, their transfer: %s", why, a)
		}
	}
	set := func(q string) {
		t.Helper()
		if err := w.db.Admin(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	set("UPDATE users SET suspended_at = 1 WHERE id = '" + string(ben) + "'")
	try("suspended")
	set("UPDATE users SET suspended_at = 0")
	set("UPDATE teams SET require_2fa = TRUE")
	try("blocked")
	set("UPDATE teams SET require_2fa = FALSE")
	w.must(200, "POST", "/invitations/accept", eve, m{"token": token(in)})
	w.must(200, "POST", "/transfers/accept", eve, m{"code": code})
}
