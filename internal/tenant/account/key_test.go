package account_test

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/id"
	"slipway/internal/tenant/account"
)

func TestKeyLife(t *testing.T) {
	t.Parallel()
	a, d := accounts(t)
	ctx := t.Context()
	u, other := user(t, a, "a@example.test"), user(t, a, "b@example.test")
	k, secret, err := a.CreateKey(ctx, u.ID, account.NewKey{Name: " ci ", Scopes: account.Scopes{account.SitesRead, account.SitesRead}})
	if err != nil || k.Name != "ci" || len(k.Scopes) != 1 || !strings.HasPrefix(secret, k.Hint) || !account.LooksLikeKey(secret) {
		t.Fatalf("got %+v, %q, %v", k, secret, err)
	}
	var leaks int
	if err := d.QueryRow(
		ctx,
		"SELECT count(*) FROM api_keys WHERE hash LIKE $1 OR hint = $2",
		"%"+secret[4:]+"%",
		secret,
	).Scan(&leaks); err != nil || leaks != 0 {
		t.Fatalf("the secret is stored: %d, %v", leaks, err)
	}
	c, err := a.Authenticate(ctx, secret, netip.MustParseAddr("::ffff:203.0.113.7"))
	if err != nil || c.User != u.ID || c.Key != k.ID || c.Email != u.Email {
		t.Fatalf("got %+v, %v", c, err)
	}
	if err := a.RevokeKey(ctx, other.Caller(), k.ID); !fault.Is(err, fault.NotFound) {
		t.Fatalf("another user revoked it: %v", err)
	}
	if keys, err := a.ListKeys(ctx, other.Caller()); err != nil || len(keys) != 0 {
		t.Fatalf("another user sees %v, %v", keys, err)
	}
	keys, err := a.ListKeys(ctx, u.Caller())
	if err != nil || len(keys) != 1 || keys[0].UsedAddr != "203.0.113.7" || keys[0].UsedAt == 0 {
		t.Fatalf("got %+v, %v", keys, err)
	}
	if err := a.RevokeKey(ctx, u.Caller(), k.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Authenticate(ctx, secret, here); !fault.Is(err, fault.Unauthorized) {
		t.Fatalf("after revoking: %v, want unauthorized", err)
	}
}

func TestLastUseSurvivesTheEnd(t *testing.T) {
	t.Parallel()
	a, d := accounts(t)
	u := user(t, a, "a@example.test")
	k, secret, err := a.CreateKey(t.Context(), u.ID, account.NewKey{Name: "k", Scopes: account.Scopes{account.All}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- a.Run(ctx) }()
	if _, err := a.Authenticate(t.Context(), secret, here); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	again := account.New(account.Config{DB: d})
	keys, err := again.ListKeys(t.Context(), u.Caller())
	if err != nil || keys[0].ID != k.ID || keys[0].UsedAddr != here.String() || time.Since(keys[0].UsedAt.Time()) > time.Minute {
		t.Fatalf("got %+v, %v", keys, err)
	}
}

func TestAuthenticateRefuses(t *testing.T) {
	t.Parallel()
	a, d := accounts(t)
	ctx := t.Context()
	u := user(t, a, "a@example.test")
	_, secret, err := a.CreateKey(ctx, u.ID, account.NewKey{
		Name: "k", Scopes: account.Scopes{account.All},
		Nets: []netip.Prefix{netip.MustParsePrefix("203.0.113.99/24")}, Expires: db.Now().Add(time.Hour),
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Authenticate(ctx, secret, here); err != nil {
		t.Fatal(err)
	}
	for _, from := range []string{"203.0.114.1", "::1", "2001:db8::1"} {
		if _, err := a.Authenticate(ctx, secret, netip.MustParseAddr(from)); !fault.Is(err, fault.Forbidden) {
			t.Errorf("from %s: %v, want forbidden", from, err)
		}
	}
	if _, err := a.Authenticate(ctx, secret, netip.Addr{}); !fault.Is(err, fault.Forbidden) {
		t.Errorf("from nowhere: %v, want forbidden", err)
	}
	last := secret[len(secret)-1]
	for _, s := range []string{
		"",
		"slw_",
		"slw_nope",
		secret[:len(secret)-1],
		secret + "x",
		strings.ToUpper(secret),
		secret[:len(secret)-1] + string(last^1),
	} {
		if _, err := a.Authenticate(ctx, s, here); !fault.Is(err, fault.Unauthorized) {
			t.Errorf("%q: %v, want unauthorized", s, err)
		}
	}
	if err := d.Admin(ctx, "UPDATE api_keys SET expires_at = 1"); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Authenticate(ctx, secret, here); !fault.Is(err, fault.Unauthorized) {
		t.Errorf("expired: %v, want unauthorized", err)
	}
}

func TestScopes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		have, want account.Scope
		ok         bool
	}{
		{account.SitesRead, account.SitesRead, true},
		{account.SitesRead, account.SitesWrite, false},
		{account.SitesWrite, account.SitesRead, true},
		{account.SitesWrite, account.EnvRead, false},
		{account.All, account.KeysWrite, true},
		{account.All, account.All, true},
		{account.KeysWrite, account.All, false},
		{"", account.SitesRead, false},
	} {
		c := account.Caller{User: "usr_x", Scopes: account.Scopes{tt.have}}
		err := c.Require(tt.want)
		if (err == nil) != tt.ok {
			t.Errorf("%q for %q: %v", tt.have, tt.want, err)
		}
		if err != nil && !strings.Contains(fault.As(err).Details, string(tt.want)) {
			t.Errorf("details %q do not name %s", fault.As(err).Details, tt.want)
		}
	}
	if (account.Caller{
		Scopes: account.Scopes{account.All},
	}).Require(account.SitesRead) == nil || (account.Caller{}).RequireSite("site_a") == nil {
		t.Error("a caller without a user passes a check")
	}
	if _, err := account.ParseScopes([]string{"sites:read", "sites:delete"}); !fault.Is(err, fault.Invalid) {
		t.Errorf("unknown scope: %v", err)
	}
	if _, err := account.ParseScopes(nil); !fault.Is(err, fault.Invalid) {
		t.Errorf("no scope: %v", err)
	}
}

func TestKeyMakesNoWiderKey(t *testing.T) {
	t.Parallel()
	a, d := accounts(t)
	u := user(t, a, "a@example.test")
	soon := db.Now().Add(time.Hour)
	net := func(s string) []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix(s)} }
	by := account.Caller{
		User: u.ID, Scopes: account.Scopes{account.KeysWrite, account.SitesWrite},
		Sites: []id.Site{"site_aa", "site_bb"}, Nets: net("10.0.0.0/8"), Expires: soon,
	}
	fits := account.NewKey{
		Name:    "k",
		Scopes:  account.Scopes{account.SitesRead},
		Sites:   []id.Site{"site_aa"},
		Nets:    net("10.1.0.0/16"),
		Expires: soon,
	}
	for name, tt := range map[string]struct {
		change func(*account.NewKey)
		kind   fault.Kind
		ok     bool
	}{
		"fits":            {func(*account.NewKey) {}, 0, true},
		"other scope":     {func(n *account.NewKey) { n.Scopes = account.Scopes{account.EnvRead} }, fault.Forbidden, false},
		"every scope":     {func(n *account.NewKey) { n.Scopes = account.Scopes{account.All} }, fault.Forbidden, false},
		"every site":      {func(n *account.NewKey) { n.Sites = nil }, fault.Forbidden, false},
		"another site":    {func(n *account.NewKey) { n.Sites = []id.Site{"site_cc"} }, fault.Forbidden, false},
		"odd site":        {func(n *account.NewKey) { n.Sites = []id.Site{"site_aa site_cc"} }, fault.Invalid, false},
		"anywhere":        {func(n *account.NewKey) { n.Nets = nil }, fault.Forbidden, false},
		"wider net":       {func(n *account.NewKey) { n.Nets = net("0.0.0.0/0") }, fault.Forbidden, false},
		"other family":    {func(n *account.NewKey) { n.Nets = net("::/0") }, fault.Forbidden, false},
		"no net":          {func(n *account.NewKey) { n.Nets = []netip.Prefix{{}} }, fault.Invalid, false},
		"never expires":   {func(n *account.NewKey) { n.Expires = 0 }, fault.Forbidden, false},
		"expires later":   {func(n *account.NewKey) { n.Expires = soon + 1 }, fault.Forbidden, false},
		"expired already": {func(n *account.NewKey) { n.Expires = 1 }, fault.Invalid, false},
		"no name":         {func(n *account.NewKey) { n.Name = " " }, fault.Invalid, false},
		"long name":       {func(n *account.NewKey) { n.Name = strings.Repeat("é", 101) }, fault.Invalid, false},
		"no scopes":       {func(n *account.NewKey) { n.Scopes = nil }, fault.Invalid, false},
	} {
		t.Run(name, func(t *testing.T) {
			n := fits
			tt.change(&n)
			err := d.Write(t.Context(), func(tx *db.Tx) error {
				_, _, err := a.CreateKeyTx(t.Context(), tx, by, n)
				return err
			})
			if tt.ok != (err == nil) || err != nil && !fault.Is(err, tt.kind) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestParseNet(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"10.1.2.3":            "10.1.2.3/32",
		"10.1.2.3/8":          "10.0.0.0/8",
		"2001:db8::1":         "2001:db8::1/128",
		"::ffff:10.1.2.3":     "10.1.2.3/32",
		"::ffff:10.1.2.3/104": "10.0.0.0/8",
		"::ffff:0.0.0.0/0":    "",
		"fe80::1%eth0":        "",
		"x":                   "",
		"10.0.0.0/33":         "",
	} {
		p, err := account.ParseNet(in)
		if got := p.String(); (err == nil && got != want) || (err != nil) != (want == "") {
			t.Errorf("%s: got %s, %v; want %q", in, got, err, want)
		}
	}
}

// LooksLikeKey accepts only strings with a valid checksum and never panics.
func FuzzLooksLikeKey(f *testing.F) {
	f.Add("slw_0000000000000000000000000000000000000000000000000")
	f.Add("slw_é")
	f.Fuzz(func(t *testing.T, s string) {
		if account.LooksLikeKey(s) && (len(s) != 53 || !strings.HasPrefix(s, "slw_")) {
			t.Errorf("%q looks like a key", s)
		}
	})
}
