package member

import (
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/seal"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/webhook"
)

// What a host asks is answered for members alone, and sends them to that host alone; no
// question, grant or cookie passes for another.
func TestMembersOfASite(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	key, err := seal.Load(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	sites := site.New(site.Config{DB: d, Hooks: webhook.New(webhook.Config{DB: d, Seal: key}), Seal: key, Domain: "sites.test"})
	ada, eve := account.OwnerID("usr_ada"), account.OwnerID("usr_eve")
	s, err := sites.Create(t.Context(), ada, site.NewSite{Name: "Shop", Type: "static", Repository: "git.test/acme/site"})
	if err != nil {
		t.Fatal(err)
	}
	m := New(Config{Seal: key, Sites: sites, BaseURL: "https://slipway.test", GrantPath: "/.slipway/granted"})
	q := Question{Site: string(s.ID), Host: "pr-1--shop.sites.test:8443", Path: "/a?b=c", Nonce: "nonce"}
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
	to, err := m.Answer(t.Context(), ada, ask)
	if err != nil || !strings.HasPrefix(to, "https://pr-1--shop.sites.test:8443/.slipway/granted?grant=") {
		t.Fatalf("a member goes to %s, %v", to, err)
	}
	grant := value(to, "grant")
	got, until, ok := m.Granted(grant)
	if !ok || got != q || time.Until(until) > time.Hour || time.Until(until) < 50*time.Minute {
		t.Errorf("granted %+v until %s, %v", got, until, ok)
	}
	if _, err := m.Answer(t.Context(), eve, ask); !fault.Is(err, fault.Forbidden) {
		t.Errorf("somebody else: %v", err)
	}
	pass := m.Pass(q.Site, "pr-1--shop.sites.test", until)
	if !m.Passes(pass, q.Site, "pr-1--shop.sites.test") {
		t.Error("the cookie lets nobody in")
	}
	for name, of := range map[string][3]string{
		"another host": {pass, q.Site, "shop.sites.test"},
		"another site": {pass, "site_other", "pr-1--shop.sites.test"},
		"the grant":    {grant, q.Site, "pr-1--shop.sites.test"},
		"the question": {ask, q.Site, "pr-1--shop.sites.test"},
		"nothing":      {"", q.Site, "pr-1--shop.sites.test"},
		"a change":     {pass + "A", q.Site, "pr-1--shop.sites.test"},
		"long":         {strings.Repeat("a", 10_000), q.Site, "pr-1--shop.sites.test"},
		"one that has ended": {
			m.seal(cookiePurpose, sealedAnswer{Site: q.Site, Host: "pr-1--shop.sites.test"}, -2*time.Second),
			q.Site,
			"pr-1--shop.sites.test",
		},
	} {
		if m.Passes(of[0], of[1], of[2]) {
			t.Errorf("%s lets in", name)
		}
	}
	for name, bad := range map[string]string{
		"nothing":            "",
		"a grant":            grant,
		"a cookie":           pass,
		"one that has ended": m.seal(questionPurpose, sealedAnswer{Site: string(s.ID), Host: "evil.test"}, -2*time.Second),
	} {
		if to, err := m.Answer(t.Context(), ada, bad); !fault.Is(err, fault.Invalid) || to != "" {
			t.Errorf("%s as a question: %s, %v", name, to, err)
		}
	}
	for name, bad := range map[string]string{"nothing": "", "a question": ask, "a cookie": pass} {
		if _, _, ok := m.Granted(bad); ok {
			t.Errorf("%s is a grant", name)
		}
	}
}
