package dashboard

import (
	"net/url"
	"regexp"
	"strings"
	"testing"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/billing"
	"slipway/internal/tenant/billing/party"
	"slipway/internal/tenant/billing/seller"
	"slipway/internal/tenant/mail/mailtest"
	"slipway/internal/tenant/usage"
)

// On a seller's host all pages have the seller's name. A user who signs up there becomes its customer, gets emails with
// links to that host, and is redirected to it from the installation's host. Pages bound to the installation's host
// redirect there.
func TestSellersHost(t *testing.T) {
	t.Parallel()
	w, srv := mailWorld(t, mailtest.Config{}, func(c *Config) {
		c.SignUp = true
		c.Billing = billing.New(billing.Config{DB: c.DB, Hooks: c.Webhooks, Usage: usage.New(usage.Config{DB: c.DB})})
		c.Sellers = seller.NewHosts(seller.HostsConfig{DB: c.DB, BaseURL: c.BaseURL, SiteDomain: "sites.test"})
	})
	w.user("ada@example.test", false)
	w.user("op@example.test", true)
	must(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
		return seller.SaveTx(t.Context(), tx, seller.Seller{
			ID: "harbor", Name: "Harbor <Ltd>", Series: "HB", Sender: "Harbor <hello@harbor.test>", Logo: []byte("a picture"),
		})
	}))
	op := w.as("op@example.test")
	op.post("/operator/sellers/host", "seller", "harbor", "host", "no host").want(t, 422, "must be a host name")
	op.post("/operator/sellers/host", "seller", "harbor", "host", "panel.harbor.test").to(t, "/operator/sellers")
	op.get("/operator/sellers").want(t, 200, "<td>panel.harbor.test</td>")
	must(t, w.dash.Sellers.Read(t.Context()))

	const at = "Host: panel.harbor.test"
	base := "http://panel.harbor.test:" + w.srv.URL[strings.LastIndex(w.srv.URL, ":")+1:]
	b := w.browser()
	p := b.get("/sign-in", at).want(t, 200, "<h1>Sign in to Harbor &lt;Ltd&gt;</h1>", "Sign in · Harbor &lt;Ltd&gt;</title>", "/brand/")
	if p.has("passkey") {
		t.Error("a passkey of another host is offered")
	}
	b.get("/sign-in").want(t, 200, "<h1>Sign in to Slipway</h1>")
	b.get("/sign-in/sso?next=/teams", at).want(t, 200, `href="`+w.srv.URL+`/sign-in/sso?next=/teams"`)

	post := func(path string, pairs ...string) reply {
		t.Helper()
		form := url.Values{}
		for i := 0; i+1 < len(pairs); i += 2 {
			form.Add(pairs[i], pairs[i+1])
		}
		return b.do("POST", path, form, at)
	}
	post("/sign-up", "email", "ida@bakery.test").want(t, 200, `data-test="sent"`)
	m := srv.Wait(1)[0]
	link := regexp.MustCompile(`(?m)^\S+/sign-up/\S+$`).FindString(m.Text)
	path, ok := strings.CutPrefix(link, base)
	if !ok || strings.Contains(m.Text, w.srv.URL) || !strings.Contains(m.Header.Get("From"), "hello@harbor.test") {
		t.Fatalf("from %s: %s", m.Header.Get("From"), m.Text)
	}
	b.get(path, at).want(t, 200, "Harbor &lt;Ltd&gt;</title>")
	post(path, "password", "quite another one 7").to(t, "/")
	b.get("/account", at).want(t, 200, "Welcome to Harbor &lt;Ltd&gt;", "Harbor &lt;Ltd&gt;</title>")
	ida, err := w.dash.Accounts.UserByEmail(t.Context(), "ida@bakery.test")
	must(t, err)
	if who, err := party.SellerOf(t.Context(), w.db, ida.Owner); err != nil || who != "harbor" {
		t.Errorf("the customer of %q: %v", who, err)
	}
	post("/account/passkeys/begin").want(t, 200, `href="`+w.srv.URL+`/account/security"`)
	b.get("/oauth/authorize?client_id=x", at).want(t, 200, `href="`+w.srv.URL+`/oauth/authorize?client_id=x"`)
	w.browser().do("POST", "/forgot", url.Values{"email": {"ida@bakery.test"}}).want(t, 200) // at the installation's host
	if m := srv.Wait(2)[1]; !strings.Contains(m.Text, base+"/setup/") || strings.Contains(m.Text, w.srv.URL) {
		t.Errorf("%s", m.Text)
	}

	s, _, err := w.dash.Accounts.SignIn(t.Context(), "ida@bakery.test", "quite another one 7", account.Device{})
	must(t, err)
	if o, err := w.dash.Accounts.OfferTOTP(t.Context(), s); err != nil || !strings.Contains(o.URI, "issuer=Harbor") {
		t.Errorf("an authenticator app is offered %s: %v", o.URI, err)
	}

	// A customer of the installation can sign in here and sees the installation's name.
	b = w.browser()
	post("/sign-in", "email", "ada@example.test", "password", password).to(t, "/")
	b.get("/account", at).want(t, 200, "Slipway</title>")
	ada, err := w.dash.Accounts.UserByEmail(t.Context(), "ada@example.test")
	must(t, err)
	if who, err := party.SellerOf(t.Context(), w.db, ada.Owner); err != nil || who != "" {
		t.Errorf("signing in makes a customer of %q: %v", who, err)
	}
}
