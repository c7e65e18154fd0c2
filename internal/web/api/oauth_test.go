package api_test

import (
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/oauth"
)

// grant authorizes an app for the user's own account and returns the grant's ID and an access token.
func (w *world) grant(u account.UserID, scopes ...account.Scope) (id, token string) {
	w.t.Helper()
	return w.grantAs(w.caller(u), scopes...)
}

// grantAs is grant for a caller, who may act for a team.
func (w *world) grantAs(by account.Caller, scopes ...account.Scope) (id, token string) {
	w.t.Helper()
	ctx := w.t.Context()
	fail := func(err error) {
		if err != nil {
			w.t.Helper()
			w.t.Fatal(err)
		}
	}
	var a oauth.App
	fail(w.db.Write(ctx, func(tx *db.Tx) (err error) {
		a, _, err = w.c.OAuth.CreateAppTx(ctx, tx, by.Owner, oauth.NewApp{Name: "Acme Deploys"})
		return err
	}))
	d, secret, err := w.c.OAuth.BeginDevice(ctx, a, account.Scopes(scopes).String(), "203.0.113.9", "203.0.113.9")
	fail(err)
	fail(w.db.Write(ctx, func(tx *db.Tx) error {
		return w.c.OAuth.DecideDeviceTx(ctx, tx, by, d, &oauth.Consent{Scopes: scopes, Expires: db.Now().Add(time.Hour)})
	}))
	got, err := w.c.OAuth.PollDevice(ctx, a, secret)
	fail(err)
	c, err := w.c.OAuth.Authenticate(ctx, got.Access, netip.MustParseAddr("203.0.113.9"))
	fail(err)
	return c.Grant, got.Access
}

// An access token has its grant's permissions, its errors say where to request more, and it ends with its grant.
func TestAccessTokens(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	u, key := w.user("a@example.test")
	site := w.site(key, "one")
	id, token := w.grant(u, account.SitesRead, account.AccountRead)
	w.must(200, "GET", "/sites/"+site, token, nil)
	who := w.must(200, "GET", "/account", token, nil)
	if app, ok := who["app"].(m); !ok || app["grantId"] != id || app["name"] != "Acme Deploys" || who["admin"] != false {
		t.Errorf("GET /account answers %v", who)
	}
	if w.must(200, "GET", "/account", key, nil)["app"] != nil {
		t.Error("a key acts for an app")
	}
	a := w.api("POST", "/sites/"+site+"/deploy", token, nil)
	challenge := a.header.Get("WWW-Authenticate")
	if a.status != 403 || !strings.Contains(challenge, `error="insufficient_scope"`) || !strings.Contains(challenge, `scope="previews:write"`) {
		t.Errorf("without the scope: %d, %s", a.status, challenge)
	}
	a = w.api("GET", "/sites", "", nil)
	challenge = a.header.Get("WWW-Authenticate")
	if a.status != 401 || strings.Contains(challenge, "error=") || !strings.Contains(challenge, `scope="sites:read"`) ||
		!strings.Contains(challenge, `resource_metadata="http://slipway.test/.well-known/oauth-protected-resource/api/v1"`) {
		t.Errorf("without a token: %d, %s", a.status, challenge)
	}
	for _, unknown := range []string{account.NewSecret("slo_"), account.NewSecret("slw_"), "slo_cut"} {
		a := w.api("GET", "/sites", unknown, nil)
		if a.status != 401 || !strings.Contains(a.header.Get("WWW-Authenticate"), `error="invalid_token"`) {
			t.Errorf("an unknown token: %d, %s", a.status, a.header.Get("WWW-Authenticate"))
		}
	}
	list := w.must(200, "GET", "/oauth/grants", token, nil)["data"].([]any)
	if len(list) != 1 || list[0].(m)["id"] != id {
		t.Errorf("the grant sees %v", list)
	}
	w.must(200, "DELETE", "/oauth/grants/"+id, key, nil)
	if a := w.api("GET", "/sites", token, nil); a.status != 401 || !strings.Contains(a.header.Get("WWW-Authenticate"), `error="invalid_token"`) {
		t.Errorf("after its end: %d, %s", a.status, a.header.Get("WWW-Authenticate"))
	}
}

// A refreshed token doesn't get a new rate limit window.
func TestOneWindowPerGrant(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	u, _ := w.user("a@example.test")
	_, first := w.grant(u, account.SitesRead)
	_, other := w.grant(u, account.SitesRead)
	left := func(token string) string {
		return w.api("GET", "/sites", token, nil).header.Get("X-RateLimit-Remaining")
	}
	if a, b, c := left(first), left(first), left(other); a == b || a != c {
		t.Errorf("remaining: %s, %s with the same grant, %s with another", a, b, c)
	}
}

// An app can change webhooks, channels and hooks that it created with any of its grants, but no others. Otherwise a
// webhook that the app points to itself, or a deploy hook's URL that it reads, would outlive its access.
func TestAppsChangeWhatTheyCreated(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	u, key := w.user("a@example.test")
	id := w.site(key, "one")
	scopes := []account.Scope{account.WebhooksRead, account.WebhooksWrite, account.DeploymentsWrite}
	_, token := w.grant(u, scopes...)
	create := func(key, url string) (webhook, channel, hook string) {
		t.Helper()
		webhook = w.must(201, "POST", "/webhooks", key, m{"url": url, "events": []string{"deployment.completed"}})["id"].(string)
		channel = w.must(201, "POST", "/notifications", key, m{"kind": "slack", "name": "Ops", "target": "https://hooks.slack.com/services/T/B/" + url[len(url)-1:]})["id"].(string)
		hook = w.must(201, "POST", "/sites/"+id+"/hooks", key, m{"name": "CMS"})["id"].(string)
		return webhook, channel, hook
	}
	webhook, channel, hook := create(key, "https://hooks.test/a")
	evil := m{"url": "https://evil.test/"}
	for _, c := range []struct {
		method, path string
		body         any
	}{
		{"PATCH", "/webhooks/" + webhook, evil},
		{"PATCH", "/webhooks/" + webhook, m{"active": false}},
		{"POST", "/webhooks/" + webhook + "/rotate-secret", m{"secret": "a secret that the app knows", "overlapSeconds": 0}},
		{"DELETE", "/webhooks/" + webhook, nil},
		{"PATCH", "/notifications/" + channel, m{"target": "https://hooks.slack.com/services/evil"}},
		{"DELETE", "/notifications/" + channel, nil},
		{"PATCH", "/hooks/" + hook, m{"rotate": true}},
		{"DELETE", "/hooks/" + hook, nil},
	} {
		if a := w.api(c.method, c.path, token, c.body); a.status != 403 || a.json(t)["code"] != "not_created_by_app" {
			t.Errorf("%s %s: %s", c.method, c.path, a)
		}
	}
	if now := w.must(200, "GET", "/webhooks/"+webhook, key, nil); now["url"] != "https://hooks.test/a" || now["active"] != true {
		t.Errorf("the account's webhook is now %v", now)
	}
	if list := w.must(200, "GET", "/sites/"+id+"/hooks", token, nil)["data"].([]any); len(list) != 0 {
		t.Errorf("the app reads the secret URLs of %v", list)
	}
	if a := w.api("PATCH", "/webhooks/hook_unknown", token, evil); a.status != 404 {
		t.Errorf("a webhook that isn't there: %s", a)
	}

	webhook, channel, hook = create(token, "https://hooks.test/c")
	w.must(200, "PATCH", "/webhooks/"+webhook, token, m{"url": "https://hooks.test/b"})
	w.must(200, "POST", "/webhooks/"+webhook+"/rotate-secret", token, m{})
	w.must(200, "PATCH", "/notifications/"+channel, token, m{"name": "Other"})
	w.must(200, "PATCH", "/hooks/"+hook, token, m{"name": "Other"})
	if list := w.must(200, "GET", "/sites/"+id+"/hooks", token, nil)["data"].([]any); len(list) != 1 || list[0].(m)["name"] != "Other" {
		t.Errorf("the app reads %v of its own hooks", list)
	}
	w.must(200, "DELETE", "/notifications/"+channel, key, nil) // users can delete all of them
	w.must(200, "DELETE", "/webhooks/"+webhook, token, nil)
	w.must(200, "DELETE", "/hooks/"+hook, token, nil)
	if list := w.must(200, "GET", "/sites/"+id+"/hooks", key, nil)["data"].([]any); len(list) != 1 || list[0].(m)["name"] != "CMS" {
		t.Errorf("the account's hooks are %v", list)
	}
}

// Only this installation's access tokens for the API are valid for it: not another installation's token, and no other
// secret of an app.
func TestTokensOfOtherResources(t *testing.T) {
	t.Parallel()
	w, other := newWorld(t), newWorld(t)
	u, _ := w.user("a@example.test")
	stranger, _ := other.user("a@example.test")
	_, foreign := other.grant(stranger, account.SitesRead)
	_, token := w.grant(u, account.SitesRead)
	w.must(200, "GET", "/sites", token, nil)
	var app oauth.App
	var secret string
	if err := w.db.Write(t.Context(), func(tx *db.Tx) (err error) {
		app, secret, err = w.c.OAuth.CreateAppTx(t.Context(), tx, w.caller(u).Owner, oauth.NewApp{Name: "Server", Confidential: true})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	d, device, err := w.c.OAuth.BeginDevice(t.Context(), app, "sites:read", "203.0.113.9", "203.0.113.9")
	if err == nil {
		err = w.db.Write(t.Context(), func(tx *db.Tx) error {
			return w.c.OAuth.DecideDeviceTx(t.Context(), tx, w.caller(u), d, &oauth.Consent{Scopes: d.Scopes, Expires: db.Now().Add(time.Hour)})
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	got, err := w.c.OAuth.PollDevice(t.Context(), app, device)
	if err != nil {
		t.Fatal(err)
	}
	for name, secret := range map[string]string{
		"another installation's token": foreign, "a refresh token": got.Refresh, "a device code": device, "a client secret": secret,
	} {
		a := w.api("GET", "/sites", secret, nil)
		if a.status != 401 || !strings.Contains(a.header.Get("WWW-Authenticate"), `error="invalid_token"`) {
			t.Errorf("%s: %s", name, a)
		}
	}
	for _, resource := range []string{"http://slipway.test/api/v2", "http://slipway.test/api/v1/", "https://other.test/api/v1"} {
		_, err := w.c.OAuth.Authorize(t.Context(), w.caller(u), url.Values{
			"client_id": {string(app.ID)}, "response_type": {"code"}, "resource": {resource}, "code_challenge_method": {"S256"},
			"code_challenge": {strings.Repeat("x", 43)},
		})
		if err == nil {
			t.Errorf("a token for %s is asked for", resource)
		}
	}
}
