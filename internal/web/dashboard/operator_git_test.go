package dashboard

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"slipway/internal/platform/db"
	"slipway/internal/platform/seal"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/connection"
	"slipway/internal/tenant/site"
)

// appForge is a fake GitHub for apps and a fake GitLab for OAuth.
type appForge struct{ key []byte }

func (f appForge) RoundTrip(r *http.Request) (*http.Response, error) {
	status, body := 200, ""
	switch r.URL.Host + r.URL.Path {
	case "api.github.com/app-manifests/made/conversions":
		status, body = 201, fmt.Sprintf(
			`{"slug": "slipway-test", "name": "Slipway test", "client_id": "Iv1.x", "client_secret": "planted-secret", "webhook_secret": "h", "pem": %q}`,
			f.key,
		)
	case "github.com/login/oauth/access_token":
		body = `{"access_token": "good-token", "expires_in": 28800, "refresh_token": "r"}`
	case "api.github.com/user/installations":
		body = `{"installations": []}`
	case "gitlab.test/oauth/token":
		body = `{"access_token": "good-token", "expires_in": 7200, "refresh_token": "r"}`
	case "gitlab.test/api/v4/user":
		body = `{"username": "octo"}`
	default:
		return forgeStandIn{}.RoundTrip(r)
	}
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

func newAppWorld(t *testing.T) *world {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)
	text := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	return newWorld(t, func(c *Config) {
		k, err := seal.Load(filepath.Join(t.TempDir(), "key"))
		must(t, err)
		c.Connections = connection.New(connection.Config{
			DB:    c.DB,
			Seal:  k,
			Out:   &http.Client{Transport: appForge{bytes.TrimSpace(text)}},
			Base:  c.BaseURL,
			Hooks: c.BaseURL,
		})
	})
}

// siteWith creates a site that uses the owner's only connected account, and returns the path of its Git page.
func (w *world) siteWith(u account.User, repository string) string {
	w.t.Helper()
	list, err := w.dash.Connections.List(w.t.Context(), w.db, u.Owner)
	must(w.t, err)
	s, err := w.dash.Sites.Create(w.t.Context(), u.Owner, site.NewSite{
		Name:       "Connected",
		Type:       "static",
		Repository: repository,
		Branch:     "main",
	})
	must(w.t, err)
	must(w.t, w.db.Write(w.t.Context(), func(tx *db.Tx) error {
		return w.dash.Connections.UseTx(w.t.Context(), tx, u.Owner, s.ID, repository, connection.Use{Connection: list[0].ID})
	}))
	return "/sites/" + string(s.ID) + "/git"
}

// state returns the state parameter of a URL.
func state(t *testing.T, to string) string {
	t.Helper()
	u, err := url.Parse(html.UnescapeString(to))
	must(t, err)
	return url.QueryEscape(u.Query().Get("state"))
}

// The operator creates a GitHub App with one click, and users connect by signing in with it. A provider's response
// counts only in the session that started the request, and once.
func TestGitHubAppPages(t *testing.T) {
	t.Parallel()
	w := newAppWorld(t)
	w.user("root@example.test", true)
	ada := w.user("ada@example.test", false)
	w.user("eve@example.test", false)
	root, b, eve := w.as("root@example.test"), w.as("ada@example.test"), w.as("eve@example.test")
	root.get("/operator/git").want(t, 200, "Create GitHub App", "/account/git/callback")
	if p := root.post("/operator/git/github", "organization", "a/b"); p.status != 422 || !p.has("wrong-organization") {
		t.Errorf("a bad organization: %s", p)
	}
	p := root.post("/operator/git/github", "organization", "acme", "public", "1").want(t, 200, "Continue to github.com", `name="manifest"`)
	if csp := p.header.Get("Content-Security-Policy"); !strings.Contains(
		csp,
		"form-action 'self' https://github.com;",
	) && !strings.HasSuffix(csp, "form-action 'self' https://github.com") {
		t.Errorf("the policy is %s", csp)
	}
	to := regexp.MustCompile(`action="(https://github.com/organizations/acme/settings/apps/new[^"]*)"`).FindStringSubmatch(p.body)
	if to == nil {
		t.Fatal(main(p.body))
	}
	back := "/operator/git/created?code=made&state=" + state(t, to[1])
	for name, x := range map[string]*browser{"a user": b, "nobody": w.browser()} {
		if p := x.get(back); p.status != 404 && p.status != 303 {
			t.Errorf("GitHub's answer, brought by %s: %d", name, p.status)
		}
	}
	other := w.as("root@example.test")
	other.get(back).want(t, 400, "begun in another browser")
	root.get(back).to(t, "/operator/git")
	root.get(back).want(t, 400, "Begin again")
	p = root.get("/operator/git").want(t, 200, "Slipway test", "github.com/apps/slipway-test")
	if strings.Contains(p.body, "planted-secret") {
		t.Error("the app's secret is shown")
	}
	if p := root.post("/operator/git/github"); p.status != 422 && p.status != 409 || !p.has("wrong-github_host") {
		t.Errorf("a second app for GitHub: %s", p)
	}

	list, err := w.dash.Connections.Apps(t.Context(), w.db)
	must(t, err)
	id := string(list[0].ID)
	b.get("/account/git").want(t, 200, "Sign in to connect", `value="`+id+`"`)
	p = b.post("/account/git/sign-in", "app", id).want(t, 200, "Continue to github.com")
	onward := p.header.Get("Refresh")
	if !strings.HasPrefix(onward, "0; url=https://github.com/login/oauth/authorize?") {
		t.Errorf("leads to %s", onward)
	}
	back = "/account/git/callback?code=x&state=" + state(t, strings.TrimPrefix(onward, "0; url="))
	eve.get(back).want(t, 400, "begun in another browser") // otherwise the accounts would be mixed up
	p = b.get(back).want(t, 200, "Continue to github.com")
	if to := p.header.Get("Refresh"); to != "0; url=https://github.com/apps/slipway-test/installations/new" {
		t.Errorf("who has no repositories is led to %s", to)
	}
	b.get("/account/git/installed?installation_id=77&setup_action=install").to(t, "/new")
	b.get("/account/git").want(t, 200, "octo", "by sign-in", "Add repositories")
	if mine, err := w.dash.Connections.List(t.Context(), w.db, ada.Owner); err != nil || len(mine) != 1 {
		t.Errorf("connected: %v, %v", mine, err)
	}
	if p := eve.get("/account/git"); strings.Contains(p.body, "octo") {
		t.Error("Eve sees Ada's account")
	}
	git := w.siteWith(ada, "github.com/octo/site")
	b.get(git).want(t, 200, "No webhook is needed", "https://github.com/apps/slipway-test/installations/new", "Use a webhook instead")
	b.press(b.get(git), "Create Git hook").to(t, git)
	if p := b.get(git).want(t, 200, "Payload URL"); p.has("by-app") {
		t.Error("the page says that a site with a Git hook needs none")
	}
	b.get("/account/git/callback?state=x&code=y").want(t, 400, "Begin again")
	if p := b.post("/account/git/sign-in", "app", "gap_none"); p.status != 404 {
		t.Errorf("an unknown app: %d", p.status)
	}
	b.get("/operator/git").want(t, 404)
	root.post("/operator/git/"+id+"/delete").to(t, "/operator/git")
	if p := b.get("/account/git"); strings.Contains(p.body, "octo") || p.has("apps") {
		t.Error("the account outlives its app")
	}
}

// The operator adds an OAuth app, and users connect with it.
func TestOAuthAppPages(t *testing.T) {
	t.Parallel()
	w := newAppWorld(t)
	w.user("root@example.test", true)
	root := w.as("root@example.test")
	form := func(pairs ...string) []string {
		return append([]string{
			"provider", "gitlab", "host", "gitlab.test", "client_id", "id-1", "client_secret", "planted-secret",
		}, pairs...)
	}
	for field, bad := range map[string]string{"host": "a b", "client_id": "", "client_secret": "x y"} {
		f := form()
		for i := 0; i < len(f); i += 2 {
			if f[i] == field {
				f[i+1] = bad
			}
		}
		if p := root.post("/operator/git", f...); p.status != 422 || !p.has("wrong-"+field) || strings.Contains(p.body, "planted-secret") {
			t.Errorf("%s %q: %s", field, bad, p)
		}
	}
	root.post("/operator/git", form()...).to(t, "/operator/git")
	if p := root.get("/operator/git").want(t, 200, "gitlab.test", "OAuth app"); strings.Contains(p.body, "planted-secret") {
		t.Error("the secret is shown")
	}
	list, err := w.dash.Connections.Apps(t.Context(), w.db)
	must(t, err)
	for box, scope := range map[string]string{"": "scope=api&", "1": "scope=read_api+read_repository"} {
		p := root.post("/account/git/sign-in", "app", string(list[0].ID), "read_only", box)
		if to := p.header.Get("Refresh"); !strings.Contains(to+"&", scope) {
			t.Errorf("read only %q: %s", box, to)
		}
	}
	p := root.post("/account/git/sign-in", "app", string(list[0].ID))
	root.get("/account/git/callback?code=x&state="+state(t, strings.TrimPrefix(p.header.Get("Refresh"), "0; url="))).to(t, "/account/git")
	root.get("/account/git").want(t, 200, "octo", "gitlab.test")
}
