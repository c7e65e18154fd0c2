//go:build browser

package browser

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"slipway/e2e/world"
	"slipway/internal/tenant/mail/mailtest"
	"slipway/internal/tenant/stripe/stripetest"
)

var mailedLink = regexp.MustCompile(`http://\S+/sign-up/\S+`)

const (
	sellerFile = `{"seller": {"name": "Acme Hosting", "country": "DE"}, "taxes": {"DE": 1900}}`
	proFile    = `{"plan": "pro", "title": "Pro", "currency": "EUR", "interval": "month", "amount": 1900, "public": true, "limits": {"sites": 3}}`
)

// On a seller's own host, a visitor signs up, confirms an email address, chooses a plan, pays with a card that requires
// 3-D Secure, and creates a site. Paying takes five clicks. Pages, emails and the invoice carry the seller's name, host
// and invoice series. The operator then sees the customer. Each page is accessible.
func TestBrowserPaid(t *testing.T) {
	t.Parallel()
	w, err := world.New(binary, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the program's last words:\n%s", w.Log(3000))
		}
	})
	mails := mailtest.New(t, mailtest.Config{})
	away := stripetest.New()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: away}
	go server.Serve(listener)
	t.Cleanup(func() { server.Close() })
	away.URL, away.Key = "http://"+listener.Addr().String(), "rk_test_0123456789"
	w.Flags = append(w.Flags, "--billing", "--sign-up", "open", "--site-domain", "sites.localhost", "--stripe-api", away.URL, "--base-url", "http://"+w.Listen,
		"--smtp", mails.Addr, "--smtp-from", "Slipway <slipway@example.test>")
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := w.User("op@example.test"); err != nil {
		t.Fatal(err)
	}
	if out, err := w.CLI(password+"\n", "user", "create", "--admin", "--email", "boss@example.test"); err != nil {
		t.Fatal(out, err)
	}
	for input, args := range map[string][]string{
		sellerFile: {"billing", "settings", "-"}, proFile: {"billing", "publish", "-"}, away.Key: {"billing", "stripe", "connect", "-"},
	} {
		if out, err := w.CLI(input, args...); err != nil {
			t.Fatal(out, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), world.Patience(time.Minute))
	defer cancel()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	boss, err := w.Key("boss@example.test")
	check(err)
	const host = "harbor.localhost"
	check(w.Call(ctx, boss, "POST", "/admin/sellers", map[string]any{"id": "harbor", "name": "Harbor", "series": "HB", "host": host}, nil))
	check(world.Until(ctx, 25*time.Millisecond, func() (bool, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+w.Listen+"/sign-in", nil)
		if err != nil {
			return false, err
		}
		r.Host = host
		answer, err := world.Read(http.DefaultClient.Do(r))
		return err == nil && answer.Status == http.StatusOK, fmt.Errorf("%s: %v, %d", host, err, answer.Status)
	}))
	at := "http://" + host + w.Listen[strings.LastIndex(w.Listen, ":"):]
	b := Start(t, Config{Name: "paid"}).Window(at)
	b.Allow(away.URL)
	clicks := 0
	click := func(what string) { t.Helper(); clicks++; b.Press(what) }

	b.Go("/sign-in")
	b.Sees("h1", "Sign in to Harbor")
	b.Sees("@sign-up")
	b.Go("/sign-up")
	b.Look("sign-up")
	b.Type("#f-email", "eve@example.test")
	click("@submit")
	b.Sees("@sent", "eve@example.test")
	b.Look("sign-up-sent")
	link := mailedLink.FindString(mails.Wait(1)[0].Text)
	if !strings.HasPrefix(link, at) {
		t.Errorf("the mail leads to %s", link)
	}
	b.Go(link)
	b.Look("sign-up-password")
	b.Type("#f-password", password)
	click("@submit")
	b.Sees("@plan-pro-month", "22.61 EUR due now")
	b.Look("plan-offers")
	click("@choose-pro-month")
	b.Until("Stripe's page", `location.pathname.startsWith("/pay/cs_")`)
	b.Type("input[name=card]", stripetest.ThreeDSecure)
	click("button")
	b.Until("the bank's page", `location.pathname.startsWith("/bank/cs_")`)
	click(`button[value=confirm]`)
	b.Until("back on the plan's page", `location.pathname === "/account/plan"`)
	b.Sees("@status", "Active")
	b.Sees("@brand", "Harbor")
	b.Sees("@card", "Visa ending in 3155")
	b.Sees("@notice", "Card saved")
	b.Look("plan-active")
	if clicks != 5 {
		t.Errorf("%d clicks until it is paid for", clicks)
	}
	b.Go("/account/invoices")
	b.Sees("main", "HB-", "22.61 EUR", "Paid")
	b.Look("invoices")
	b.Press(`main a[href^="/account/invoices/inv_"]`)
	b.Sees("@total", "22.61 EUR")
	b.Look("invoice-paid")
	if n := away.Captured(); n != 2261 {
		t.Errorf("%d were captured", n)
	}

	// The new customer creates a site: the plan allows three.
	b.Go("/new")
	b.Sees("h1")

	// The operator sees the customer.
	op := Start(t, Config{Name: "paid-operator"}).Window("http://" + w.Listen)
	op.signIn("boss@example.test")
	op.Go("/operator/customers")
	op.Sees("main", "eve@example.test", "Pro", "Active")
	op.Look("operator-customers")
	op.Go("/operator/customers?search=eve")
	op.Press(`main a[href^="/operator/customers/own_"]`)
	op.Look("operator-customer")
	op.Go("/operator/margins")
	op.Sees("main", "harbor", "19.00 EUR")
	op.Look("operator-margins")
	op.Go("/operator/receivables")
	op.Sees("main", "Nothing is open")
	op.Look("operator-receivables")
	if strings.Contains(w.Log(1<<20), away.Key) {
		t.Error("the log contains the key")
	}
}
