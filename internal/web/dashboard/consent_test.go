package dashboard

import (
	"crypto/sha256"
	"encoding/base64"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"slipway/internal/platform/id"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/oauth"
)

const consentVerifier = "a-verifier-that-has-at-least-forty-three-characters"

// A user reads which app asks for which permissions, unticks some, and the app gets the rest. The user can end the
// access on the account page.
func TestConsent(t *testing.T) {
	t.Parallel()
	w, b, s := ada(t)
	ctx := t.Context()
	var app oauth.App
	must(t, w.db.Write(ctx, func(tx *db.Tx) (err error) {
		app, _, err = w.dash.OAuth.CreateAppTx(ctx, tx, s.Owner, oauth.NewApp{
			Name: "Acme Deploys", Website: "https://acme.test", RedirectURIs: []string{"https://acme.test/callback"},
		})
		return err
	}))
	sum := sha256.Sum256([]byte(consentVerifier))
	query := url.Values{
		"client_id": {string(app.ID)}, "redirect_uri": {"https://acme.test/callback"}, "response_type": {"code"}, "state": {"xyz"},
		"scope": {"sites:read env:read"}, "code_challenge": {base64.RawURLEncoding.EncodeToString(sum[:])}, "code_challenge_method": {"S256"},
	}
	p := b.get("/oauth/authorize?"+query.Encode()).want(t, 200, "Authorize Acme Deploys", "acme.test", "View your sites", "Sensitive", s.Name)
	if h := p.header; h.Get("X-Frame-Options") != "DENY" || !strings.Contains(h.Get("Content-Security-Policy"), "frame-ancestors 'none'") ||
		h.Get("Cross-Origin-Opener-Policy") != "unsafe-none" {
		t.Errorf("the consent page's headers are %v", h)
	}
	m := regexp.MustCompile(`name="request" value="([^"]+)"`).FindStringSubmatch(p.body)
	if m == nil {
		t.Fatal("the form carries no request")
	}
	if p := b.post("/oauth/authorize", "request", m[1]+"x", "decision", "allow", "scopes", "sites:read"); p.status != 409 {
		t.Errorf("a changed request: %d", p.status)
	}
	w.user("eve@example.test", false)
	if p := w.as("eve@example.test").post("/oauth/authorize", "request", m[1], "decision", "allow", "scopes", "sites:read"); p.status != 409 {
		t.Errorf("another person's request: %d", p.status)
	}
	b.post("/oauth/authorize", "request", m[1], "decision", "allow").want(t, 422, "Choose at least one permission", "Authorize Acme Deploys")
	b.post("/oauth/authorize", "request", m[1], "decision", "allow", "scopes", "env:write").want(t, 422, "didn&#39;t ask for this permission")
	refused := b.post("/oauth/authorize", "request", m[1], "decision", "deny").want(t, 200, "Continue")
	if !strings.Contains(refused.header.Get("Refresh"), "error=access_denied") {
		t.Errorf("a refusal leads to %q", refused.header.Get("Refresh"))
	}
	allowed := b.post("/oauth/authorize", "request", m[1], "decision", "allow", "scopes", "sites:read", "reach", "some", "sites", string(s.ID))
	to, ok := strings.CutPrefix(allowed.want(t, 200, "Continue").header.Get("Refresh"), "0; url=")
	u, err := url.Parse(to)
	if !ok || err != nil || u.Host != "acme.test" || u.Query().Get("state") != "xyz" || u.Query().Get("iss") != w.dash.BaseURL {
		t.Fatalf("consent leads to %q", to)
	}
	got, err := w.dash.OAuth.Redeem(ctx, app, u.Query().Get("code"), "https://acme.test/callback", consentVerifier)
	must(t, err)
	c, err := w.dash.OAuth.Authenticate(ctx, got.Access, netip.MustParseAddr("203.0.113.7"))
	if err != nil || c.Scopes.String() != "sites:read" || len(c.Sites) != 1 || id.Site(c.Sites[0]) != s.ID || c.Admin {
		t.Errorf("the app may %+v, %v", c, err)
	}
	b.get("/account/apps").want(t, 200, "Acme Deploys", "sites:read", s.Name)
	b.post("/account/apps/"+c.Grant+"/revoke").to(t, "/account/apps")
	if _, err := w.dash.OAuth.Authenticate(ctx, got.Access, netip.MustParseAddr("203.0.113.7")); err == nil {
		t.Error("a revoked app is let in")
	}
	query.Set("redirect_uri", "https://evil.test/callback")
	if p := b.get("/oauth/authorize?" + query.Encode()); p.header.Get("Refresh") != "" || p.header.Get("Location") != "" || p.status != 400 {
		t.Errorf("an unknown address: %d, %v", p.status, p.header)
	}
}

// After a device code is typed, its app is shown and can be allowed once. Guesses are counted.
func TestDevice(t *testing.T) {
	t.Parallel()
	w, b, _ := ada(t)
	ctx := t.Context()
	cli, err := w.dash.OAuth.Client(ctx, oauth.CLI, "")
	must(t, err)
	d, secret, err := w.dash.OAuth.BeginDevice(ctx, cli, "sites:read deployments:read", "203.0.113.9", "203.0.113.9")
	must(t, err)
	b.get("/device").want(t, 200, "Connect a device")
	b.post("/device", "code", "XXXX-XXXX").want(t, 404, "Unknown or expired code")
	code := oauth.FormatUserCode(d.Code)
	b.post("/device", "code", strings.ToLower(code)).want(t, 200, "Slipway CLI", "203.0.113.9", code, "only if you started this yourself")
	b.post("/device", "code", code, "decision", "allow", "scopes", string(account.SitesRead)).want(t, 200, "The device is connected")
	got, err := w.dash.OAuth.PollDevice(ctx, cli, secret)
	if err != nil || got.Scopes.String() != "sites:read" {
		t.Errorf("the device got %+v, %v", got, err)
	}
	limited := false
	for range 12 {
		limited = limited || b.post("/device", "code", "XXXX-XXXX").status == 429
	}
	if !limited {
		t.Error("codes can be guessed without end")
	}
}

// An app can be registered, changed and deleted, and its secret is shown once.
func TestRegisteredApp(t *testing.T) {
	t.Parallel()
	w, b, _ := ada(t)
	b.post("/account/oauth-apps/new", "name", "Slipway", "redirects", "https://a.test/cb").want(t, 422, `data-test="wrong-name"`)
	b.post("/account/oauth-apps/new", "name", "Acme", "redirects", "http://a.test/cb").want(t, 422, `data-test="wrong-redirects"`)
	p := b.post("/account/oauth-apps/new", "name", "Acme", "kind", "confidential", "redirects", "https://a.test/cb\nhttps://a.test/other").
		want(t, 200, "sls_", "Client secret")
	id := regexp.MustCompile(`app_[a-z0-9]{26}`).FindString(p.body)
	at := "/account/oauth-apps/" + id
	if p := b.get(at).want(t, 200, "Acme", "https://a.test/other"); strings.Contains(p.body, "sls_") {
		t.Error("the secret is shown again")
	}
	b.post(at, "name", "Acme 2", "redirects", "https://a.test/cb").to(t, at)
	b.post(at+"/rotate").want(t, 200, "sls_")
	b.get("/account/apps").want(t, 200, "Acme 2", id)
	b.post(at+"/delete").to(t, "/account/apps")
	b.get(at).want(t, 404)
	if w.logged("app.created") != 1 || w.logged("app.secret_rotated") != 1 || w.logged("app.deleted") != 1 {
		t.Error("the audit log misses something")
	}
}
