package api_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"slipway/internal/platform/db"
	"slipway/internal/platform/id"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/oauth"
)

// revoke ends a grant as its user.
func (w *world) revoke(u account.UserID, grant string) {
	w.t.Helper()
	w.write(func(tx *db.Tx) error {
		_, err := w.c.OAuth.RevokeGrantTx(w.t.Context(), tx, w.caller(u), oauth.GrantID(grant))
		return err
	})
}

// Resources that an app created end with its access, including deploy hooks that a user has rotated, and polling that
// it started or of a repository that it chose. An app can't create a Git hook, because its secret could not be revoked.
func TestNothingOutlivesAnApp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	u, key := w.user("ada@example.test")
	site, other, third := w.site(key, "one"), w.site(key, "two"), w.site(key, "three")
	call := func(hook m) int {
		return w.send("POST", strings.TrimPrefix(hook["url"].(string), "http://slipway.test"), "", nil).status
	}
	grant, token := w.grant(u, account.SitesWrite, account.DeploymentsWrite)

	theirs := w.must(201, "POST", "/sites/"+site+"/git/hook", key, nil)
	if a := w.api("POST", "/sites/"+site+"/git/hook", token, nil); a.status != 403 || a.json(t)["code"] != "not_for_apps" {
		t.Errorf("an app creates the Git hook: %s", a)
	}
	for _, a := range []answer{w.api("GET", "/sites/"+site+"/git", token, nil), w.api("PATCH", "/sites/"+site+"/git", token, m{"tags": "ignore"})} {
		if a.status != 200 || a.json(t)["hookUrl"] != nil {
			t.Errorf("an app reads the Git hook's URL: %s", a)
		}
	}
	if got := w.must(200, "GET", "/sites/"+site+"/git", key, nil)["hookUrl"]; got != theirs["url"] {
		t.Errorf("the Git hook's URL is %v", got)
	}

	mine := w.must(201, "POST", "/sites/"+site+"/hooks", key, m{"name": "mine"})
	byApp := w.must(201, "POST", "/sites/"+site+"/hooks", token, m{"name": "app's"})
	byApp = w.must(200, "PATCH", "/hooks/"+byApp["id"].(string), token, m{"rotate": true})
	byApp = w.must(200, "PATCH", "/hooks/"+byApp["id"].(string), token, m{"rotate": true})
	byBoth := w.must(201, "POST", "/sites/"+site+"/hooks", token, m{"name": "rotated by its person"})
	byBoth = w.must(200, "PATCH", "/hooks/"+byBoth["id"].(string), key, m{"rotate": true})
	mine = w.must(200, "PATCH", "/hooks/"+mine["id"].(string), key, m{"rotate": true})
	for name, hook := range map[string]m{"a person's": mine, "an app's": byApp, "a common": byBoth} {
		if got := call(hook); got != 200 {
			t.Errorf("%s hook answers %d", name, got)
		}
	}

	polls := func(id string) any { return w.must(200, "GET", "/sites/"+id+"/git", key, nil)["pollMinutes"] }
	w.must(200, "PATCH", "/sites/"+site+"/git", token, m{"pollMinutes": 5}) // started by the app
	w.must(200, "PATCH", "/sites/"+other+"/git", key, m{"pollMinutes": 5})
	w.must(200, "PATCH", "/sites/"+other, token, m{"repository": "git.test/eve/site"}) // of a repository that the app chose
	w.must(200, "PATCH", "/sites/"+third+"/git", token, m{"pollMinutes": 5})
	w.must(200, "PATCH", "/sites/"+third+"/git", key, m{"pollMinutes": 10}) // a user has changed it since
	w.revoke(u, grant)
	if a, b, c := polls(site), polls(other), polls(third); a != 0. || b != 0. || c != 10. {
		t.Errorf("the sites are polled every %v, %v and %v minutes, want 0, 0, 10", a, b, c)
	}
	if a, b, c := call(byApp), call(byBoth), call(mine); a != 404 || b != 404 || c != 200 {
		t.Errorf("the hooks answer %d, %d and %d, want 404, 404, 200", a, b, c)
	}
}

// A deploy hook created by an app is deleted when its site is transferred, even if hooks are kept, because the grant
// that would end it belongs to the sender. The sender's own hook is kept, and polling ends.
func TestTransferEndsWhatAppsMade(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	u, key := w.user("ada@example.test")
	_, team := w.teamOf(key, "Acme")
	grant, token := w.grant(u, account.SitesWrite, account.DeploymentsWrite)
	site := w.site(key, "one")
	mine := w.must(201, "POST", "/sites/"+site+"/hooks", key, m{"name": "mine"})
	byApp := w.must(201, "POST", "/sites/"+site+"/hooks", token, m{"name": "app's"})
	w.must(200, "PATCH", "/sites/"+site+"/git", token, m{"pollMinutes": 5})
	w.settle()
	plan := w.must(201, "POST", "/sites/"+site+"/transfer", key, m{"to": "acme", "keepHooks": true})
	if !slices.Contains(plan["breaks"].([]any), any("1 deploy hook that apps of the sender made: deleted")) {
		t.Errorf("the plan says %q", plan["breaks"])
	}
	call := func(hook m) int {
		return w.send("POST", strings.TrimPrefix(hook["url"].(string), "http://slipway.test"), "", nil).status
	}
	if got := call(byApp); got != 404 {
		t.Errorf("the app's hook answers %d after the transfer", got)
	}
	if got := call(mine); got != 200 {
		t.Errorf("the person's hook answers %d after the transfer", got)
	}
	w.must(200, "PATCH", "/sites/"+site+"/git", team, m{"pollMinutes": 5})
	w.revoke(u, grant)
	if got := w.must(200, "GET", "/sites/"+site+"/git", team, nil)["pollMinutes"]; got != 5.0 {
		t.Errorf("the receiver's polling is %v once the sender's app has gone", got)
	}
	var left int
	if err := w.db.QueryRow(t.Context(), `SELECT count(*) FROM oauth_made`).Scan(&left); err != nil || left != 0 {
		t.Errorf("%d things of the app are remembered, %v", left, err)
	}
}

// When a team's policy excludes an app, the app's access ends and what it created is deleted. The response names the app.
// Resources created by users and by the command line stay.
func TestPolicyEndsApps(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"none", "approved"} {
		w := newWorld(t)
		u, ada := w.user("ada@example.test")
		team, key := w.teamOf(ada, "Acme")
		site := w.site(key, "shop")
		_, token := w.grantAs(w.acting(u, team), account.DeploymentsWrite)
		hook := w.must(201, "POST", "/sites/"+site+"/hooks", token, m{"name": "app's"})
		mine := w.must(201, "POST", "/sites/"+site+"/hooks", key, m{"name": "mine"})
		w.must(200, "PATCH", "/teams/"+team, key, m{"apps": "all"})
		w.must(200, "GET", "/sites/"+site+"/hooks", token, nil)
		codes := `SELECT count(*) FROM oauth_codes WHERE owner_id = (SELECT owner_id FROM teams WHERE id = '` + team + `')`
		if err := w.db.Admin(t.Context(), `
			INSERT INTO oauth_codes (hash, app_id, user_id, owner_id, scopes, sites, redirect_uri, challenge, grant_expires_at,
				expires_at, used_at, grant_id)
			SELECT 'code', app_id, user_id, owner_id, '', '', '', '', 0, 0, 0, '' FROM oauth_grants`); err != nil {
			t.Fatal(err)
		}
		if got := w.must(200, "PATCH", "/teams/"+team, key, m{"apps": policy})["endedApps"].([]any); len(got) != 1 || got[0] != "Acme Deploys" {
			t.Errorf("%s: the answer names %v", policy, got)
		}
		if n := w.count(codes); n != 0 {
			t.Errorf("%s: %d codes of the app are left, which make grants once apps are allowed again", policy, n)
		}
		if a := w.api("GET", "/sites/"+site+"/hooks", token, nil); a.status != 401 {
			t.Errorf("%s: the app's token: %s", policy, a)
		}
		list := w.must(200, "GET", "/sites/"+site+"/hooks", key, nil)["data"].([]any)
		if len(list) != 1 || list[0].(m)["id"] != mine["id"] {
			t.Errorf("%s: of the hooks %v and %v there are %v", policy, hook["id"], mine["id"], list)
		}
		w.must(200, "PATCH", "/teams/"+team, key, m{"apps": "all"})
		if a := w.api("GET", "/sites/"+site+"/hooks", token, nil); a.status != 401 {
			t.Errorf("%s: the app is back: %s", policy, a)
		}
	}
}

// A caller restricted to some sites, by a site role, a key or an app, can't use the account's stored credentials to
// read other repositories: neither the site's credential nor the connected account.
func TestRestrictedCallersBringTheirCredential(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	u, ada := w.user("ada@example.test")
	team, key := w.teamOf(ada, "Acme")
	_, eve := w.user("eve@example.test")
	site, other := w.site(key, "shop"), w.site(key, "secret")
	w.join(key, team, "eve@example.test", eve, m{"sites": []m{{"siteId": site, "role": "developer"}}})
	guest := w.must(201, "POST", "/keys", eve, m{"name": "x", "scopes": []string{"sites:write", "deployments:write"}, "teamId": team, "sites": []string{site}})["key"].(string)
	acting := w.acting(u, team)
	acting.Sites = []id.Site{id.Site(site)}
	_, app := w.grantAs(acting, account.SitesWrite, account.DeploymentsWrite)
	if err := w.db.Admin(t.Context(), "UPDATE oauth_grants SET sites = '"+site+"'"); err != nil {
		t.Fatal(err)
	}
	connected := w.must(201, "POST", "/git/accounts", key, m{"provider": "github", "token": "good-token"})["id"].(string)
	for who, restricted := range map[string]string{
		"a guest": guest, "an app": app,
		"a key": w.keyAs(w.acting(u, team), account.NewKey{Sites: []id.Site{id.Site(site)}}),
	} {
		w.must(200, "PATCH", "/sites/"+site, key, m{"repository": "github.com/acme/site", "credential": m{"token": "stored"}})
		w.must(200, "PATCH", "/sites/"+site+"/git", key, m{"connectionId": connected})
		uses := func() any { return w.must(200, "GET", "/sites/"+site+"/git", key, nil)["connectionId"] }
		repository := func() any { return w.must(200, "GET", "/sites/"+site, key, nil)["repository"].(m)["url"] }
		for _, body := range []m{
			{"repository": "github.com/acme/private"},
			{"repository": "https://github.com/acme/private.git", "credential": m{}},
			{"repository": "github.com/acme/private", "credential": m{"user": "x"}},
		} {
			if a := w.api("PATCH", "/sites/"+site, restricted, body); a.status != 403 || a.json(t)["code"] != "credential_required" {
				t.Errorf("%s: %v: %s", who, body, a)
			}
		}
		w.must(200, "PATCH", "/sites/"+site, restricted, m{"repository": "https://github.com/acme/site", "branch": "next"}) // the same
		w.must(200, "PATCH", "/sites/"+site+"/git", restricted, m{"connectionId": connected, "report": false})
		if got := uses(); got != connected || repository() != "github.com/acme/site" {
			t.Errorf("%s: the site uses %v for %v", who, got, repository())
		}
		w.must(200, "PATCH", "/sites/"+site, restricted, m{"repository": "github.com/acme/private", "credential": m{"token": "mine"}})
		w.must(200, "PATCH", "/sites/"+site, restricted, m{"credential": m{}})
		if got := uses(); got != nil {
			t.Errorf("%s: without its credential the repository is read with %v", who, got)
		}
		if a := w.api("PATCH", "/sites/"+site+"/git", restricted, m{"connectionId": connected}); a.status != 403 {
			t.Errorf("%s: takes the connected account back: %s", who, a)
		}
		if a := w.api("PATCH", "/sites/"+other, restricted, m{"repository": "github.com/x/y"}); a.status != 403 && a.status != 404 {
			t.Errorf("%s: another site: %s", who, a)
		}
	}
	w.must(200, "PATCH", "/sites/"+site, key, m{"repository": "github.com/acme/private"})
	w.must(200, "PATCH", "/sites/"+site+"/git", key, m{"connectionId": connected})
}

// A stream opened with an app's token ends when its user loses the role, like a key's stream.
func TestStreamsOfAppsEndWithTheRole(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, ada := w.user("ada@example.test")
	team, key := w.teamOf(ada, "Acme")
	guest, guestKey := w.user("guest@example.test")
	one, two := w.site(key, "one"), w.site(key, "two")
	w.join(key, team, "guest@example.test", guestKey, m{"sites": []m{{"siteId": one, "role": "developer"}, {"siteId": two, "role": "viewer"}}})
	_, token := w.grantAs(w.acting(guest, team), account.SitesWrite)
	c, err := w.c.OAuth.Authenticate(t.Context(), token, netip.MustParseAddr("203.0.113.9"))
	if err == nil {
		err = w.c.OAuth.Holds(t.Context(), c)
	}
	if err != nil {
		t.Fatal(err)
	}
	w.must(200, "DELETE", "/sites/"+one+"/members/"+string(guest), key, nil)
	if err := w.c.OAuth.Holds(t.Context(), c); err == nil {
		t.Error("the stream of a guest's app continues after the guest's role on the site has ended")
	}
}

// After an app's access ends, the repository that it set for a site isn't deployed any more, by a GitHub App either.
func TestRepositoryOfAnAppEnds(t *testing.T) {
	t.Parallel()
	w, hook, connect := appWorld(t)
	ada, key := w.user("a@example.test")
	u, err := w.c.Accounts.User(t.Context(), ada)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	push := func() answer {
		n++
		b, _ := json.Marshal(m{
			"ref": "refs/heads/main", "before": shaB, "after": fmt.Sprintf("%040x", n), "commits": []m{},
			"head_commit":  m{"id": fmt.Sprintf("%040x", n), "message": "x"},
			"repository":   m{"full_name": "eve/evil", "clone_url": "https://github.com/eve/evil.git", "default_branch": "main"},
			"installation": m{"id": 666},
		})
		return w.send("POST", hook, "", string(b), "Content-Type: application/json", "X-GitHub-Event: push", fmt.Sprint("X-GitHub-Delivery: z-", n),
			"X-Hub-Signature-256: sha256="+hexMAC("app-hook-secret", string(b)))
	}
	for name, takenOver := range map[string]bool{"One": false, "Two": true} {
		s := w.must(201, "POST", "/sites", key, m{
			"name": name, "type": "static", "repository": "github.com/octo/site", "branch": "main", "connectionId": string(connect(u.Owner).ID),
		})["data"].(m)["id"].(string)
		grant, token := w.grant(ada, account.SitesWrite, account.DeploymentsWrite)
		w.must(200, "PATCH", "/sites/"+s, token, m{"repository": "github.com/eve/evil"})
		wants(t, "while the app has access", push(), 200, "Deployment triggered")
		if takenOver {
			w.must(200, "PATCH", "/sites/"+s+"/git", key, m{"autoDeploy": true})
		}
		w.revoke(ada, grant)
		if on := w.must(200, "GET", "/sites/"+s+"/git", key, nil)["autoDeploy"]; on != takenOver {
			t.Errorf("%s: automatic deployments after the app's access: %v", name, on)
		}
		if !takenOver {
			wants(t, "after it", push(), 200, `"skipped":true`)
		}
	}
}

// Lowering a member's site role ends what apps created with it, also if the member accepts an invitation to the lower
// role.
func TestLoweredSiteRoleEndsWhatAppsMade(t *testing.T) {
	t.Parallel()
	for how, lower := range map[string]func(w *world, key, team, site, eve string, user account.UserID){
		"by an admin": func(w *world, key, team, site, _ string, user account.UserID) {
			w.must(200, "PUT", "/sites/"+site+"/members/"+string(user), key, m{"role": "viewer"})
		},
		"by an invitation": func(w *world, key, team, site, eve string, _ account.UserID) {
			w.join(key, team, "eve@example.test", eve, m{"sites": []m{{"siteId": site, "role": "viewer"}}})
		},
	} {
		w := newWorld(t)
		_, ada := w.user("ada@example.test")
		team, key := w.teamOf(ada, "Acme")
		u, eve := w.user("eve@example.test")
		site := w.site(key, "shop")
		w.join(key, team, "eve@example.test", eve, m{"sites": []m{{"siteId": site, "role": "developer"}}})
		_, token := w.grantAs(w.acting(u, team), account.SitesWrite, account.DeploymentsWrite)
		w.must(201, "POST", "/sites/"+site+"/hooks", token, m{"name": "app's"})
		lower(w, key, team, site, eve, u)
		if list := w.must(200, "GET", "/sites/"+site+"/hooks", key, nil)["data"].([]any); len(list) != 0 {
			t.Errorf("%s: the hooks are %v", how, list)
		}
	}
}

// Resources created with the command line belong to the user: signing out there ends the access, but keeps the hooks.
func TestCommandLineMakesForItsPerson(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	u, key := w.user("ada@example.test")
	site := w.site(key, "one")
	grant, token := w.grant(u, account.SitesWrite, account.DeploymentsWrite, account.WebhooksWrite)
	if err := w.db.Admin(t.Context(), `UPDATE oauth_grants SET app_id = '`+string(oauth.CLI)+`' WHERE id = '`+grant+`'`); err != nil {
		t.Fatal(err)
	}
	w.must(201, "POST", "/sites/"+site+"/hooks", token, m{"name": "one"})
	hook := w.must(201, "POST", "/webhooks", token, m{"url": "https://hooks.example.test/x", "events": []string{"site.updated"}})
	// An earlier version recorded the hook as created by the grant.
	if err := w.db.Admin(t.Context(), `INSERT INTO oauth_made (kind, id, owner_id, grant_id) SELECT 'webhook', '`+hook["id"].(string)+
		`', owner_id, id FROM oauth_grants WHERE id = '`+grant+`' ON CONFLICT DO NOTHING`); err != nil {
		t.Fatal(err)
	}
	w.revoke(u, grant)
	if a := w.api("GET", "/sites/"+site+"/hooks", token, nil); a.status != 401 {
		t.Errorf("signed out: %s", a)
	}
	for _, path := range []string{"/sites/" + site + "/hooks", "/webhooks"} {
		if list := w.must(200, "GET", path, key, nil)["data"].([]any); len(list) != 1 {
			t.Errorf("%s: %v", path, list)
		}
	}
}

// A site that was transferred away and back isn't part of an app's sites again. An app restricted to that site loses
// its access.
func TestTransferredSiteLeavesApps(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	u, key := w.user("ada@example.test")
	_, team := w.teamOf(key, "Acme")
	site, other := w.site(key, "one"), w.site(key, "two")
	restricted := func(sites ...id.Site) string {
		grant, token := w.grant(u, account.SitesRead)
		if err := w.db.Admin(t.Context(), `UPDATE oauth_grants SET sites = '`+id.Join(sites)+`' WHERE id = '`+grant+`'`); err != nil {
			t.Fatal(err)
		}
		return token
	}
	both, alone := restricted(id.Site(other), id.Site(site)), restricted(id.Site(site))
	all := restricted()
	w.settle()
	plan := w.must(201, "POST", "/sites/"+site+"/transfer", key, m{"to": "acme"})
	if said := fmt.Sprint(plan["breaks"]); !strings.Contains(said, "2 apps of the sender with access to some sites") {
		t.Errorf("the plan says %s", said)
	}
	w.must(201, "POST", "/sites/"+site+"/transfer", team, m{"to": "ada@example.test"})
	for who, x := range map[string]struct {
		token      string
		its, other int
	}{"both": {both, 403, 200}, "alone": {alone, 401, 401}, "all": {all, 200, 200}} {
		a, b := w.api("GET", "/sites/"+site, x.token, nil), w.api("GET", "/sites/"+other, x.token, nil)
		if a.status != x.its || b.status != x.other {
			t.Errorf("%s: the site that came back: %s; the other one: %s", who, a, b)
		}
	}
}

// Transferring a site ends invitations to roles on it, even if the site comes back.
func TestTransferredSiteLeavesInvitations(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, ada := w.user("ada@example.test")
	team, key := w.teamOf(ada, "Acme")
	_, eve := w.user("eve@example.test")
	site, other := w.site(key, "one"), w.site(key, "two")
	invite := func(sites ...string) string {
		var roles []m
		for _, s := range sites {
			roles = append(roles, m{"siteId": s, "role": "developer"})
		}
		made := w.must(201, "POST", "/teams/"+team+"/invitations", key, m{"email": "eve@example.test", "sites": roles})
		_, token, _ := strings.Cut(made["url"].(string), "/invitations/")
		return token
	}
	moved := func(token string) answer {
		w.settle()
		w.must(201, "POST", "/sites/"+site+"/transfer", key, m{"to": "ada@example.test"})
		w.must(201, "POST", "/sites/"+site+"/transfer", ada, m{"to": "acme"})
		return w.api("POST", "/invitations/accept", eve, m{"token": token})
	}
	if a := moved(invite(site)); a.status != 404 {
		t.Errorf("to that site alone: %s", a)
	}
	if a := moved(invite(site, other)); a.status != 200 || strings.Contains(a.body, site) || !strings.Contains(a.body, other) {
		t.Errorf("to both: %s", a)
	}
}
