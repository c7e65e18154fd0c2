package sso_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/wait"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/limits"
	"slipway/internal/tenant/operation"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/sso"
	"slipway/internal/tenant/team"
	"slipway/internal/tenant/webhook"
)

// records is a fake resolver of TXT records.
type records struct {
	mu   sync.Mutex // guards what follows
	at   map[string][]string
	down bool // queries fail
}

func (r *records) TXT(_ context.Context, name string) ([]string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.down {
		return nil, errors.New("nobody answers")
	}
	return slices.Clone(r.at[name]), nil
}

func (r *records) set(name string, values ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at[name] = values
}

func (r *records) silence(down bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.down = down
}

func isMissing(err error) bool { return fault.Is(err, fault.NotFound) }

// guild is a world with a team whose owner has a password.
type guild struct {
	*world
	teams *team.Teams
	dns   *records
	owner account.User
	team  team.Team
}

func newGuild(t *testing.T) *guild {
	t.Helper()
	g := &guild{world: newWorld(t), dns: &records{at: map[string][]string{}}}
	quotas := limits.New(limits.Settings{})
	hooks := webhook.New(webhook.Config{DB: g.db, Seal: g.config.Seal, Limits: quotas})
	sites := site.New(site.Config{DB: g.db, Limits: quotas, Hooks: hooks, Seal: g.config.Seal, Domain: "sites.test"})
	g.teams = team.New(team.Config{
		DB: g.db, Accounts: g.accounts, Limits: quotas, Sites: sites, Hooks: hooks, Operations: operation.New(operation.Config{DB: g.db}),
	})
	g.config.Members, g.config.Records = g.teams, g.dns
	g.SSO = sso.New(g.config)
	g.owner = g.user("owner@acme.test", password)
	g.team = g.newTeam(g.owner, "Acme")
	return g
}

func (g *guild) newTeam(u account.User, name string) (t team.Team) {
	g.t.Helper()
	must(g.t, g.db.Write(g.t.Context(), func(tx *db.Tx) (err error) {
		t, err = g.teams.CreateTx(g.t.Context(), tx, u, team.NewTeam{Name: name})
		return err
	}))
	return t
}

// offer adds a provider at the world's issuer to a team and makes the world sign in with it.
func (g *guild) offer(t team.Team, role account.Role) (p sso.Provider) {
	g.t.Helper()
	must(g.t, g.db.Write(g.t.Context(), func(tx *db.Tx) (err error) {
		p, err = g.CreateForTx(g.t.Context(), tx, t.Owner, sso.NewTeamProvider{
			Kind: sso.OIDC, Name: "Acme ID", Issuer: g.issuer.srv.URL, ClientID: "client", Secret: "secret", JoinRole: role,
		})
		return err
	}))
	g.provider = p
	return p
}

func (g *guild) claim(t team.Team, p sso.Provider, name string) (d sso.Domain, err error) {
	err = g.db.Write(g.t.Context(), func(tx *db.Tx) (err error) {
		d, err = g.ClaimTx(g.t.Context(), tx, t.Owner, p.ID, name)
		return err
	})
	return d, err
}

// own claims a domain and verifies it.
func (g *guild) own(t team.Team, p sso.Provider, name string) sso.Domain {
	g.t.Helper()
	d, err := g.claim(t, p, name)
	must(g.t, err)
	g.dns.set(d.Record(), d.Token)
	d = g.verify(d)
	if !d.Speaks() {
		g.t.Fatalf("the domain is not verified: %+v", d)
	}
	return d
}

func (g *guild) verify(d sso.Domain) sso.Domain {
	g.t.Helper()
	found, lookErr := g.Look(g.t.Context(), d)
	must(g.t, g.db.Write(g.t.Context(), func(tx *db.Tx) (err error) {
		d, err = g.VerifyTx(g.t.Context(), tx, d.ID, found, lookErr)
		return err
	}))
	return d
}

func (g *guild) invite(email string, role account.Role) {
	g.t.Helper()
	c, err := g.accounts.CallerFor(g.t.Context(), g.db, g.owner, g.team.Owner)
	must(g.t, err)
	must(g.t, g.db.Write(g.t.Context(), func(tx *db.Tx) error {
		_, _, err := g.teams.InviteTx(g.t.Context(), tx, c, team.NewInvitation{Email: email, Role: role})
		return err
	}))
}

func (g *guild) role(user account.UserID, t team.Team) string {
	g.t.Helper()
	m, err := account.MembershipOf(g.t.Context(), g.db, user, t.Owner)
	must(g.t, err)
	return string(m.Role)
}

// actions returns the actions in a team's audit log.
func (g *guild) actions(t team.Team) (out []string) {
	g.t.Helper()
	list, err := g.accounts.Audit(g.t.Context(), audit.Filter{Owner: t.Owner, Limit: 50})
	must(g.t, err)
	for _, e := range list {
		out = append(out, e.Action)
	}
	return out
}

func (g *guild) says(claims map[string]any) {
	g.issuer.mu.Lock()
	defer g.issuer.mu.Unlock()
	g.issuer.claims = func(c map[string]any) {
		maps.Copy(c, claims)
	}
}

// A new user joins a team through its provider if the email's domain is verified by the team and the user was invited
// or the team accepts everyone.
func TestJoin(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		domain   string // verified by the team
		invited  account.Role
		everyone account.Role
		claims   map[string]any
		code     string
		want     string // the role
	}{
		"everybody":           {domain: "acme.test", everyone: account.RoleViewer, want: "viewer"},
		"invited":             {domain: "acme.test", invited: account.RoleDeveloper, want: "developer"},
		"invited higher":      {domain: "acme.test", invited: account.RoleAdmin, everyone: account.RoleViewer, want: "admin"},
		"not invited":         {domain: "acme.test", code: "invitation_required"},
		"unproven domain":     {everyone: account.RoleViewer, invited: account.RoleViewer, code: "identity_unknown"},
		"another domain":      {domain: "other.test", everyone: account.RoleViewer, code: "identity_unknown"},
		"a domain above":      {domain: "acme.test", everyone: account.RoleViewer, claims: map[string]any{"email": "ada@x.acme.test"}, code: "identity_unknown"},
		"address not checked": {domain: "acme.test", everyone: account.RoleViewer, claims: map[string]any{"email_verified": false}, code: "identity_unknown"},
		"a second at":         {domain: "acme.test", everyone: account.RoleViewer, claims: map[string]any{"email": "eve@evil.test@acme.test"}, code: "identity_unknown"},
		"upper case":          {domain: "acme.test", everyone: account.RoleViewer, claims: map[string]any{"email": "Ada@ACME.test"}, want: "viewer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGuild(t)
			p := g.offer(g.team, tt.everyone)
			if tt.domain != "" {
				g.own(g.team, p, tt.domain)
			}
			if tt.invited != "" {
				g.invite("ada@acme.test", tt.invited)
			}
			claims := map[string]any{"email": "ada@acme.test"}
			maps.Copy(claims, tt.claims)
			g.says(claims)
			s, err := g.signIn()
			if tt.code != "" {
				wantCode(t, err, tt.code)
				if users, err := g.accounts.Users(t.Context()); err != nil || len(users) != 1 {
					t.Errorf("%d users, %v, want the owner alone", len(users), err)
				}
				return
			}
			must(t, err)
			if got := g.role(s.User, g.team); got != tt.want {
				t.Errorf("role %q, want %q", got, tt.want)
			}
			if !slices.Contains(g.actions(g.team), "member.added") {
				t.Errorf("the team's log has %v", g.actions(g.team))
			}
			if again, err := g.signIn(); err != nil || again.User != s.User || g.role(s.User, g.team) != tt.want {
				t.Errorf("the second sign-in is %v's as %q, %v", again.User, g.role(s.User, g.team), err)
			}
		})
	}
}

// A team's provider never signs in to an account that has another sign-in method: neither by its email address, nor
// through an identity of the same issuer linked with another provider.
func TestTeamSpeaksForItself(t *testing.T) {
	t.Parallel()
	g := newGuild(t)
	ada := g.user("ada@acme.test", password)
	must(t, g.link(ada)) // with the operator's provider
	p := g.offer(g.team, account.RoleViewer)
	g.own(g.team, p, "acme.test")
	g.says(map[string]any{"email": "ada@acme.test"})
	_, err := g.signIn()
	wantCode(t, err, "link_required")

	must(t, g.link(ada))
	if s, err := g.signIn(); err != nil || s.User != ada.ID || g.role(ada.ID, g.team) != "viewer" {
		t.Errorf("signed in %v as %q, %v", s.User, g.role(ada.ID, g.team), err)
	}
	eve := g.user("eve@evil.test", password)
	q := g.offer(g.newTeam(eve, "Evil"), account.RoleViewer)
	_, err = g.signIn()
	wantCode(t, err, "identity_unknown")
	if q.Issuer != p.Issuer || q.ID == p.ID {
		t.Fatalf("providers %+v and %+v", p, q)
	}
	list, err := g.Identities(t.Context(), ada.ID)
	if err != nil || len(list) != 2 || list[0].Owner != "" || list[1].Owner != g.team.Owner {
		t.Errorf("identities %+v, %v", list, err)
	}
}

// A domain belongs to the team whose record exists. A missing record stops new members at once and ends the claim after
// three days. Name servers that don't answer change nothing.
func TestDomainProof(t *testing.T) {
	t.Parallel()
	g := newGuild(t)
	p := g.offer(g.team, account.RoleViewer)
	d, err := g.claim(g.team, p, "ACME.test.")
	must(t, err)
	if d.Name != "acme.test" || d.Record() != "_slipway-sso.acme.test" || g.verify(d).Speaks() {
		t.Fatalf("domain %+v", d)
	}
	_, err = g.ForEmail(t.Context(), "ada@acme.test")
	wantCode(t, err, "no_sso_for_domain")
	g.dns.set(d.Record(), "something else", d.Token)
	if !g.verify(d).Speaks() {
		t.Fatal("the record is not found")
	}
	if found, err := g.ForEmail(t.Context(), "Nobody.Yet@ACME.test"); err != nil || found.ID != p.ID {
		t.Errorf("provider %+v, %v", found, err)
	}

	other := g.newTeam(g.user("eve@evil.test", password), "Evil")
	q := g.offer(other, account.RoleViewer)
	rival, err := g.claim(other, q, "acme.test")
	must(t, err)
	g.dns.set(d.Record(), d.Token, rival.Token)
	if r := g.verify(rival); r.Speaks() || r.Problem == "" {
		t.Errorf("the rival got the domain while its holder's record is there: %+v", r)
	}
	g.dns.silence(true)
	if r := g.verify(d); !r.Speaks() {
		t.Errorf("silence took the domain: %+v", r)
	}
	g.dns.silence(false)
	g.dns.set(d.Record(), rival.Token)
	if r := g.verify(rival); !r.Speaks() {
		t.Errorf("the new holder is not believed: %+v", r)
	}
	list, err := g.Domains(t.Context(), g.team.Owner)
	if err != nil || len(list) != 1 || list[0].VerifiedAt != 0 {
		t.Errorf("domains of the old holder %+v, %v", list, err)
	}
	if log := g.actions(g.team); !slices.Contains(log, "sso_domain.lost") || !slices.Contains(log, "sso_domain.verified") {
		t.Errorf("the team's log has %v", log)
	}

	g.dns.set(d.Record()) // removed
	r := g.verify(rival)
	if r.Speaks() || r.VerifiedAt == 0 || r.Missing == 0 {
		t.Fatalf("a missing record leaves %+v", r)
	}
	g.says(map[string]any{"email": "new@acme.test", "sub": "new"})
	_, err = g.signIn()
	wantCode(t, err, "identity_unknown")
	must(t, g.db.Admin(t.Context(), `UPDATE sso_domains SET missing_since = missing_since - 3 * 24 * 3600 * 1000 WHERE verified_at > 0`))
	if r := g.verify(r); r.VerifiedAt != 0 || r.Problem == "" {
		t.Errorf("after three days %+v", r)
	}
}

// Domains, including verified ones, are rechecked automatically.
func TestRecheck(t *testing.T) {
	t.Parallel()
	g := newGuild(t)
	p := g.offer(g.team, account.RoleViewer)
	d := g.own(g.team, p, "acme.test")
	g.dns.set(d.Record())
	must(t, g.db.Admin(t.Context(), `UPDATE sso_domains SET next_check = 1`))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx) }()
	wait.Until(t, "the record is missed", func() bool {
		list, err := g.Domains(t.Context(), g.team.Owner)
		return err == nil && list[0].Missing > 0
	})
	stop()
	must(t, <-ended)
	if !slices.Contains(g.actions(g.team), "sso_domain.missing") {
		t.Errorf("the team's log has %v", g.actions(g.team))
	}
}

// Public email domains and invalid names can't be claimed.
func TestDomainNames(t *testing.T) {
	t.Parallel()
	g := newGuild(t)
	p := g.offer(g.team, "")
	for _, name := range []string{
		"gmail.com", "GMail.com.", "mail.yahoo.co.uk", "co.uk", "github.io", "com", "*", "*.acme.test", "acme", "", "a b.test", "acme.test/x",
		"münchen@acme.test", "-acme.test", "127.0.0.1", "xn--a", "_dmarc.acme.test",
	} {
		if d, err := g.claim(g.team, p, name); err == nil {
			t.Errorf("%q is taken as %q", name, d.Name)
		} else {
			wantCode(t, err, "invalid_domain")
		}
	}
	if d, err := g.claim(g.team, p, "@Bücher.example"); err != nil || d.Name != "xn--bcher-kva.example" {
		t.Errorf("domain %q, %v", d.Name, err)
	}
	_, err := g.claim(g.team, p, "bücher.example")
	wantCode(t, err, "domain_exists")
	_, err = g.claim(g.newTeam(g.user("eve@evil.test", password), "Evil"), p, "evil.test")
	if !isMissing(err) {
		t.Errorf("another team's provider: %v", err)
	}
}

// A team can change only its own providers, and only some of their settings. Deleting the team deletes them.
func TestTeamProviders(t *testing.T) {
	t.Parallel()
	g := newGuild(t)
	other := g.newTeam(g.user("eve@evil.test", password), "Evil")
	p := g.offer(g.team, account.RoleViewer)
	g.own(g.team, p, "acme.test")
	g.says(map[string]any{"email": "ada@acme.test"})
	ada, err := g.signIn()
	must(t, err)
	change := func(t team.Team, c sso.TeamProviderPatch) error {
		return g.db.Write(g.t.Context(), func(tx *db.Tx) error {
			_, err := g.ChangeForTx(g.t.Context(), tx, t.Owner, p.ID, c)
			return err
		})
	}
	name, bad, client, admin, none := "Acme", "", "other", account.RoleAdmin, account.Role("")
	secret := sso.Secret("changed")
	wantCode(t, change(g.team, sso.TeamProviderPatch{Name: &bad}), "invalid_name")
	wantCode(t, change(g.team, sso.TeamProviderPatch{JoinRole: &admin}), "invalid_role")
	if err := change(other, sso.TeamProviderPatch{Name: &name}); !isMissing(err) {
		t.Errorf("another team changed it: %v", err)
	}
	must(t, change(g.team, sso.TeamProviderPatch{Name: &name, Secret: &secret, ClientID: &client, JoinRole: &none}))
	list, err := g.OfTeam(t.Context(), g.team.Owner)
	if err != nil || len(list) != 1 || list[0].Name != name || list[0].ClientID != client || list[0].JoinRole != "" {
		t.Errorf("providers %+v, %v", list, err)
	}
	if all, err := g.List(t.Context()); err != nil || len(all) != 1 || all[0].Owner != "" {
		t.Errorf("the sign-in page has %+v, %v", all, err)
	}
	for kind, code := range map[sso.Kind]string{sso.GitHub: "invalid_kind", "saml": "invalid_kind"} {
		err := g.db.Write(t.Context(), func(tx *db.Tx) error {
			_, err := g.CreateForTx(t.Context(), tx, g.team.Owner, sso.NewTeamProvider{Kind: kind, ClientID: "c", Secret: "s"})
			return err
		})
		wantCode(t, err, code)
	}
	err = g.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := g.CreateForTx(t.Context(), tx, g.team.Owner, sso.NewTeamProvider{Kind: sso.OIDC, Issuer: "http://localhost:1", ClientID: "c", Secret: "s"})
		return err
	})
	wantCode(t, err, "invalid_issuer")
	must(t, g.db.Write(t.Context(), func(tx *db.Tx) error { return g.ForgetTeamTx(t.Context(), tx, g.team.Owner) }))
	if _, err := g.ForEmail(t.Context(), "ada@acme.test"); !isMissing(err) {
		t.Errorf("the domain is still there: %v", err)
	}
	if list, err := g.Identities(t.Context(), ada.User); err != nil || len(list) != 0 {
		t.Errorf("identities %+v, %v", list, err)
	}
	if list, err := g.accounts.Sessions(t.Context(), ada.User); err != nil || len(list) != 0 {
		t.Errorf("%d sessions are left, %v", len(list), err)
	}
}
