package dashboard

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"slipway/internal/deploy/deployment"
	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/confirmation"
	"slipway/internal/tenant/connection"
	"slipway/internal/tenant/notify"
	"slipway/internal/tenant/oauth"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/team"
	"slipway/internal/tenant/webhook/delivery"
	"slipway/internal/web/dashboard/shell"
)

// things maps each placeholder in paths to a resource of Ada's.
type things map[string]string

func (w *world) things() things {
	w.t.Helper()
	ctx := w.t.Context()
	ada := w.users["ada@example.test"]
	s := w.site(ada, "Ada's site")
	k, _, err := w.dash.Accounts.CreateKey(ctx, ada.ID, account.NewKey{Name: "Ada's key", Scopes: account.Scopes{account.All}})
	if err != nil {
		w.t.Fatal(err)
	}
	list, err := w.dash.Accounts.Sessions(ctx, ada.ID)
	if err != nil || len(list) == 0 {
		w.t.Fatal("Ada is not signed in:", err)
	}
	dep, dom, hook := w.parts(ada, s.ID)
	var delivery delivery.ID
	must(w.t, w.db.Write(ctx, func(tx *db.Tx) error {
		delivery, err = w.dash.Webhooks.PingTx(ctx, tx, ada.Owner, hook)
		return err
	}))
	var con connection.Connection
	var ch notify.Channel
	must(w.t, w.db.Write(ctx, func(tx *db.Tx) error {
		k, err := w.dash.Connections.Check(ctx, connection.NewConnection{Provider: "github", Token: "good-token"})
		if err != nil {
			return err
		}
		if con, err = w.dash.Connections.CreateTx(ctx, tx, ada.Owner, k); err != nil {
			return err
		}
		ch, err = w.dash.Notify.CreateTx(ctx, tx, ada.Owner, notify.NewChannel{Kind: notify.Slack, URL: "https://hooks.example.test/x"})
		return err
	}))
	must(
		w.t,
		w.db.Admin(
			ctx,
			fmt.Sprintf(
				"INSERT INTO git_pulls (site_id, number, title, branch, source, author, commit_hash, open, fork, approved, updated_at) VALUES ('%s', 7, 'Cart', 'cart', '', 'octo', '%s', TRUE, FALSE, '', 1)",
				s.ID,
				commitA,
			),
		),
	)
	var client oauth.App
	must(w.t, w.db.Write(w.t.Context(), func(tx *db.Tx) (err error) {
		client, _, err = w.dash.OAuth.CreateAppTx(w.t.Context(), tx, ada.Owner, oauth.NewApp{Name: "Planned"})
		return err
	}))
	var crew team.Team
	var invitation team.Invitation
	must(w.t, w.db.Write(ctx, func(tx *db.Tx) (err error) {
		if crew, err = w.dash.Teams.CreateTx(ctx, tx, ada, team.NewTeam{Name: "Crew"}); err != nil {
			return err
		}
		c, err := w.dash.Accounts.CallerFor(ctx, tx, ada, crew.Owner)
		if err != nil {
			return err
		}
		invitation, _, err = w.dash.Teams.InviteTx(ctx, tx, c, team.NewInvitation{Email: "grace@example.test", Role: account.RoleViewer})
		return err
	}))
	call, err := confirmation.New(w.db).Take(ctx, agentOf(ada), confirmation.Call{Tool: "delete_site", Title: "Delete a site"})
	must(w.t, err)
	return things{
		"{confirmation}": string(call.ID),
		"{team}":         crew.Slug,
		"{invitation}":   invitation.ID,
		"{number}":       "7",
		"{connection}":   string(con.ID),
		"{channel}":      string(ch.ID),
		"{picture}":      w.withIcon(s, map[string]string{"i.png": "\x89PNG\r\n\x1a\n"}) + ".icon",
		"{delivery}":     string(delivery),
		"{deployment}":   string(dep),
		"{domain}":       string(dom),
		"{webhook}":      string(hook),
		"{var}":          "GREETING",
		"{id}":           string(s.ID),
		"{site}":         string(s.ID),
		"{key}":          string(k.ID),
		"{session}":      string(list[len(list)-1].ID),
		"{user}":         string(ada.ID),
		"{passkey}":      "psk_none",
		"{app}":          "gap_none",
		"{client}":       string(client.ID),
		"{grant}":        "grt_none",
		"{provider}":     "none",
		"{identity}":     "idn_none",
		"{token}":        "no-such-link",
		"{name}":         w.dash.shell.Assets.Names["app.css"],
	}
}

func (th things) fill(path string) string {
	path = strings.TrimSuffix(path, "{$}")
	for name, v := range th {
		path = strings.ReplaceAll(path, name, v)
	}
	return path
}

// Every route admits exactly the users it should. Ada's resources are a 404 for Eve, and operator pages are a 404 for
// other users.
func TestMatrix(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.user("ada@example.test", false)
	w.user("eve@example.test", false)
	w.user("root@example.test", true)
	ada, eve, root := w.as("ada@example.test"), w.as("eve@example.test"), w.as("root@example.test")
	th := w.things()
	// owned reports whether a path names a resource of Ada's.
	owned := func(path string) bool {
		for _, p := range []string{
			"{id}", "{site}", "{key}", "{session}", "{passkey}", "{hook}", "{domain}", "{deployment}", "{webhook}",
			"{delivery}", "{connection}", "{channel}", "{client}", "{grant}", "{team}", "{confirmation}", "{identity}", "{provider}",
		} {
			if strings.Contains(path, p) {
				return true
			}
		}
		return false
	}
	for _, rt := range w.dash.routes {
		path := th.fill(rt.Path)
		if strings.Contains(path, "{") && !owned(rt.Path) {
			t.Errorf("%s %s: the matrix does not know what to put into the path", rt.Method, rt.Path)
			continue
		}
		form := map[string]url.Values{http.MethodPost: {}}[rt.Method]
		send := func(b *browser) reply { return b.do(rt.Method, path, form, "Accept: text/html") }
		anon := send(w.browser())
		switch rt.Access {
		case shell.User, shell.Operator, shell.Halfway:
			if anon.status != 303 || !strings.HasPrefix(anon.header.Get("Location"), "/sign-in") {
				t.Errorf("%s %s for nobody: %d to %q, want the sign-in page", rt.Method, rt.Path, anon.status, anon.header.Get("Location"))
			}
			for _, kind := range []string{"text/event-stream", "application/json"} {
				if p := w.browser().do(rt.Method, path, form, "Accept: "+kind); p.status != 401 {
					t.Errorf("%s %s for nobody, as %s: %d, want 401", rt.Method, rt.Path, kind, p.status)
				}
			}
		case shell.Open, shell.SignedOut:
			if anon.status == 303 && strings.HasPrefix(anon.header.Get("Location"), "/sign-in") && rt.Path != "/sign-out" {
				t.Errorf("%s %s wants a user", rt.Method, rt.Path)
			}
		}
		if strings.HasPrefix(rt.Path, "/live/") || strings.HasSuffix(rt.Path, "/follow") {
			continue // streams last until the browser leaves; TestLive covers them
		}
		if rt.Access == shell.User && owned(rt.Path) {
			if p := send(eve); p.status != 404 {
				t.Errorf("%s %s for a stranger: %d, want 404", rt.Method, rt.Path, p.status)
			}
			if p := send(root); p.status != 404 {
				t.Errorf("%s %s for the operator, whose it is not: %d, want 404", rt.Method, rt.Path, p.status)
			}
		}
		if rt.Access == shell.Operator {
			if p := send(eve); p.status != 404 {
				t.Errorf("%s %s for a user: %d, want 404", rt.Method, rt.Path, p.status)
			}
			if rt.Method == http.MethodGet && rt.Path != connection.CreatedPath { // that page needs GitHub's parameters
				if p := send(root); p.status != 200 {
					t.Errorf("%s %s for the operator: %d, want 200", rt.Method, rt.Path, p.status)
				}
			}
		}
		if rt.Access == shell.User && rt.Method == http.MethodGet && !strings.Contains(
			rt.Path,
			"{passkey}",
		) && rt.Path != connection.CallbackPath && rt.Path != "/access" && rt.Path != "/oauth/authorize" {
			if p := send(ada); p.status != 200 && p.status != 303 {
				t.Errorf("%s %s for its owner: %d", rt.Method, rt.Path, p.status)
			}
		}
	}
}

// If the live commit can be rebuilt with changed settings, every page of the site says so.
func TestMatrixRedeploy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	u := w.user("ada@example.test", false)
	ada := w.as("ada@example.test")
	th := w.things()
	s, err := w.dash.Sites.Get(t.Context(), u.Owner, site.ID(th["{site}"]))
	must(t, err)
	must(t, w.db.Admin(t.Context(), fmt.Sprintf("UPDATE deployments SET commit_hash = '%s' WHERE id = '%s'", commitA, th["{deployment}"])))
	w.live(s, deployment.ID(th["{deployment}"]))
	// A release ID in the real format.
	must(t, w.db.Admin(t.Context(), fmt.Sprintf("UPDATE sites SET live_release = '%064x' WHERE id = '%s'", 1, s.ID)))
	ada.post("/sites/"+string(s.ID)+"/settings", "part", "build", "build_output", "dist").to(t, "/sites/"+string(s.ID)+"/settings")
	said := 0
	for _, rt := range w.dash.routes {
		if rt.Method != http.MethodGet || !strings.HasPrefix(rt.Path, "/sites/{id}") || strings.HasSuffix(rt.Path, "/follow") {
			continue
		}
		p := ada.get(th.fill(rt.Path))
		if p.status >= 500 {
			t.Errorf("%s: %d", rt.Path, p.status)
		}
		if p.has("redeploy-live") {
			said++
		}
	}
	if said < 15 {
		t.Errorf("%d pages offer to redeploy the live commit", said)
	}
}

// A user whose second factor is pending can open only the page that asks for it.
func TestHalfway(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ada := w.user("ada@example.test", true)
	w.as("ada@example.test")
	th := w.things()
	if err := w.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(
			t.Context(),
			`INSERT INTO second_factors (user_id, secret, confirmed, last_step, created_at) VALUES ($1, 'x', TRUE, 0, 1)`,
			ada.ID,
		)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	b := w.browser()
	if p := b.post(
		"/sign-in?next=/account", "email", "ada@example.test", "password", password,
	); p.header.Get("Location") != "/sign-in/code?next=%2Faccount" {
		t.Fatal(p)
	}
	for _, rt := range w.dash.routes {
		if rt.Access != shell.User && rt.Access != shell.Operator {
			continue
		}
		p := b.do(rt.Method, th.fill(rt.Path), map[string]url.Values{http.MethodPost: {}}[rt.Method])
		if p.status != 303 || !strings.HasPrefix(p.header.Get("Location"), "/sign-in/code") {
			t.Errorf("%s %s with half a sign-in: %d to %q", rt.Method, rt.Path, p.status, p.header.Get("Location"))
		}
	}
	if p := b.get("/sign-in/code"); p.status != 200 || !p.has("submit") {
		t.Fatal(p)
	}
}

// Every response has the content security policy. No page has inline scripts or styles, loads from another host, or is
// large.
func TestPolicy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	u := w.user("ada@example.test", true)
	ada := w.as("ada@example.test")
	th := w.things()
	w.sites(u, 30, `<img src=x onerror=alert(1)> "' </script>`)
	for _, rt := range w.dash.routes {
		if strings.HasPrefix(rt.Path, "/live/") || strings.HasSuffix(rt.Path, "/follow") {
			continue
		}
		var form url.Values
		b := ada
		if rt.Access == shell.SignedOut || rt.Access == shell.Open || rt.Method == http.MethodPost { // Ada stays signed in
			b = w.browser()
		}
		if rt.Method == http.MethodPost {
			form = url.Values{}
		}
		p := b.do(rt.Method, th.fill(rt.Path), form)
		csp := p.header.Get("Content-Security-Policy")
		wants := []string{
			"default-src 'self'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'", "base-uri 'none'",
			"form-action 'self'",
		}
		if rt.Path == "/sites/{id}/pictures/{picture}" && p.status == 200 {
			wants = []string{"default-src 'none'", "sandbox", "frame-ancestors 'none'"}
		}
		for _, want := range wants {
			if !strings.Contains(csp, want) {
				t.Errorf("%s %s: policy %q lacks %s", rt.Method, rt.Path, csp, want)
			}
		}
		if strings.Contains(csp, "unsafe") {
			t.Errorf("%s %s: policy %q", rt.Method, rt.Path, csp)
		}
		if strings.HasPrefix(p.header.Get("Content-Type"), "text/html") {
			if got := p.header.Get("Cache-Control"); got != "no-store" {
				t.Errorf("%s: Cache-Control %q", rt.Path, got)
			}
			for _, bad := range []string{
				" style=", "<style", " onclick=", "javascript:", "<script>", "<img src=x", "ZgotmplZ", "<no value>",
			} {
				if strings.Contains(p.body, bad) {
					t.Errorf("%s holds %q", rt.Path, bad)
				}
			}
			for _, tag := range strings.Split(p.body, "<")[1:] {
				if strings.HasPrefix(
					tag,
					"script ",
				) && !strings.Contains(
					tag,
					`src="/assets/`,
				) || strings.HasPrefix(tag, "link ") && !strings.Contains(tag, `href="/assets/`) {
					t.Errorf("%s loads <%.80s", rt.Path, tag)
				}
			}
			if len(p.body) > 100_000 {
				t.Errorf("%s weighs %d bytes", rt.Path, len(p.body))
			}
			if !strings.Contains(p.body, `id="main"`) || !strings.Contains(p.body, `<html lang="en"`) || !strings.Contains(p.body, "<h1") {
				t.Errorf("%s lacks what every page has", rt.Path)
			}
		}
	}
}

// Names chosen by users are escaped everywhere.
func TestHostileNames(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ada := w.user("ada@example.test", true)
	const evil = `<img src=x onerror=alert(1)>"'` + "`{{.}}"
	w.site(ada, evil)
	b := w.as("ada@example.test")
	if _, _, err := w.dash.Accounts.CreateKey(t.Context(), ada.ID, account.NewKey{
		Name:   evil,
		Scopes: account.Scopes{account.All},
	}); err != nil {
		t.Fatal(err)
	}
	b.do("GET", "/account", nil, "User-Agent: "+evil)
	c := w.browser()
	c.do("POST", "/sign-in", url.Values{"email": {"ada@example.test"}, "password": {password}}, "User-Agent: Firefox/1 "+evil)
	for _, path := range []string{
		"/",
		"/?q=" + url.QueryEscape(evil),
		"/account/keys",
		"/account/keys/new",
		"/account/sessions",
		"/account/audit?what=" + url.QueryEscape(evil),
		"/operator/sites",
		"/operator/audit",
		"/" + url.PathEscape(evil),
		"/sign-in?next=" + url.QueryEscape("/"+evil),
	} {
		for _, b := range []*browser{b, w.browser()} {
			if p := b.get(path); strings.Contains(p.body, "<img src=x") || p.status >= 500 {
				t.Errorf("%s: %s", path, p)
			}
		}
	}
	if p := b.get("/"); !strings.Contains(p.body, "&lt;img src=x onerror=alert(1)&gt;") {
		t.Error("the name is not on the page")
	}
	if p := b.post(
		"/account/keys/new",
		"name",
		evil+strings.Repeat("x", 100),
		"expires",
		"never",
	); p.status != 422 || strings.Contains(p.body, "<img src=x") || !strings.Contains(p.body, "&lt;img src=x") {
		t.Error("a failed form:", p.status)
	}
}

func TestUnknownPlaces(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.user("ada@example.test", false)
	for name, b := range map[string]*browser{"nobody": w.browser(), "a user": w.as("ada@example.test")} {
		for _, path := range []string{
			"/nowhere", "/account/", "//account", "/account/../operator", "/assets/app.css", "/assets/../app.css",
			"/%00", "/%ff", "/setup/",
		} {
			if p := b.get(path); p.status != 404 || !p.has("error") || p.header.Get("Content-Security-Policy") == "" {
				t.Errorf("%s for %s: %d", path, name, p.status)
			}
		}
		if p := b.do("DELETE", "/account", nil); p.status != 404 {
			t.Errorf("DELETE for %s: %d", name, p.status)
		}
	}
}

func TestAssets(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.browser()
	for _, name := range []string{"app.css", "app.js", "mark.svg", "passkey.js", "inter.woff2"} {
		path := w.dash.shell.Assets.URL(name)
		p := b.get(path)
		if p.status != 200 || !strings.Contains(
			p.header.Get("Cache-Control"),
			"immutable",
		) || p.header.Get("ETag") == "" || p.body != string(w.dash.shell.Assets.Files[strings.TrimPrefix(path, "/assets/")].Plain()) {
			t.Errorf("%s: %d %v", name, p.status, p.header)
		}
		if p := b.get(path, "If-None-Match: "+p.header.Get("ETag")); p.status != 304 || p.body != "" {
			t.Errorf("%s again: %d", name, p.status)
		}
	}
	if css := b.get(w.dash.shell.Assets.URL("app.css")); !strings.Contains(
		css.body,
		"url("+w.dash.shell.Assets.URL("inter.woff2")+")",
	) || css.header.Get("Content-Type") != "text/css; charset=utf-8" {
		t.Error("the style sheet does not name the font as it is served")
	}
}

// Pages are parsed on first use, so check that all of them parse.
func TestPagesParse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if len(w.dash.shell.Pages) < 50 {
		t.Errorf("%d pages", len(w.dash.shell.Pages))
	}
	for name, page := range w.dash.shell.Pages {
		if page().Lookup("layout.html") == nil {
			t.Errorf("%s has no layout", name)
		}
	}
}
