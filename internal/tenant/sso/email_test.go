package sso_test

import (
	"testing"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/sso"
)

// An email address alone never signs in to an existing account, even if it is verified or has the same subject at
// another issuer (nOAuth).
func TestEmailIsNoIdentity(t *testing.T) {
	t.Parallel()
	w := newWorld(t, vouches("example.test"))
	ada := w.user("ada@example.test", password)
	_, err := w.signIn()
	wantCode(t, err, "link_required")

	must(t, w.link(ada))
	other := newWorld(t)
	other.user("ada@example.test", password)
	_, err = other.signIn() // the same subject at another issuer
	wantCode(t, err, "identity_unknown")
}

// A sign-in creates an account only if the provider is trusted for the email's domain and has verified the address.
func TestSignUp(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		domains  []string
		email    string
		verified any
		code     string // error code; empty: an account is created
	}{
		"vouched":          {[]string{"example.test"}, "ada@example.test", true, ""},
		"as text":          {[]string{"example.test"}, "ada@example.test", "true", ""},
		"every address":    {[]string{"*"}, "ada@elsewhere.test", true, ""},
		"no domain":        {nil, "ada@example.test", true, "identity_unknown"},
		"another domain":   {[]string{"example.test"}, "ada@evil-example.test", true, "identity_unknown"},
		"subdomain":        {[]string{"example.test"}, "ada@sub.example.test", true, "identity_unknown"},
		"unverified":       {[]string{"example.test"}, "ada@example.test", false, "identity_unknown"},
		"not told":         {[]string{"example.test"}, "ada@example.test", nil, "identity_unknown"},
		"verified as text": {[]string{"example.test"}, "ada@example.test", "false", "identity_unknown"},
		"no address":       {[]string{"*"}, "", true, "identity_unknown"},
		"two ats":          {[]string{"example.test"}, "eve@evil.test@example.test", true, "identity_unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, vouches(tt.domains...))
			w.issuer.claims = func(c map[string]any) { c["email"], c["email_verified"] = tt.email, tt.verified }
			w.issuer.userinfo = map[string]any{"sub": "248289761001"}
			s, err := w.signIn()
			if tt.code != "" {
				wantCode(t, err, tt.code)
				if users, err := w.accounts.Users(t.Context()); err != nil || len(users) != 0 {
					t.Errorf("%d users were made, %v", len(users), err)
				}
				return
			}
			must(t, err)
			u, err := w.accounts.User(t.Context(), s.User)
			must(t, err)
			if u.Email != tt.email || u.Password || u.Admin {
				t.Errorf("user %+v", u)
			}
			again, err := w.signIn()
			if err != nil || again.User != s.User {
				t.Errorf("the second sign-in is %v's, %v", again.User, err)
			}
		})
	}
}

// The next holder of an email address can't sign in to the previous holder's account, because the subject differs.
func TestReusedEmail(t *testing.T) {
	t.Parallel()
	w := newWorld(t, vouches("example.test"))
	first, err := w.signIn()
	must(t, err)
	w.issuer.claims = func(c map[string]any) { c["sub"] = "the-next-one" }
	_, err = w.signIn()
	wantCode(t, err, "link_required")

	w.issuer.claims = func(c map[string]any) { c["email"] = "renamed@example.test" }
	if s, err := w.signIn(); err != nil || s.User != first.User {
		t.Errorf("a new address makes %v of %v, %v", s.User, first.User, err)
	}
}

// An invited user can sign in with the provider. An invited operator can't.
func TestInvited(t *testing.T) {
	t.Parallel()
	for _, admin := range []bool{false, true} {
		w := newWorld(t, vouches("example.test"))
		must(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
			_, _, err := w.accounts.InviteTx(t.Context(), tx, "ada@example.test", admin)
			return err
		}))
		u, err := w.accounts.UserByEmail(t.Context(), "ada@example.test")
		must(t, err)
		s, err := w.signIn()
		if admin {
			wantCode(t, err, "link_required")
			continue
		}
		if err != nil || s.User != u.ID {
			t.Errorf("signed in %v, %v, want %v", s.User, err, u.ID)
		}
		if err := w.db.Write(t.Context(), func(tx *db.Tx) error { return w.accounts.UninviteTx(t.Context(), tx, u.ID) }); err == nil {
			t.Error("an invitation that was used is taken back")
		}
	}
}

// Invalid settings are refused before anything is stored.
func TestSettings(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	good := sso.NewProvider{Kind: sso.OIDC, ID: "new", Issuer: "https://login.example.com", ClientID: "c", Secret: "s"}
	for name, tt := range map[string]struct {
		change func(*sso.NewProvider)
		code   string
	}{
		"kind":               {func(n *sso.NewProvider) { n.Kind = "saml" }, "invalid_kind"},
		"plain http":         {func(n *sso.NewProvider) { n.Issuer = "http://login.example.com" }, "invalid_issuer"},
		"no issuer":          {func(n *sso.NewProvider) { n.Issuer = "" }, "invalid_issuer"},
		"query":              {func(n *sso.NewProvider) { n.Issuer += "?a=b" }, "invalid_issuer"},
		"user":               {func(n *sso.NewProvider) { n.Issuer = "https://a:b@login.example.com" }, "invalid_issuer"},
		"every tenant":       {func(n *sso.NewProvider) { n.Kind, n.Tenant = sso.Microsoft, "common" }, "invalid_tenant"},
		"personal accounts":  {func(n *sso.NewProvider) { n.Kind, n.Tenant = sso.Microsoft, "9188040d-6c67-4c5b-b112-36a304b66dad" }, "invalid_tenant"},
		"somebody's Google":  {func(n *sso.NewProvider) { n.Kind = sso.Google }, "invalid_issuer"},
		"id":                 {func(n *sso.NewProvider) { n.ID = "../x" }, "invalid_id"},
		"name":               {func(n *sso.NewProvider) { n.Name = "a\nb" }, "invalid_name"},
		"secret":             {func(n *sso.NewProvider) { n.Secret = "" }, "invalid_client"},
		"domain":             {func(n *sso.NewProvider) { n.Domains = []string{"*.example.com"} }, "invalid_domain"},
		"the id of a second": {func(n *sso.NewProvider) { n.ID = "acme" }, "provider_exists"},
	} {
		n := good
		tt.change(&n)
		err := w.db.Write(t.Context(), func(tx *db.Tx) error { _, err := w.CreateTx(t.Context(), tx, n); return err })
		wantCode(t, err, tt.code)
		if err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	p := w.add(sso.NewProvider{Kind: sso.Microsoft, Tenant: "72f988bf-86f1-41af-91ab-2d7cd011db47", ClientID: "c", Secret: "s"})
	if p.Issuer != "https://login.microsoftonline.com/72f988bf-86f1-41af-91ab-2d7cd011db47/v2.0" || p.ID != "microsoft" || p.Name != "Microsoft" {
		t.Errorf("Microsoft is %+v", p)
	}
}
