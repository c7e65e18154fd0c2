package dashboard

import (
	"crypto/sha256"
	"encoding/base64"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/oauth"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/team"
	"slipway/internal/tenant/webhook"
)

var sealedRequest = regexp.MustCompile(`name="request" value="([^"]+)"`)

// consenting is Ada's team with the developer Grace, and another user's app.
type consenting struct {
	*world
	t          *testing.T
	acme       team.Team
	ada, grace *browser
	app        oauth.App
	shop       site.Site
}

func newConsenting(t *testing.T, change ...func(*Config)) *consenting {
	w := &consenting{world: newWorld(t, change...), t: t}
	ctx := t.Context()
	ada, eve := w.user("ada@example.test", false), w.user("eve@example.test", false)
	grace := w.user("grace@example.test", false)
	must(t, w.db.Write(ctx, func(tx *db.Tx) (err error) {
		if w.acme, err = w.dash.Teams.CreateTx(ctx, tx, ada, team.NewTeam{Name: "Acme"}); err != nil {
			return err
		}
		c, err := w.dash.Accounts.CallerFor(ctx, tx, ada, w.acme.Owner)
		if err != nil {
			return err
		}
		_, token, err := w.dash.Teams.InviteTx(ctx, tx, c, team.NewInvitation{Email: "grace@example.test", Role: account.RoleDeveloper})
		if err == nil {
			_, _, err = w.dash.Teams.AcceptTx(ctx, tx, grace, token)
		}
		if err == nil {
			w.shop, err = w.dash.Sites.CreateTx(ctx, tx, w.acme.Owner, site.NewSite{Name: "Shop", Type: "static", Repository: "git.test/acme/shop"})
		}
		if err == nil {
			w.app, _, err = w.dash.OAuth.CreateAppTx(ctx, tx, eve.Owner, oauth.NewApp{
				Name: "Deployer", RedirectURIs: []string{"https://app.test/callback"},
			})
		}
		return err
	}))
	w.ada, w.grace = w.as("ada@example.test"), w.as("grace@example.test")
	return w
}

// ask returns the URL of the consent page.
func (w *consenting) ask(scope, team string) string {
	sum := sha256.Sum256([]byte(consentVerifier))
	v := url.Values{
		"client_id": {string(w.app.ID)}, "redirect_uri": {"https://app.test/callback"}, "response_type": {"code"}, "scope": {scope},
		"code_challenge": {base64.RawURLEncoding.EncodeToString(sum[:])}, "code_challenge_method": {"S256"},
	}
	if team != "" {
		v.Set("team", team)
	}
	return "/oauth/authorize?" + v.Encode()
}

// allow consents to scopes for the team and returns the app's access token.
func (w *consenting) allow(b *browser, scopes ...string) (token string) {
	w.t.Helper()
	p := b.get(w.ask(strings.Join(scopes, " "), "acme")).want(w.t, 200, `action="/oauth/authorize?team=acme"`)
	pairs := []string{"request", sealedRequest.FindStringSubmatch(p.body)[1], "decision", "allow", "reach", "all"}
	for _, s := range scopes {
		pairs = append(pairs, "scopes", s)
	}
	to := strings.TrimPrefix(b.post("/oauth/authorize?team=acme", pairs...).want(w.t, 200, "Continue").header.Get("Refresh"), "0; url=")
	u, err := url.Parse(to)
	must(w.t, err)
	got, err := w.dash.OAuth.Redeem(w.t.Context(), w.app, u.Query().Get("code"), "https://app.test/callback", consentVerifier)
	must(w.t, err)
	return got.Access
}

func (w *consenting) authenticate(token string) (account.Caller, error) {
	return w.dash.OAuth.Authenticate(w.t.Context(), token, netip.MustParseAddr("203.0.113.7"))
}

// An app acts for the chosen team with the user's current role: a lower role applies from the next request, and a
// removed user's app loses access. A consent page opened for one account can't decide for another.
func TestConsentForTeam(t *testing.T) {
	t.Parallel()
	w := newConsenting(t)
	ctx := t.Context()
	grace := w.users["grace@example.test"]
	own := w.grace.get(w.ask("sites:read", "")).want(t, 200, "Your personal account", "team=acme")
	sealed := sealedRequest.FindStringSubmatch(own.body)[1]
	if p := w.grace.post("/oauth/authorize?team=acme", "request", sealed, "decision", "allow", "scopes", "sites:read"); p.status != 409 {
		t.Errorf("a page for the own account decides for the team: %s", p)
	}
	if p := w.as("eve@example.test").get(w.ask("sites:read", "acme")); p.status != 404 {
		t.Errorf("a stranger authorizes an app for the team: %s", p)
	}
	if p := w.grace.get(w.ask("sites:read audit:read", "acme")); !strings.Contains(p.body, `value="audit:read" disabled`) {
		t.Errorf("what the role doesn't include can be ticked: %s", p)
	}
	token := w.allow(w.grace, "sites:read", "deployments:write")
	c, err := w.authenticate(token)
	if err != nil || c.Owner != w.acme.Owner || team.ID(c.Team) != w.acme.ID || c.Admin || c.Scopes.Include(account.All) {
		t.Fatalf("the app is %+v, %v", c, err)
	}
	if c.Require(account.DeploymentsWrite) != nil || c.Require(account.EnvRead) == nil {
		t.Errorf("the app may %s", c.Scopes)
	}
	change := func(fn func(tx *db.Tx, by account.Caller) error) {
		t.Helper()
		must(t, w.db.Write(ctx, func(tx *db.Tx) error {
			by, err := w.dash.Accounts.CallerFor(ctx, tx, w.users["ada@example.test"], w.acme.Owner)
			if err != nil {
				return err
			}
			return fn(tx, by)
		}))
	}
	change(func(tx *db.Tx, by account.Caller) error {
		_, err := w.dash.Teams.ChangeTx(ctx, tx, by, grace.ID, account.RoleViewer)
		return err
	})
	if c, err = w.authenticate(token); err != nil || c.Require(account.DeploymentsWrite) == nil || c.Require(account.SitesRead) != nil {
		t.Errorf("with a lower role the app may %s, %v", c.Scopes, err)
	}
	w.ada.get("/account/apps?team=acme").want(t, 200, "Deployer", "by grace@example.test")
	if p := w.ada.get("/account/apps"); strings.Contains(p.body, "Deployer") {
		t.Error("the team's grant is among the person's own")
	}
	change(func(tx *db.Tx, by account.Caller) error {
		_, _, err := w.dash.Teams.RemoveTx(ctx, tx, by, grace.ID)
		return err
	})
	if _, err := w.authenticate(token); !fault.Is(err, fault.Unauthorized) {
		t.Errorf("a removed member's app: %v", err)
	}
	var left int
	must(t, w.db.QueryRow(ctx, `SELECT count(*) FROM oauth_grants WHERE owner_id = $1`, w.acme.Owner).Scan(&left))
	if left != 0 {
		t.Errorf("%d grants would live again when the member comes back", left)
	}
}

// Under a team's app policy, members request and admins approve apps. Apps that aren't approved lose access, and what
// they created is deleted.
func TestAppPolicy(t *testing.T) {
	t.Parallel()
	w := newConsenting(t)
	token := w.allow(w.grace, "sites:read")
	if p := w.grace.post("/teams/acme/apps", "apps", "all"); p.status != 403 {
		t.Errorf("a developer changes the policy: %s", p)
	}
	w.ada.post("/teams/acme/apps", "apps", "approved").to(t, "/teams/acme/settings")
	w.ada.get("/teams/acme/settings").want(t, 200, "Access ended of Deployer")
	if _, err := w.authenticate(token); !fault.Is(err, fault.Unauthorized) {
		t.Errorf("an app that isn't approved: %v", err)
	}
	p := w.grace.get(w.ask("sites:read", "acme")).want(t, 200, `data-test="not-allowed"`)
	sealed := sealedRequest.FindStringSubmatch(p.body)[1]
	if p := w.grace.post("/oauth/authorize?team=acme", "request", sealed, "decision", "allow", "scopes", "sites:read", "reach", "all"); p.status != 403 {
		t.Errorf("allowed against the policy: %s", p)
	}
	w.grace.post("/oauth/authorize?team=acme", "request", sealed, "decision", "request").to(t, "/account/apps?team=acme")
	if p := w.grace.post("/account/apps/decide?team=acme", "app", string(w.app.ID), "decision", "approve"); p.status != 403 {
		t.Errorf("a developer approves: %s", p)
	}
	w.ada.get("/account/apps?team=acme").want(t, 200, "Requested", "requested by grace@example.test")
	w.ada.post("/account/apps/decide?team=acme", "app", string(w.app.ID), "decision", "approve").to(t, "/account/apps?team=acme")
	if _, err := w.authenticate(token); !fault.Is(err, fault.Unauthorized) {
		t.Errorf("an app's old token once it is approved: %v", err)
	}
	token = w.allow(w.grace, "sites:read")
	w.ada.post("/account/apps/decide?team=acme", "app", string(w.app.ID), "decision", "remove").to(t, "/account/apps?team=acme")
	if _, err := w.authenticate(token); !fault.Is(err, fault.Unauthorized) {
		t.Errorf("an app that was taken off the list: %v", err)
	}
	w.ada.post("/teams/acme/apps", "apps", "all").to(t, "/teams/acme/settings")
	token = w.allow(w.grace, "sites:read")
	w.ada.post("/teams/acme/apps", "apps", "none").to(t, "/teams/acme/settings")
	if _, err := w.authenticate(token); !fault.Is(err, fault.Unauthorized) {
		t.Errorf("an app where none is allowed: %v", err)
	}
	if p := w.grace.get(w.ask("sites:read", "")); p.has("not-allowed") {
		t.Error("the policy holds for personal accounts")
	}
}

// Ending an app's access stops its webhooks and deletes its deploy hooks.
func TestUninstall(t *testing.T) {
	t.Parallel()
	w := newConsenting(t)
	ctx := t.Context()
	token := w.allow(w.grace, "webhooks:write", "deployments:write")
	c, err := w.authenticate(token)
	must(t, err)
	var made, kept webhook.Webhook
	var hook, other site.Hook
	must(t, w.db.Write(ctx, func(tx *db.Tx) (err error) {
		if made, err = w.dash.Webhooks.CreateTx(ctx, tx, c.Owner, webhook.NewWebhook{URL: "https://app.test/events", Events: []string{"deployment.completed"}}); err != nil {
			return err
		}
		if kept, err = w.dash.Webhooks.CreateTx(ctx, tx, c.Owner, webhook.NewWebhook{URL: "https://own.test/events", Events: []string{"deployment.completed"}}); err != nil {
			return err
		}
		if hook, err = w.dash.Sites.CreateHookTx(ctx, tx, c.Owner, w.shop.ID, site.NewHook{Name: "App"}); err != nil {
			return err
		}
		if other, err = w.dash.Sites.CreateHookTx(ctx, tx, c.Owner, w.shop.ID, site.NewHook{Name: "CMS"}); err != nil {
			return err
		}
		if err := w.dash.OAuth.MadeTx(ctx, tx, c, oauth.Webhook, string(made.ID)); err != nil {
			return err
		}
		return w.dash.OAuth.MadeTx(ctx, tx, c, oauth.DeployHook, hook.ID.Ref())
	}))
	w.ada.post("/sites/"+string(w.shop.ID)+"/hooks/rotate", "hook", hook.ID.Reveal()).to(t, "/sites/"+string(w.shop.ID)+"/hooks") // stays the app's
	w.ada.get("/account/apps?team=acme").want(t, 200, "created 2 integrations", c.Grant+"/revoke?team=acme")
	w.grace.post("/account/apps/"+c.Grant+"/revoke?team=acme").to(t, "/account/apps?team=acme")
	if _, err := w.dash.Webhooks.Get(ctx, c.Owner, made.ID); !fault.Is(err, fault.NotFound) {
		t.Errorf("the app's webhook: %v", err)
	}
	if _, err := w.dash.Webhooks.Get(ctx, c.Owner, kept.ID); err != nil {
		t.Errorf("the team's own webhook: %v", err)
	}
	list, err := w.dash.Sites.Hooks(ctx, c.Owner, w.shop.ID)
	if err != nil || len(list) != 1 || list[0].ID != other.ID {
		t.Errorf("deploy hooks after the app's end: %+v, %v", list, err)
	}
	var left int
	must(t, w.db.QueryRow(ctx, `SELECT count(*) FROM oauth_made`).Scan(&left))
	if left != 0 {
		t.Errorf("%d things are still remembered", left)
	}
}
