package member

import (
	"context"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/seal"
	"slipway/internal/platform/visit"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/webhook"
)

// A host's sign-in question is answered only for members, who are sent back to that host only. Questions, grants and
// cookies are valid for one host.
func TestMembersOfASite(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	key, err := seal.Load(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	sites := site.New(site.Config{DB: d, Hooks: webhook.New(webhook.Config{DB: d, Seal: key}), Seal: key, Domain: "sites.test"})
	users := account.New(account.Config{DB: d})
	var people []account.User
	for _, email := range []string{"ada@example.test", "eve@example.test"} {
		u, err := users.CreateUser(t.Context(), email, "", false)
		if err != nil {
			t.Fatal(err)
		}
		people = append(people, u)
	}
	ada, eve := people[0], people[1]
	s, err := sites.Create(t.Context(), ada.Owner, site.NewSite{Name: "Shop", Type: "static", Repository: "git.test/acme/site"})
	if err != nil {
		t.Fatal(err)
	}
	m := New(Config{DB: d, Seal: key, Sites: sites, Accounts: users, BaseURL: "https://slipway.test", GrantPath: "/.slipway/granted"})
	q := visit.Question{Site: s.ID, Host: "pr-1--shop.sites.test:8443", Path: "/a?b=c", Nonce: "nonce"}
	value := func(address, name string) string {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		return u.Query().Get(name)
	}
	asked := m.Ask(q)
	if !strings.HasPrefix(asked, "https://slipway.test/access?ask=") || strings.Contains(asked, "pr-1") {
		t.Errorf("asks at %s", asked)
	}
	ask := value(asked, "ask")
	to, err := m.Answer(t.Context(), ada, account.Session{}, ask)
	if err != nil || !strings.HasPrefix(to, "https://pr-1--shop.sites.test:8443/.slipway/granted?grant=") {
		t.Fatalf("a member is redirected to %s, %v", to, err)
	}
	grant := value(to, "grant")
	got, until, ok := m.Granted(grant)
	q.User = string(ada.ID)
	if !ok || got != q || time.Until(until) > time.Hour || time.Until(until) < 50*time.Minute {
		t.Errorf("granted %+v until %s, %v", got, until, ok)
	}
	if _, err := m.Answer(t.Context(), eve, account.Session{}, ask); !fault.Is(err, fault.Forbidden) {
		t.Errorf("a user who isn't a member: %v", err)
	}
	pass := m.Pass(q, "pr-1--shop.sites.test", until)
	if !m.Passes(t.Context(), pass, q.Site, "pr-1--shop.sites.test") {
		t.Error("the cookie isn't accepted")
	}
	for name, of := range map[string][3]string{
		"another host": {pass, string(q.Site), "shop.sites.test"},
		"another site": {pass, "site_other", "pr-1--shop.sites.test"},
		"the grant":    {grant, string(q.Site), "pr-1--shop.sites.test"},
		"the question": {ask, string(q.Site), "pr-1--shop.sites.test"},
		"nothing":      {"", string(q.Site), "pr-1--shop.sites.test"},
		"a change":     {pass + "A", string(q.Site), "pr-1--shop.sites.test"},
		"long":         {strings.Repeat("a", 10_000), string(q.Site), "pr-1--shop.sites.test"},
		"one that has ended": {
			m.seal(cookiePurpose, sealedAnswer{Site: q.Site, Host: "pr-1--shop.sites.test"}, -2*time.Second),
			string(q.Site),
			"pr-1--shop.sites.test",
		},
	} {
		if m.Passes(t.Context(), of[0], site.ID(of[1]), of[2]) {
			t.Errorf("%s lets in", name)
		}
	}
	for name, bad := range map[string]string{
		"nothing":            "",
		"a grant":            grant,
		"a cookie":           pass,
		"one that has ended": m.seal(questionPurpose, sealedAnswer{Site: s.ID, Host: "evil.test"}, -2*time.Second),
	} {
		if to, err := m.Answer(t.Context(), ada, account.Session{}, bad); !fault.Is(err, fault.Invalid) || to != "" {
			t.Errorf("%s as a question: %s, %v", name, to, err)
		}
	}
	for name, bad := range map[string]string{"nothing": "", "a question": ask, "a cookie": pass} {
		if _, _, ok := m.Granted(bad); ok {
			t.Errorf("%s is a grant", name)
		}
	}
}

// Members of a team can open the protected addresses of its sites, rechecked every five minutes. Other users and
// removed members can't.
func TestMembersOfATeam(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	key, err := seal.Load(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	users := account.New(account.Config{DB: d})
	sites := site.New(site.Config{DB: d, Hooks: webhook.New(webhook.Config{DB: d, Seal: key}), Seal: key, Domain: "sites.test"})
	m := New(Config{DB: d, Seal: key, Sites: sites, Accounts: users, BaseURL: "https://slipway.test", GrantPath: "/.slipway/granted"})
	s, err := sites.Create(t.Context(), "own_team", site.NewSite{Name: "Shop", Type: "static", Repository: "git.test/acme/site"})
	if err != nil {
		t.Fatal(err)
	}
	other, err := sites.Create(t.Context(), "own_team", site.NewSite{Name: "Other", Type: "static", Repository: "git.test/acme/site"})
	if err != nil {
		t.Fatal(err)
	}
	exec := func(q string, args ...account.UserID) {
		t.Helper()
		for i, a := range args {
			q = strings.ReplaceAll(q, "$"+string(rune('1'+i)), "'"+string(a)+"'")
		}
		if err := d.Admin(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	exec(`INSERT INTO teams (id, owner_id, name, slug, require_2fa, require_sso, apps, created_at, suspended_at, deleting_at, deleted_at)
		VALUES ('team_x', 'own_team', 'Acme', 'acme', FALSE, FALSE, 'all', 1, 0, 0, 0)`)
	join := func(email, role string) account.User {
		t.Helper()
		u, err := users.CreateUser(t.Context(), email, "", false)
		if err != nil {
			t.Fatal(err)
		}
		exec(`INSERT INTO team_members (owner_id, user_id, role, break_glass, joined_at, invited_by) VALUES ('own_team', $1, $2, FALSE, 1, '')`, u.ID, account.UserID(role))
		return u
	}
	viewer, billing, guest := join("v@example.test", "viewer"), join("b@example.test", "billing"), join("g@example.test", "")
	exec(`INSERT INTO site_members (site_id, user_id, owner_id, role) VALUES ($1, $2, 'own_team', 'viewer')`, account.UserID(other.ID), guest.ID)
	ask := func(u account.User, id site.ID) error {
		q, err := url.Parse(m.Ask(visit.Question{Site: id, Host: "shop.sites.test", Path: "/", Nonce: "n"}))
		if err != nil {
			t.Fatal(err)
		}
		to, err := m.Answer(t.Context(), u, account.Session{}, q.Query().Get("ask"))
		if err != nil {
			return err
		}
		at, err := url.Parse(to)
		if err != nil {
			t.Fatal(err)
		}
		if _, until, ok := m.Granted(at.Query().Get("grant")); !ok || time.Until(until) > 5*time.Minute || time.Until(until) < 4*time.Minute {
			t.Errorf("granted until %s, %v", until, ok)
		}
		return nil
	}
	for name, no := range map[string]error{
		"billing":               ask(billing, s.ID),
		"a guest, another site": ask(guest, s.ID),
	} {
		if !fault.Is(no, fault.Forbidden) {
			t.Errorf("%s: %v", name, no)
		}
	}
	for name, err := range map[string]error{"a viewer": ask(viewer, s.ID), "a guest, their site": ask(guest, other.ID)} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	exec(`INSERT INTO sessions (hash, id, user_id, method, pending, agent, addr, created_at, proven_at, seen_at, expires_at)
		VALUES ('h', 'ses_1', $1, 'password', FALSE, '', '', 1, 1, 9000000000000, 9000000000000)`, viewer.ID)
	pass := m.Pass(visit.Question{Site: s.ID, User: string(viewer.ID)}, "shop.sites.test", time.Now().Add(time.Minute))
	signedIn := m.Pass(visit.Question{Site: s.ID, User: string(viewer.ID), Session: "ses_1"}, "shop.sites.test", time.Now().Add(time.Minute))
	passes := func() bool { return m.Passes(t.Context(), pass, s.ID, "shop.sites.test") }
	later := func() { // the cached result expires
		m.mu.Lock()
		defer m.mu.Unlock()
		for v, f := range m.standing {
			m.standing[v] = found{f.member, f.at.Add(-recheck)}
		}
	}
	if !passes() {
		t.Error("a member's cookie isn't accepted")
	}
	if !m.Passes(t.Context(), signedIn, s.ID, "shop.sites.test") {
		t.Error("the cookie of a session isn't accepted")
	}
	exec(`DELETE FROM sessions WHERE user_id = $1`, viewer.ID)
	later()
	if m.Passes(t.Context(), signedIn, s.ID, "shop.sites.test") {
		t.Error("the cookie of a session that has ended lets its user in")
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	later()
	if !m.Passes(gone, pass, s.ID, "shop.sites.test") {
		t.Error("while the database is unavailable, a member's cookie isn't accepted")
	}
	if earlier := m.Pass(visit.Question{Site: s.ID}, "shop.sites.test", time.Now().Add(time.Minute)); !m.Passes(t.Context(), earlier, s.ID, "shop.sites.test") {
		t.Error("the cookie of an earlier version isn't accepted")
	}
	exec(`DELETE FROM team_members WHERE user_id = $1`, viewer.ID)
	later()
	if passes() {
		t.Error("the cookie of who was removed lets them in")
	}
	if len(m.standing) != 2 {
		t.Errorf("%d visitors are remembered", len(m.standing))
	}
	if err := ask(viewer, s.ID); !fault.Is(err, fault.Forbidden) {
		t.Errorf("who was removed: %v", err)
	}
}
