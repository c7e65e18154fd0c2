package dashboard

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"slipway/internal/platform/db"
	"slipway/internal/platform/seal"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/sso"
	"slipway/internal/web/dashboard/shell"
)

// newGitHub returns a fake GitHub Enterprise Server with one user, whose ID is 583231.
func newGitHub(t *testing.T) *httptest.Server {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /login/oauth/access_token", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.FormValue("code") != "good" || r.FormValue("client_secret") != "secret" || r.FormValue("code_verifier") == "" {
			fmt.Fprint(w, `{"error": "bad_verification_code"}`)
			return
		}
		fmt.Fprint(w, `{"access_token": "gho_1", "token_type": "bearer"}`)
	})
	api := func(body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer gho_1" {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			fmt.Fprint(w, body)
		}
	}
	mux.HandleFunc("GET /api/v3/user", api(`{"id": 583231, "login": "octocat", "email": "public@example.test"}`))
	mux.HandleFunc("GET /api/v3/user/emails", api(`[{"email": "old@example.test", "primary": false, "verified": true},
		{"email": "octo@example.test", "primary": true, "verified": true}]`))
	srv := httptest.NewTLSServer(mux)
	t.Cleanup(srv.Close)
	return srv
}

// withGitHub adds it as a provider trusted for the domain example.test.
func (w *world) withGitHub(srv *httptest.Server) {
	w.t.Helper()
	must(w.t, w.db.Write(w.t.Context(), func(tx *db.Tx) error {
		_, err := w.dash.SSO.CreateTx(w.t.Context(), tx, sso.NewProvider{
			Kind: sso.GitHub, Issuer: srv.URL, ClientID: "client", Secret: "secret", Domains: []string{"example.test"},
		})
		return err
	}))
}

// leave submits a form that leads to GitHub and returns the state sent along.
func (b *browser) leave(path string, form ...string) string {
	b.w.t.Helper()
	p := b.post(path, form...)
	_, to, ok := strings.Cut(p.header.Get("Refresh"), "url=")
	u, err := url.Parse(to)
	if !ok || err != nil || u.Path != "/login/oauth/authorize" {
		b.w.t.Fatalf("%s leads to %q: %s", path, to, p)
	}
	return u.Query().Get("state")
}

func callback(code, state string) string {
	return "/sign-in/sso/github/callback?" + url.Values{"code": {code}, "state": {state}}.Encode()
}

func newSSOWorld(t *testing.T) *world {
	t.Helper()
	srv := newGitHub(t)
	k, err := seal.Load(filepath.Join(t.TempDir(), "key"))
	must(t, err)
	w := newWorld(t, func(c *Config) {
		c.SSO = sso.New(sso.Config{DB: c.DB, Accounts: c.Accounts, Seal: k, Base: c.BaseURL, Out: srv.Client(), Log: c.Log})
	})
	w.withGitHub(srv)
	return w
}

// Without a provider, the sign-in and account pages don't mention providers.
func TestNoProviders(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.user("ada@example.test", false)
	if p := w.browser().get("/sign-in"); strings.Contains(p.body, "Continue with") {
		t.Errorf("the sign-in page offers providers: %s", p)
	}
	if p := w.as("ada@example.test").get("/account/security"); strings.Contains(p.body, "Linked accounts") {
		t.Errorf("the account page offers providers: %s", p)
	}
}

// A first sign-in creates an account if the provider is trusted for the address. The callback works once, only in the
// browser that started the sign-in, and redirects only within the dashboard.
func TestSignInWithGitHub(t *testing.T) {
	t.Parallel()
	w := newSSOWorld(t)
	b := w.browser()
	if p := b.get("/sign-in"); !p.has("sso-github") || !strings.Contains(p.body, "Continue with GitHub") {
		t.Fatalf("no button: %s", p)
	}
	state := b.leave("/sign-in/sso/github?next=/account")
	if p := w.browser().get(callback("good", state)); p.status != http.StatusBadRequest {
		t.Errorf("another browser finishes the sign-in: %s", p)
	}
	p := b.get(callback("good", state))
	if p.status != http.StatusSeeOther || p.header.Get("Location") != "/account" {
		t.Fatalf("signed in: %s", p)
	}
	if p := b.get("/account"); p.status != http.StatusOK || !strings.Contains(p.body, "octo@example.test") {
		t.Errorf("the account page: %s", p)
	}
	if p := b.get(callback("good", state)); p.status != http.StatusBadRequest {
		t.Errorf("the same answer works twice: %s", p)
	}

	evil := w.browser()
	p = evil.get(callback("good", evil.leave("/sign-in/sso/github?next=//evil.test/")))
	if p.header.Get("Location") != "/" {
		t.Errorf("it leads to %q", p.header.Get("Location"))
	}
	refused := w.browser()
	if p := refused.get(callback("bad", refused.leave("/sign-in/sso/github"))); p.status != http.StatusForbidden || len(p.header.Values("Set-Cookie")) != 0 {
		t.Errorf("a bad code: %s", p)
	}
}

// The operator's pages distinguish users who sign in with a provider from those with an open invitation, and offer to
// revoke only invitations.
func TestOperatorSeesLinkedUsers(t *testing.T) {
	t.Parallel()
	w := newSSOWorld(t)
	w.user("root@example.test", true)
	b := w.browser()
	if p := b.get(callback("good", b.leave("/sign-in/sso/github"))); p.status != http.StatusSeeOther {
		t.Fatal(p)
	}
	octo, err := w.dash.Accounts.UserByEmail(t.Context(), "octo@example.test")
	must(t, err)
	eve, err := w.dash.Accounts.CreateUser(t.Context(), "eve@example.test", "", false)
	must(t, err)
	root := w.as("root@example.test")
	list := root.get("/operator/users").body
	for _, tt := range []struct {
		id      account.UserID
		invited bool
	}{{octo.ID, false}, {eve.ID, true}} {
		_, row, _ := strings.Cut(list, `data-test="user-`+string(tt.id)+`"`)
		row, _, _ = strings.Cut(row, "</tr>")
		if got := strings.Contains(row, "Invited"); got != tt.invited {
			t.Errorf("the list says invited: %t, want %t: %s", got, tt.invited, row)
		}
		page := root.get("/operator/users/" + string(tt.id)).body
		if got := strings.Contains(page, "invite not accepted yet"); got != tt.invited {
			t.Errorf("the page says invited: %t, want %t", got, tt.invited)
		}
		if got := strings.Contains(page, "Revoke invite"); got != tt.invited {
			t.Errorf("the page offers to revoke the invite: %t, want %t", got, tt.invited)
		}
	}
	// A link to set a password is described as one.
	p := root.post("/operator/users/" + string(octo.ID) + "/link")
	if !strings.Contains(p.body, "Link to set a password") || strings.Contains(p.body, "invit") {
		t.Errorf("the link of a user who signs in with GitHub: %s", p)
	}
}

// A session cookie planted in the browser isn't reused by a sign-in (session fixation), and a form on another site
// can't start a sign-in.
func TestFixation(t *testing.T) {
	t.Parallel()
	w := newSSOWorld(t)
	b := w.browser()
	home, err := url.Parse(w.srv.URL)
	must(t, err)
	planted := strings.Repeat("A", 43)
	b.client.Jar.SetCookies(home, []*http.Cookie{{Name: shell.SessionCookie, Value: planted, Path: "/"}})
	if p := b.get(callback("good", b.leave("/sign-in/sso/github"))); p.status != http.StatusSeeOther {
		t.Fatal(p)
	}
	for _, c := range b.client.Jar.Cookies(home) {
		if c.Name == shell.SessionCookie && c.Value == planted {
			t.Error("the planted session signs in")
		}
	}
	p := w.browser().do(http.MethodPost, "/sign-in/sso/github", url.Values{}, "Sec-Fetch-Site: cross-site")
	if p.status != http.StatusForbidden || p.header.Get("Refresh") != "" {
		t.Errorf("another site begins a sign-in: %s", p)
	}
}

// A signed-in user can link and unlink an account. A browser that has signed out meanwhile links nothing.
func TestLinkedAccounts(t *testing.T) {
	t.Parallel()
	w := newSSOWorld(t)
	ada := w.user("octo@example.test", false) // the same address, which alone links nothing
	b := w.browser()
	if p := b.get(callback("good", b.leave("/sign-in/sso/github"))); p.status != http.StatusForbidden {
		t.Errorf("the address opens an account: %s", p)
	}
	b = w.as(ada.Email)
	state := b.leave("/account/identities/link", "provider", "github")
	b.post("/sign-out")
	if p := b.get(callback("good", state)); p.status != http.StatusBadRequest {
		t.Errorf("linked without a session: %s", p)
	}
	b = w.as(ada.Email)
	if p := b.get(callback("good", b.leave("/account/identities/link", "provider", "github"))); p.header.Get("Location") != "/account/security" {
		t.Fatalf("not linked: %s", p)
	}
	list, err := w.dash.SSO.Identities(t.Context(), ada.ID)
	must(t, err)
	if p := b.get("/account/security"); len(list) != 1 || !p.has("identity-"+string(list[0].ID)) {
		t.Fatalf("%d identities: %s", len(list), p)
	}
	other := w.browser()
	if p := other.get(callback("good", other.leave("/sign-in/sso/github"))); p.status != http.StatusSeeOther {
		t.Errorf("a linked account doesn't sign in: %s", p)
	}
	if p := b.post("/account/identities/" + string(list[0].ID) + "/unlink"); p.status != http.StatusSeeOther {
		t.Errorf("not unlinked: %s", p)
	}
	if p := other.get("/account"); p.status != http.StatusSeeOther {
		t.Errorf("a session of the unlinked account still works: %s", p)
	}
}

// The API's link URL first shows a form for the provider. Only submitting the form links.
func TestLinkFromElsewhere(t *testing.T) {
	t.Parallel()
	w := newSSOWorld(t)
	w.user("ada@example.test", false)
	b := w.as("ada@example.test")
	b.get("/account/security?link=github").want(t, 200, `data-test="link"`, "Link GitHub account", `name="provider" value="github"`)
	if p := b.get("/account/security"); strings.Contains(p.body, `data-test="link"`) {
		t.Error("it shows the form unasked")
	}
	b.get("/account/security?link=none").want(t, 404)
	w.stale()
	b.get("/account/security?link=github").want(t, 200, `name="current"`)
	b.post("/account/identities/link", "provider", "github").want(t, 403)
}
