package dashboard

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/oauth"
	"slipway/internal/tenant/team"
	"slipway/internal/web/dashboard/shell"
)

// provider adds a sign-in provider to a team and links users to it.
func (w *world) provider(t team.Team, users ...account.User) string {
	w.t.Helper()
	id := "sso_" + t.Slug
	must(w.t, w.db.Admin(w.t.Context(), fmt.Sprintf(`
		INSERT INTO sso_providers (id, owner_id, kind, name, issuer, client_id, secret, domains, created_at)
		VALUES ('%s', '%s', 'oidc', 'Team ID', 'https://login.%s.test', 'c', '', '', 1)`, id, t.Owner, t.Slug)))
	for i, u := range users {
		must(w.t, w.db.Admin(w.t.Context(), fmt.Sprintf(`
			INSERT INTO sso_identities (owner_id, issuer, subject, id, user_id, email, created_at, used_at)
			VALUES ('%s', 'https://login.%s.test', '%d', 'idn_%s_%d', '%s', '', 1, 1)`, t.Owner, t.Slug, i, t.Slug, i, u.ID)))
	}
	return id
}

// through returns a browser with a session that a provider began.
func (w *world) through(u account.User, provider string) *browser {
	w.t.Helper()
	b := w.browser()
	var token string
	must(w.t, w.db.Write(w.t.Context(), func(tx *db.Tx) (err error) {
		_, token, err = w.dash.Accounts.SignInWithTx(w.t.Context(), tx, u.ID, provider, account.Device{Addr: netip.MustParseAddr("203.0.113.7")})
		return err
	}))
	at, err := url.Parse(w.srv.URL)
	must(w.t, err)
	b.client.Jar.SetCookies(at, []*http.Cookie{w.dash.shell.SignedIn(token)})
	return b
}

// A session from a team's provider can open that team but nothing else of its user, even an operator who owns all of
// it, because the team's owners control the provider.
func TestTeamSessionOpensTheTeamAlone(t *testing.T) {
	t.Parallel()
	w := newAgency(t)
	ada := w.world.users["ada@example.test"]
	must(t, w.db.Admin(t.Context(), `UPDATE users SET admin = TRUE WHERE id = '`+string(ada.ID)+`'`))
	th := w.things() // of Ada's personal account and her team Crew
	b := w.through(ada, w.provider(w.acme, ada))
	if p := b.get("/"); p.status != 200 || !strings.Contains(p.body, "Team shop") || !p.has("team-session") || p.has("team-crew") {
		t.Fatalf("the first page: %s", p)
	}
	theirs := regexp.MustCompile(`Ada's|[cC]rew|` + th["{id}"] + `|` + th["{key}"] + `|` + th["{client}"])
	for _, rt := range w.dash.routes {
		if rt.Access == shell.Open || strings.HasPrefix(rt.Path, "/step-up") || strings.HasPrefix(rt.Path, "/live/") || strings.HasSuffix(rt.Path, "/follow") {
			continue
		}
		path := th.fill(rt.Path)
		form := map[string]url.Values{http.MethodPost: {}}[rt.Method]
		p := b.do(rt.Method, path, form, "Accept: text/html")
		mayActForAcme := rt.Scope() != "" && !strings.Contains(rt.Path, "{team}") && !strings.HasPrefix(rt.Path, "/sites/{id}")
		switch {
		case rt.Access == shell.SignedOut || rt.Access == shell.Halfway:
			if p.status != http.StatusSeeOther {
				t.Errorf("%s %s: %d", rt.Method, rt.Path, p.status)
			}
		case rt.Path == "/access":
			if p.status != http.StatusNotFound { // there are no protected addresses here
				t.Errorf("%s %s without a question: %s", rt.Method, rt.Path, p)
			}
		case !mayActForAcme && p.status != http.StatusForbidden && p.status != http.StatusNotFound:
			t.Errorf("%s %s: %s", rt.Method, rt.Path, p)
		case theirs.MatchString(strings.ReplaceAll(p.body, `value="`+path+`"`, "")):
			t.Errorf("%s %s tells of %q: %s", rt.Method, rt.Path, theirs.FindString(p.body), p)
		}
	}
	for _, path := range []string{"/account", "/account/security", "/account/sessions", "/operator", "/teams/new"} {
		if p := b.get(path); p.status != http.StatusForbidden || !strings.Contains(p.body, "opens that team only") {
			t.Errorf("%s: %s", path, p)
		}
	}
	if p := b.get("/?team=crew"); p.status != http.StatusForbidden {
		t.Errorf("another team: %s", p)
	}
	// The session can't accept an invitation to another team or move a site out of its own.
	var token string
	stranger := w.users["stranger"]
	must(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
		other, err := w.dash.Teams.CreateTx(t.Context(), tx, stranger, team.NewTeam{Name: "Other"})
		if err != nil {
			return err
		}
		c, err := w.dash.Accounts.CallerFor(t.Context(), tx, stranger, other.Owner)
		if err == nil {
			_, token, err = w.dash.Teams.InviteTx(t.Context(), tx, c, team.NewInvitation{Email: ada.Email, Role: account.RoleViewer})
		}
		return err
	}))
	if p := b.post("/invitations/" + token); p.status != http.StatusForbidden {
		t.Errorf("an invitation of another team: %s", p)
	}
	b.post("/sites/"+string(w.shop.ID)+"/transfer", "to", "crew", "to_team", "crew", "confirm", w.shop.Name)
	b.post("/sites/"+string(w.shop.ID)+"/transfer", "to", ada.Email, "email", ada.Email, "confirm", w.shop.Name)
	if _, err := w.dash.Sites.Get(t.Context(), w.acme.Owner, w.shop.ID); err != nil {
		t.Errorf("the site left the team: %v", err)
	}
	// None of the requests above changed the user.
	if u, err := w.dash.Accounts.User(t.Context(), ada.ID); err != nil || !u.Admin {
		t.Errorf("she is %+v, %v", u, err)
	}
	if p := b.post("/sign-out"); p.header.Get("Location") != "/sign-in" {
		t.Errorf("signing out: %s", p)
	}
	if p := w.as(ada.Email).get("/operator"); p.status != 200 {
		t.Errorf("the operator with her password: %s", p)
	}
}

var keySecret = regexp.MustCompile(`slw_[A-Za-z0-9]+`)

// Keys and grants created in such a session act only for the team, and end with the link, the provider or the
// membership.
func TestTeamSessionEndsWithItsCause(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		end func(w *agency, provider string, u account.User) error
	}{
		"link": {func(w *agency, provider string, u account.User) error {
			return w.db.Admin(w.t.Context(), `DELETE FROM sso_identities WHERE user_id = '`+string(u.ID)+`'`)
		}},
		"provider": {func(w *agency, provider string, u account.User) error {
			return w.db.Admin(w.t.Context(), `DELETE FROM sso_providers WHERE id = '`+provider+`'`)
		}},
		"membership": {func(w *agency, provider string, u account.User) error {
			return w.db.Admin(w.t.Context(), `DELETE FROM team_members WHERE user_id = '`+string(u.ID)+`'`)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newAgency(t)
			u := w.users["developer"]
			provider := w.provider(w.acme, u)
			b := w.through(u, provider)
			p := b.post("/account/keys/new", "name", "ci", "power", "some", "scopes", "sites:read", "reach", "all", "expires", "30d")
			key := keySecret.FindString(p.body)
			if key == "" {
				t.Fatalf("no key: %s", p)
			}
			grant := w.grantThrough(b)
			addr := netip.MustParseAddr("203.0.113.7")
			c, err := w.dash.Accounts.Authenticate(t.Context(), key, addr)
			if err != nil || c.Owner != w.acme.Owner || c.Unrestricted() {
				t.Fatalf("the key is %+v, %v", c, err)
			}
			if c, err = w.dash.OAuth.Authenticate(t.Context(), grant, addr); err != nil || c.Owner != w.acme.Owner || c.Unrestricted() {
				t.Fatalf("the grant is %+v, %v", c, err)
			}
			must(t, tt.end(w, provider, u))
			if _, err := w.dash.Accounts.Authenticate(t.Context(), key, addr); fault.As(err) == nil {
				t.Errorf("the key works: %v", err)
			}
			if _, err := w.dash.OAuth.Authenticate(t.Context(), grant, addr); fault.As(err) == nil {
				t.Errorf("the access token works: %v", err)
			}
			if err := w.dash.OAuth.Holds(t.Context(), c); fault.As(err) == nil {
				t.Errorf("the open stream of the grant doesn't end: %v", err)
			}
			if p := b.get("/"); p.status == 200 {
				t.Errorf("the session opens the team: %s", p)
			}
		})
	}
}

// grantThrough authorizes the command line as a device and returns its access token.
func (w *agency) grantThrough(b *browser) string {
	w.t.Helper()
	ctx := w.t.Context()
	cli, err := w.dash.OAuth.Client(ctx, oauth.CLI, "")
	must(w.t, err)
	d, secret, err := w.dash.OAuth.BeginDevice(ctx, cli, "sites:read", "203.0.113.9", "203.0.113.9")
	must(w.t, err)
	if p := b.post("/device", "code", d.Code); strings.Contains(p.body, "personal account") {
		w.t.Errorf("the page offers the personal account: %s", p)
	}
	p := b.post("/device", "code", d.Code, "decision", "allow", "scopes", "sites:read", "expires", "1d")
	tokens, err := w.dash.OAuth.PollDevice(ctx, cli, secret)
	if err != nil {
		w.t.Fatalf("%v after %s", err, p)
	}
	return tokens.Access
}
