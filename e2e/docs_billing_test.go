package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"testing"
	"time"

	"slipway/e2e/world"
	"slipway/internal/tenant/stripe/stripetest"
	"slipway/internal/web/docs"
)

// The documented billing examples work when pasted into a shell. A fake Stripe sends events, and the test enters a card
// on its pages.
func TestDocumentedBilling(t *testing.T) {
	t.Parallel()
	w, err := world.New(binary, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	away := stripetest.New()
	server := httptest.NewServer(away)
	t.Cleanup(server.Close)
	away.URL, away.Key = server.URL, "rk_test_0123456789"
	w.Flags = append(w.Flags, "--billing", "--stripe-api", away.URL, "--base-url", "http://"+w.Listen)
	ctx, cancel := deadline()
	defer cancel()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%v\nthe program's last words:\n%s", err, w.Log(2000))
		}
	}
	check(w.Start(ctx))
	cli := func(input string, args ...string) string {
		t.Helper()
		out, err := w.CLI(input, args...)
		check(err)
		return out
	}
	key, err := w.User("billing@example.test")
	check(err)
	_, err = w.User("customer@example.test")
	check(err)
	cli(world.Password+"\n", "user", "create", "--admin", "--email", "operator@example.test")
	operator, err := w.Key("operator@example.test")
	check(err)
	cli(`{"seller": {"name": "Acme Hosting", "country": "DE"}, "taxes": {"DE": 1900}, "cards": "optional"}`, "billing", "settings", "-")
	for name, amount := range map[string]int{"pro": 1900, "max": 4900} {
		cli(fmt.Sprintf(`{"plan": %q, "title": "Plan", "currency": "EUR", "interval": "month", "amount": %d, "public": true}`, name, amount), "billing", "publish", "-")
	}
	hook := "http://" + w.Listen + regexp.MustCompile(`/hooks/stripe/sta_\w+`).FindString(cli(away.Key, "billing", "stripe", "connect", "-"))
	const secret = "whsec_0123456789abcdef"
	cli(secret, "billing", "stripe", "secret", "-")

	// Play the customer on Stripe's pages, and deliver Stripe's events.
	visit, leave := context.WithCancel(ctx)
	gone := make(chan error, 1)
	go func() {
		sent := 0
		gone <- world.Until(visit, 50*time.Millisecond, func() (bool, error) {
			for _, page := range away.All("cs") {
				if page["status"] == "open" && page["mode"] == "setup" {
					if err := away.Enter(page["id"].(string), stripetest.Fine); err != nil {
						return false, err
					}
				}
			}
			events := away.All("evt")
			for ; sent < len(events); sent++ {
				body := stripetest.Event(events[sent])
				answer, err := w.Do(visit, world.Request{
					Method: "POST", URL: hook, Body: body, Header: http.Header{"Stripe-Signature": {stripetest.Sign(body, secret, time.Now())}},
				})
				if err = errors.Join(err, answer.Err()); err != nil {
					return false, err
				}
			}
			return false, errors.New("still needed")
		})
	}()
	for _, s := range docs.Scenarios() {
		if s.Name != "billing" {
			continue
		}
		err := w.RunScenario(ctx, t.TempDir(), s, map[string]string{
			"SLIPWAY_KEY": key, "OPERATOR_KEY": operator, "CUSTOMER_ID": "customer@example.test",
		}, func(name string, _ map[string]string) (string, error) {
			if name != "INVOICE_ID" {
				return "", fmt.Errorf("no step gives %s", name)
			}
			var list struct{ Data []struct{ ID, Kind string } }
			if err := w.Call(ctx, key, "GET", "/invoices", nil, &list); err != nil {
				return "", err
			}
			for _, i := range list.Data {
				if i.Kind == "invoice" {
					return i.ID, nil
				}
			}
			return "", errors.New("there is no invoice")
		})
		check(err)
	}
	leave()
	<-gone
	cli("", "billing", "check")
	cli("", "billing", "recompute")
}
