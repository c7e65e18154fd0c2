package api_test

import (
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/seal"
	"slipway/internal/tenant/billing"
	"slipway/internal/tenant/billing/party"
	"slipway/internal/tenant/billing/plan"
	"slipway/internal/tenant/stripe"
	"slipway/internal/tenant/stripe/stripetest"
	"slipway/internal/tenant/usage"
	"slipway/internal/tenant/webhook"
	"slipway/internal/web/api"
)

// A subscription with a new card starts, and Stripe's events pay its invoice. Events without Stripe's signature are
// refused.
func TestCards(t *testing.T) {
	t.Parallel()
	away := stripetest.New()
	srv := httptest.NewServer(away)
	t.Cleanup(srv.Close)
	away.URL = srv.URL
	sealer, err := seal.Load(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, func(c *api.Config) {
		c.Billing = billing.New(billing.Config{
			DB: c.DB, Usage: usage.New(usage.Config{DB: c.DB}), Limits: c.Limits, Hooks: webhook.New(webhook.Config{DB: c.DB, Billing: true}),
		})
		c.Stripe = stripe.New(stripe.Config{DB: c.DB, Seal: sealer, Billing: c.Billing, Out: srv.Client(), API: srv.URL})
		c.Billing.Connect(c.Stripe)
	})
	_, key := w.user("ada@example.test")
	_, other := w.user("eve@example.test")
	var account stripe.Account
	const secret = "whsec_0123456789abcdef"
	w.write(func(tx *db.Tx) (err error) {
		s := party.DefaultSettings()
		s.Seller = party.Party{Name: "Acme", Country: "DE"}
		if err := w.c.Billing.SaveSettingsTx(t.Context(), tx, "", s); err != nil {
			return err
		}
		_, err = w.c.Billing.PublishTx(t.Context(), tx, "", plan.Terms{Plan: "pro", Title: "Pro", Currency: "EUR", Term: plan.Month, Amount: 1900, Public: true})
		return err
	})
	if a := w.api("POST", "/billing/payment-method", key, m{}); a.status != 409 || !strings.Contains(a.body, "no_cards") {
		t.Errorf("%d %s", a.status, a.body)
	}
	w.write(func(tx *db.Tx) (err error) {
		if account, err = w.c.Stripe.ConnectTx(t.Context(), tx, "rk_test_0123456789"); err != nil {
			return err
		}
		_, err = w.c.Stripe.SecretTx(t.Context(), tx, secret)
		return err
	})
	if a := w.api("POST", "/subscription", key, m{"plan": "pro"}); a.status != 409 || !strings.Contains(a.body, "payment_method_required") {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := w.api("GET", "/billing/payment-method", key, nil); a.status != 404 {
		t.Errorf("%d %s", a.status, a.body)
	}
	for _, x := range []m{{"subscribe": m{"plan": "gold"}}, {"currency": "XXX"}, {"subscribe": m{"plan": "pro", "digest": "another"}}} {
		if a := w.api("POST", "/billing/payment-method", key, x); a.status != 400 && a.status != 409 {
			t.Errorf("%v: %d %s", x, a.status, a.body)
		}
	}
	page := w.must(200, "POST", "/billing/payment-method", key, m{"subscribe": m{"plan": "pro"}})
	if url := page["url"].(string); !strings.HasPrefix(url, srv.URL+"/pay/cs_") {
		t.Errorf("%s", url)
	}
	session := away.All("cs")[0]["id"].(string)
	if err := away.Enter(session, stripetest.Fine); err != nil {
		t.Fatal(err)
	}
	call := func(path string, body []byte, header string) answer {
		return w.send("POST", path, "", string(body), "Stripe-Signature: "+header)
	}
	for _, e := range away.All("evt") {
		body := stripetest.Event(e)
		path := stripe.HookPath + account.ID
		if a := call(path, body, stripetest.Sign(body, "whsec_another", time.Now())); a.status != 400 || !strings.Contains(a.body, "invalid_signature") {
			t.Errorf("forged: %d %s", a.status, a.body)
		}
		if a := call(stripe.HookPath+"sta_abcdefghijklmnopqrstuvwxyz", body, stripetest.Sign(body, secret, time.Now())); a.status != 404 {
			t.Errorf("another webhook: %d %s", a.status, a.body)
		}
		if a := call(path, body, stripetest.Sign(body, secret, time.Now())); a.status != 200 {
			t.Errorf("%d %s", a.status, a.body)
		}
		if err := w.c.Stripe.FetchAll(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if card := w.must(200, "GET", "/billing/payment-method", key, nil); card["last4"] != "4242" || card["declined"] != nil {
		t.Errorf("%v", card)
	}
	invoice := w.must(200, "GET", "/invoices", key, nil)["data"].([]any)[0].(map[string]any)
	id := invoice["id"].(string)
	if a := w.api("POST", "/invoices/"+id+"/pay", other, m{}); a.status != 404 {
		t.Errorf("another account: %d %s", a.status, a.body)
	}
	if a := w.api("POST", "/invoices/"+id+"/pay", key, m{}); a.status != 409 || !strings.Contains(a.body, "payment_open") {
		t.Errorf("while a payment is under way: %d %s", a.status, a.body)
	}
	list := w.must(200, "GET", "/payments", key, nil)["data"].([]any)
	pay := list[0].(map[string]any)
	if pay["status"] != "pending" || pay["provider"] != "stripe" {
		t.Errorf("%v", pay)
	}
	if _, err := w.c.Billing.Proceed(t.Context(), billing.PaymentID(pay["id"].(string))); err != nil {
		t.Fatal(err)
	}
	if got := w.must(200, "GET", "/invoices/"+id, key, nil); got["status"] != "paid" {
		t.Errorf("%v", got)
	}
	w.must(200, "DELETE", "/billing/payment-method", key, nil)
	if a := w.api("DELETE", "/billing/payment-method", key, nil); a.status != 404 {
		t.Errorf("%d %s", a.status, a.body)
	}
}
