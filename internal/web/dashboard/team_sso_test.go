package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"slipway/internal/platform/db"
	"slipway/internal/platform/seal"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/sso"
)

// fakeDNS serves the TXT records that a test sets.
type fakeDNS struct {
	mu sync.Mutex // guards at
	at map[string]string
}

func (f *fakeDNS) set(name, value string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at[name] = value
}

func (f *fakeDNS) TXT(_ context.Context, name string) ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return []string{f.at[name]}, nil
}

// unreachable is a network on which every request fails.
type unreachable struct{}

func (unreachable) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, errors.New("unreachable")
}

// An owner sets up a provider and its domain on the team's page. The sign-in page then finds the provider by an address
// of the domain, whether or not the user exists, and says so if there is no provider.
func TestTeamProviderPages(t *testing.T) {
	t.Parallel()
	dns := &fakeDNS{at: map[string]string{}}
	key, err := seal.Load(filepath.Join(t.TempDir(), "key"))
	must(t, err)
	w := newWorld(t, func(c *Config) {
		c.SSO = sso.New(sso.Config{
			DB: c.DB, Accounts: c.Accounts, Seal: key, Base: c.BaseURL, Members: c.Teams, Records: dns, Log: c.Log,
			Out: &http.Client{Transport: unreachable{}},
		})
	})
	says := func(p reply, text string) {
		t.Helper()
		if !strings.Contains(p.body, text) {
			t.Errorf("the page doesn't say %q: %s", text, p)
		}
	}
	w.user("ada@acme.test", false)
	ada := w.as("ada@acme.test")
	ada.post("/teams/new", "name", "Acme", "slug", "acme").to(t, "/teams/acme/members")
	if p := w.browser().get("/sign-in"); strings.Contains(p.body, `href="/sign-in/sso"`) {
		t.Error("the sign-in page offers single sign-on that no team has")
	}
	says(ada.post("/teams/acme/sso", "kind", "oidc", "issuer", "http://login.acme.test", "client", "c", "secret", "s"), "Invalid issuer")
	ada.post("/teams/acme/sso", "kind", "oidc", "name", "Acme ID", "issuer", "https://login.acme.test", "client", "c", "secret", "very-secret", "join", "viewer").
		to(t, "/teams/acme/sso")
	team, err := w.dash.Teams.Named(t.Context(), w.db, "acme")
	must(t, err)
	list, err := w.dash.SSO.OfTeam(t.Context(), team.Owner)
	must(t, err)
	at := "/teams/acme/sso/" + string(list[0].ID)
	says(ada.post(at+"/domains", "domain", "gmail.com"), "Invalid email domain")
	ada.post(at+"/domains", "domain", "acme.test").to(t, "/teams/acme/sso")
	domains, err := w.dash.SSO.Domains(t.Context(), team.Owner)
	must(t, err)
	check := at + "/domains/" + string(domains[0].ID) + "/verify"
	ada.post(check).to(t, "/teams/acme/sso")
	says(ada.get("/teams/acme/sso"), "Not verified")
	dns.set(domains[0].Record(), domains[0].Token)
	ada.post(check).to(t, "/teams/acme/sso")
	page := ada.get("/teams/acme/sso")
	says(page, "Verified")
	if strings.Contains(page.body, "very-secret") {
		t.Error("the page shows the client secret")
	}
	says(ada.post("/teams/acme/sso/require", "to", "on"), "signed in with the team")

	says(w.browser().get("/sign-in"), `href="/sign-in/sso"`)
	says(w.browser().post("/sign-in/sso", "email", "ada@other.test"), "No single sign-on is set up for this email domain")
	known, unknown := w.browser().post("/sign-in/sso", "email", "ada@acme.test"), w.browser().post("/sign-in/sso", "email", "nobody@acme.test")
	if known.status != unknown.status || !strings.Contains(known.body, "Acme ID is not available") || !strings.Contains(unknown.body, "Acme ID is not available") {
		t.Errorf("a user gets %d %s\nnobody gets %d %s", known.status, known.body, unknown.status, unknown.body)
	}
	says(ada.get("/account/security"), "Link Acme ID account")
	ada.post(at+"/delete").to(t, "/teams/acme/sso")
	if _, err := w.dash.SSO.ForEmail(t.Context(), "ada@acme.test"); err == nil {
		t.Error("the deleted provider is found")
	}
}

// An owner who is removed before the request to require single sign-on commits changes nothing.
func TestRequiringEndsWithTheMembership(t *testing.T) {
	t.Parallel()
	w := newAgency(t)
	ctx, admin := t.Context(), string(w.users["admin"].ID)
	set := func(q string) {
		t.Helper()
		must(t, w.db.Admin(ctx, q))
	}
	acme := string(w.acme.Owner)
	set(`UPDATE team_members SET role = 'owner' WHERE user_id = '` + admin + `'`)
	set(`INSERT INTO sso_providers (id, owner_id, kind, name, issuer, client_id, secret, domains, created_at)
		VALUES ('sso_1', '` + acme + `', 'oidc', 'Okta', 'https://acme.okta.com', 'c', '', '', 1)`)
	set(`INSERT INTO sso_identities (owner_id, issuer, subject, id, user_id, email, created_at, used_at)
		VALUES ('` + acme + `', 'https://acme.okta.com', '1', 'idn_1', '` + admin + `', '', 1, ` + fmt.Sprint(int64(db.Now())) + `)`)
	before := w.statements.count("FROM memberships WHERE user_id = $1 AND owner_id = $2")
	answered := make(chan reply, 1)
	must(t, w.db.Write(ctx, func(tx *db.Tx) error {
		if err := account.LockOwnerTx(ctx, tx, w.acme.Owner); err != nil {
			return err
		}
		go func() { answered <- w.in["admin"].post("/teams/acme/sso/require", "to", "on") }()
		w.eventually("the request has read its rights", func() bool {
			return w.statements.count("FROM memberships WHERE user_id = $1 AND owner_id = $2") > before
		})
		_, err := tx.Exec(ctx, `DELETE FROM team_members WHERE user_id = $1`, admin)
		return err
	}))
	if p := <-answered; p.status == http.StatusSeeOther {
		t.Errorf("a removed owner requires single sign-on: %s", p)
	}
	var required bool
	must(t, w.db.QueryRow(ctx, `SELECT require_sso FROM teams WHERE owner_id = $1`, acme).Scan(&required))
	if required {
		t.Error("single sign-on is required")
	}
}
