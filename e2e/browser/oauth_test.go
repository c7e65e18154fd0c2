//go:build browser

package browser

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"slipway/e2e/world"
)

const pkceVerifier = "a-verifier-that-has-at-least-forty-three-characters"

// foreignApp is an OAuth app with its own pages, at another origin of the same site, so that the browser sends SameSite
// cookies.
type foreignApp struct {
	*httptest.Server
	id       string // the app's client ID
	redirect string

	mu       sync.Mutex // guards the following fields
	pages    map[string]string
	referers []string // of requests to the redirect URI
}

func newForeignApp(t *testing.T) *foreignApp {
	a := &foreignApp{pages: map[string]string{}}
	a.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		body := a.pages[r.URL.Path]
		if r.URL.Path == "/callback" {
			a.referers = append(a.referers, r.Header.Get("Referer"))
			body = `<h1>Back at the app</h1><script>opener?.postMessage(location.search, '*')</script>`
		}
		a.mu.Unlock()
		rw.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprintf(rw, `<!doctype html><html lang="en"><title>App</title><link rel="icon" href="data:,">%s</html>`, body)
	}))
	t.Cleanup(a.Close)
	a.redirect = a.URL + "/callback"
	return a
}

// page sets the content of one of the app's pages.
func (a *foreignApp) page(path, body string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pages[path] = body
}

// cameFrom returns the Referer headers of the requests to the redirect URI.
func (a *foreignApp) cameFrom() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]string{}, a.referers...)
}

// authorize returns the URL at which the app requests scopes.
func (a *foreignApp) authorize(base, scope string) string {
	sum := sha256.Sum256([]byte(pkceVerifier))
	return base + "/oauth/authorize?" + url.Values{
		"client_id": {a.id}, "redirect_uri": {a.redirect}, "response_type": {"code"}, "scope": {scope}, "state": {"xyz"},
		"code_challenge": {base64.RawURLEncoding.EncodeToString(sum[:])}, "code_challenge_method": {"S256"},
	}.Encode()
}

// form sends a form to an endpoint of the authorization server.
func (h *harness) form(path string, form url.Values) (status int, body map[string]any) {
	h.t.Helper()
	answer, err := h.Do(h.t.Context(), world.Request{
		Method: "POST", URL: "http://" + h.Listen + path, Body: form.Encode(), Header: http.Header{"Content-Type": {"application/x-www-form-urlencoded"}},
	})
	if err == nil && len(answer.Body) > 0 {
		err = json.Unmarshal(answer.Body, &body)
	}
	if err != nil {
		h.t.Fatal(err)
	}
	return answer.Status, body
}

// signIn signs in a user of the installation.
func (w *Window) signIn(email string) {
	w.t.Helper()
	w.Go("/sign-in")
	w.Type("#f-email", email)
	w.Type("#f-password", password)
	w.Press("@submit")
}

// OAuth consent in a real browser. The consent page is accessible and names the app. An app can neither frame the page
// nor submit its form. The app receives the code, but no Referer. A popup tells its opener when it is done, and devices
// can be approved and denied.
func TestBrowserOAuth(t *testing.T) {
	t.Parallel()
	h := newHarness(t, "oauth")
	key, err := h.User(email)
	if err != nil {
		t.Fatal(err)
	}
	base, app := "http://"+h.Listen, newForeignApp(t)
	var made struct{ ID string }
	if err := h.Call(t.Context(), key, "POST", "/oauth/apps", map[string]any{"name": "Acme Deploys", "redirectUris": []string{app.redirect}}, &made); err != nil {
		t.Fatal(err)
	}
	app.id = made.ID
	grants := func() int {
		t.Helper()
		var list struct{ Data []any }
		if err := h.Call(t.Context(), key, "GET", "/oauth/grants", nil, &list); err != nil {
			t.Fatal(err)
		}
		return len(list.Data)
	}
	redeem := func(address string) map[string]any {
		t.Helper()
		u, err := url.Parse(address)
		if err != nil || u.Query().Get("code") == "" || u.Query().Get("iss") != base || u.Query().Get("state") != "xyz" {
			t.Fatalf("the app is reached at %s", address)
		}
		status, body := h.form("/oauth/token", url.Values{
			"grant_type": {"authorization_code"}, "client_id": {app.id}, "redirect_uri": {app.redirect}, "code": {u.Query().Get("code")},
			"code_verifier": {pkceVerifier},
		})
		if status != 200 {
			t.Fatalf("the code is exchanged for %d %v", status, body)
		}
		return body
	}
	w := h.window()
	w.Allow(app.URL)
	w.Allow(strings.Replace(app.URL, "127.0.0.1", "localhost", 1))
	w.signIn(email)

	// The consent page, and a denial.
	w.Go(app.authorize(base, "sites:read deployments:write env:read"))
	w.Sees("h1", "Authorize Acme Deploys")
	w.Look("consent")
	var sealed string
	w.Eval(`document.querySelector('[name="request"]').value`, &sealed)
	w.Press("@deny")
	w.Sees("h1", "Back at the app")
	var at string
	if w.Eval(`location.search`, &at); !strings.Contains(at, "error=access_denied") {
		t.Errorf("a refusal leads to %s", at)
	}

	// Another origin submits the form with the request value of this session.
	forged := fmt.Sprintf(`<form method="post" action="%s/oauth/authorize"><input name="request" value="%s"><input name="decision" value="allow">
		<input name="scopes" value="sites:read"><input name="reach" value="all"><button data-test="send">Win a prize</button></form>`,
		base, html.EscapeString(sealed))
	app.page("/forged", forged)
	for _, origin := range []string{app.URL, strings.Replace(app.URL, "127.0.0.1", "localhost", 1)} { // the same site, and another site
		before := len(app.cameFrom())
		w.Go(origin + "/forged")
		w.Expect(http.StatusForbidden)
		w.Press("@send")
		w.Sees("h1", "Cross-origin request blocked")
		if len(app.cameFrom()) != before {
			t.Errorf("a form of %s reaches the app", origin)
		}
	}

	// Another origin frames the consent page.
	app.page("/framed", `<h1>Prize</h1><iframe title="Prize" src="`+html.EscapeString(app.authorize(base, "sites:read"))+`"></iframe>`)
	w.Refuses("frame-ancestors")
	w.Refuses("chrome-error") // Chromium shows its own error page in the refused frame
	w.Go(app.URL + "/framed")
	w.Refused("frame-ancestors")
	var tree *page.FrameTree
	w.Run(chromedp.ActionFunc(func(ctx context.Context) (err error) {
		tree, err = page.GetFrameTree().Do(ctx)
		return err
	}))
	if len(tree.ChildFrames) != 1 || tree.ChildFrames[0].Frame.UnreachableURL == "" {
		t.Errorf("the framed page is shown: %+v", tree.ChildFrames)
	}

	// The app opens the consent page in a popup, which tells the app when it is done.
	app.page("/opener", `<h1>App</h1><p id="got"></p><button data-test="connect">Connect</button><script>
		onmessage = (e) => { got.textContent = e.data };
		document.querySelector('button').onclick = () => open(`+quoted(app.authorize(base, "sites:read deployments:write"))+`, 'popup', 'width=600,height=800')
	</script>`)
	w.Go(app.URL + "/opener")
	popup := w.Popup(func() { w.Click("@connect") })
	popup.Sees("h1", "Authorize Acme Deploys")
	popup.Click(`input[value="deployments:write"]`) // not this one
	popup.Click("@allow")
	w.Sees("#got", "code=")
	got := redeem(app.redirect + w.Text("#got"))
	if got["scope"] != "sites:read" {
		t.Errorf("the popup gave %v", got)
	}
	if n := grants(); n != 1 {
		t.Errorf("there are %d grants, want that of the popup", n)
	}
	for i, referer := range app.cameFrom() {
		if referer != "" {
			t.Errorf("the app's request %d comes with Referer %s", i, referer)
		}
	}

	w.Go("/account/apps")
	w.Sees("h3", "Acme Deploys")
	w.Look("apps")
	w.Press("@new-app")
	w.Look("app-new")
	w.Go("/account/oauth-apps/" + app.id)
	w.Look("app")

	// Devices can be allowed and denied.
	device := func(decision string) (status int, body map[string]any) {
		t.Helper()
		_, asked := h.form("/oauth/device", url.Values{"client_id": {app.id}, "scope": {"sites:read deployments:read"}})
		w.Go("/device")
		if decision == "allow" {
			w.Look("device")
		}
		w.Type("#f-code", asked["user_code"].(string))
		w.Press("@submit")
		w.Sees("h1", "Authorize Acme Deploys")
		if decision == "allow" {
			w.Look("device-consent")
		}
		w.Press("@" + decision)
		w.Sees("@done")
		return h.form("/oauth/token", url.Values{
			"client_id": {app.id}, "grant_type": {"urn:ietf:params:oauth:grant-type:device_code"}, "device_code": {asked["device_code"].(string)},
		})
	}
	if status, body := device("allow"); status != 200 || body["scope"] != "sites:read deployments:read" {
		t.Errorf("an approved device gets %d %v", status, body)
	}
	if status, body := device("deny"); status != 400 || body["error"] != "access_denied" {
		t.Errorf("a refused device gets %d %v", status, body)
	}
}

// A team's pages are accessible. Without mail, an operator creates the account of an invited person, who then signs in and is a member.
func TestBrowserTeam(t *testing.T) {
	t.Parallel()
	h := newHarness(t, "team")
	if _, err := h.User(email); err != nil {
		t.Fatal(err)
	}
	w := h.window()
	w.signIn(email)
	w.Go("/teams/new")
	w.Look("team-new")
	w.Type("#f-name", "Acme")
	w.Type("#f-slug", "acme")
	w.Press("@submit")
	w.Go("/teams/acme/invite")
	w.Look("team-invite")
	w.Type("#f-email", "ben@example.test")
	w.Press("@submit")
	w.Look("team-invited")
	link := strings.TrimSpace(w.Text("@invitation-link code"))

	ben := h.window()
	ben.Go(link)
	ben.Sees("@team", "Acme")
	ben.Sees("@needs-account", "an operator must create your account first")
	ben.Look("invitation")
	if _, err := h.User("ben@example.test"); err != nil {
		t.Fatal(err)
	}
	ben.Go(link)
	ben.Press("@sign-in")
	ben.Type("#f-email", "ben@example.test")
	ben.Type("#f-password", password)
	ben.Press("@submit")
	ben.Press("@submit")
	ben.Sees("@flash")
	ben.Go("/teams/acme/members")
	ben.Sees(`[data-test^="member-ben"]`, "You")

	w.Go("/teams/acme/members")
	w.Sees(`[data-test^="member-ben"]`)
	w.Look("team-members")
	w.Press(`a.button[aria-label^="Manage ben"]`)
	w.Look("team-member")
	for _, p := range [][2]string{
		{"/teams/acme/settings", "team-settings"},
		{"/teams/acme/audit", "team-audit"},
		{"/account/apps?team=acme", "team-apps"},
	} {
		w.Go(p[0])
		w.Look(p[1])
	}
}
