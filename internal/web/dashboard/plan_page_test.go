package dashboard

import (
	"regexp"
	"strings"
	"testing"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/billing"
	"slipway/internal/tenant/billing/party"
	"slipway/internal/tenant/billing/plan"
	"slipway/internal/tenant/billing/seller"
	"slipway/internal/tenant/usage"
)

var formDigest = regexp.MustCompile(`name="plan" value="([a-z]+)"><input type="hidden" name="interval" value="month"><input type="hidden" name="currency" value="EUR"><input type="hidden" name="digest" value="([0-9a-f]+)"`)

// A plan is chosen at the price shown. Its invoice can be read and downloaded, only by its owner. Without billing, the
// page is a 404 and nothing links to it.
func TestPlanPages(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *Config) {
		c.Billing = billing.New(billing.Config{DB: c.DB, Hooks: c.Webhooks, Usage: usage.New(usage.Config{DB: c.DB})})
	})
	w.user("ada@example.test", false)
	w.user("eve@example.test", false)
	w.user("op@example.test", true)
	must(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
		s := party.DefaultSettings()
		s.Seller, s.Taxes = party.Party{Name: "Acme <Hosting>", Country: "DE"}, map[string]int64{"DE": 1900}
		s.Payment = "IBAN DE02"
		if err := w.dash.Billing.SaveSettingsTx(t.Context(), tx, "", s); err != nil {
			return err
		}
		for name, amount := range map[string]int64{"pro": 1900, "max": 4900} {
			if _, err := w.dash.Billing.PublishTx(t.Context(), tx, "", plan.Terms{
				Plan: name, Title: "<" + name + ">", Currency: "EUR", Term: plan.Month, Amount: amount, Public: true,
			}); err != nil {
				return err
			}
		}
		return nil
	}))
	ada := w.as("ada@example.test")
	p := ada.get("/account/plan").want(t, 200, "&lt;pro&gt;", "19.00 EUR per month", "22.61 EUR due now, 3.61 EUR of it tax", `href="/account/invoices"`)
	digests := map[string]string{}
	for _, m := range formDigest.FindAllStringSubmatch(p.body, -1) {
		digests[m[1]] = m[2]
	}
	ada.post("/account/plan", "plan", "pro", "interval", "month", "currency", "EUR", "digest", digests["max"]).want(t, 409, "The price has changed")
	ada.post("/account/plan", "plan", "pro", "interval", "month", "currency", "EUR", "digest", digests["pro"]).to(t, "/account/plan")
	ada.get("/account/plan").want(t, 200, "Current plan", "Renewed on", "Cancel subscription")
	list := ada.get("/account/invoices").want(t, 200, "22.61 EUR", "Open")
	at := strings.Index(list.body, "/account/invoices/inv_")
	link := list.body[at : at+len("/account/invoices/inv_")+26]
	ada.get(link).want(t, 200, "22.61 EUR", "19.00 EUR", "3.61 EUR", "Download PDF", "IBAN DE02", "22.61 EUR due on")
	if pdf := ada.get(link + "/pdf"); pdf.status != 200 || !strings.HasPrefix(pdf.body, "%PDF-") {
		t.Errorf("%d %.20s", pdf.status, pdf.body)
	}
	eve := w.as("eve@example.test")
	eve.get(link).want(t, 404)
	eve.get(link+"/pdf").want(t, 404)
	eve.get("/account/invoices").want(t, 200, "No invoices yet")
	op := w.as("op@example.test")
	op.get("/operator/receivables").want(t, 200, "ada@example.test", "22.61 EUR", "-000001")
	number := regexp.MustCompile(`20\d\d-000001`).FindString(list.body)
	op.get("/operator/receivables?invoice="+number).want(t, 200, `value="`+number+`"`, `value="22.61"`)
	op.post("/operator/receivables", "invoice", number, "amount", "22,61", "reference", "a").want(t, 422, "is not an amount in EUR")
	op.post("/operator/receivables", "invoice", number, "amount", "22.61", "reference", "a").to(t, "/operator/receivables")
	op.post("/operator/receivables", "invoice", number, "amount", "22.61", "reference", "a").want(t, 409, "recorded already")
	op.get("/operator/receivables").want(t, 200, "Nothing is open")
	if p := ada.get(link).want(t, 200, "Paid", "Received"); strings.Contains(p.body, "IBAN") {
		t.Error("a paid invoice asks for a transfer")
	}
	eve.get("/operator/receivables").want(t, 404)
	ada.post("/account/plan/profile", "name", "Ada <Lovelace>", "address", "12 St James's Square\r\nLondon", "country", "gb", "vatId", "GB 123").to(t, "/account/plan")
	ada.post("/account/plan/profile", "name", "Ada", "country", "Germany").want(t, 422, "two capital letters")
	ada.post("/account/plan/budget", "budget", "50.5").to(t, "/account/plan")
	ada.post("/account/plan/budget", "budget", "-1").want(t, 422)
	ada.post("/account/plan/budget", "budget", "a lot").want(t, 422, "is not an amount in EUR")
	ada.get("/account/plan").want(t, 200, `value="50.50"`, "Ada &lt;Lovelace&gt;", `value="GB"`, `value="GB123"`)
	ada.post("/account/plan/cancel").to(t, "/account/plan")
	ada.get("/account/plan").want(t, 200, "Canceled", "Resume subscription")
	ada.post("/account/plan/resume").to(t, "/account/plan")

	op.get("/operator/customers").want(t, 200, "ada@example.test", "&lt;pro&gt;", "Active", "No plan")
	op.get("/operator/customers?search=nobody").want(t, 200, "No customers found")
	at = strings.Index(op.get("/operator/customers").body, "/operator/customers/own_")
	found := regexp.MustCompile(`/operator/customers/own_[a-z2-7]{26}">eve@`).FindString(op.get("/operator/customers").body)
	page := strings.TrimSuffix(found, `">eve@`)
	if at < 0 || page == "" {
		t.Fatal("no link to a customer")
	}
	op.post(page+"/plan", "plan", "max", "interval", "month", "currency", "EUR").to(t, page)
	op.post(page+"/credit", "amount", "100", "currency", "EUR", "reason", "a favor").to(t, page)
	op.post(page+"/credit", "amount", "ten", "currency", "EUR", "reason", "a favor").want(t, 422, "is not an amount")
	op.post(page+"/grants", "name", "sites", "value", "7", "why", "a favor").to(t, page)
	op.post(page+"/grants", "name", "sites", "value", "many", "why", "a favor").want(t, 422, "whole number")
	p = op.get(page).want(t, 200, "&lt;max&gt;", "41.69 EUR", "a favor", "58.31 EUR", "No end")
	grant := regexp.MustCompile(`/grants/(grn_[a-z2-7]{26})/delete`).FindStringSubmatch(p.body)
	op.post(page+"/grants/"+grant[1]+"/delete").to(t, page)
	printed := regexp.MustCompile(regexp.QuoteMeta(page) + `/invoices/inv_[a-z2-7]{26}/pdf`).FindString(p.body)
	if pdf := op.get(printed); pdf.status != 200 || !strings.HasPrefix(pdf.body, "%PDF-") {
		t.Errorf("%s: %d %.20s", printed, pdf.status, pdf.body)
	}
	op.get(page+strings.TrimPrefix(link, "/account")+"/pdf").want(t, 404) // another customer's
	eve.get(printed).want(t, 404)
	op.get("/operator/margins").want(t, 200, "&lt;max&gt;", "49.00 EUR per month")
	must(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
		return seller.SaveTx(t.Context(), tx, seller.Seller{ID: "harbor", Name: "Harbor <Ltd>", Series: "HB", Logo: []byte("a picture")})
	}))
	op.get("/operator/sellers").want(t, 200, "Harbor &lt;Ltd&gt;", "HB-…")
	op.post(page+"/seller", "seller", "nobody").want(t, 404, "Seller not found")
	op.post(page+"/seller", "seller", "harbor").to(t, page)
	op.get(page).want(t, 200, `<option value="harbor" selected>`)
	p = eve.get("/account/plan").want(t, 200, "Plan · Harbor &lt;Ltd&gt;</title>", "&lt;pro&gt;")
	picture := regexp.MustCompile(`/brand/[0-9a-f]{64}\.png`).FindString(p.body)
	if logo := w.browser().get(picture); logo.status != 200 || logo.body != "a picture" || logo.header.Get("Content-Type") != "image/png" {
		t.Errorf("%q: %d %.20s %v", picture, logo.status, logo.body, logo.header)
	}
	eve.get("/brand/x.png").want(t, 404)
	ada.get("/account/plan").want(t, 200, "Plan · Slipway</title>")
	eve.get("/operator/sellers").want(t, 404)
	eve.post(page+"/seller", "seller", "harbor").want(t, 404)
	op.post(page+"/cancel").to(t, page)
	eve.get("/operator/customers").want(t, 404)
	eve.get(page).want(t, 404)
	eve.get("/operator/margins").want(t, 404)

	without := newWorld(t)
	without.user("ada@example.test", true)
	b := without.as("ada@example.test")
	for _, path := range []string{"/account/plan", "/account/invoices", "/account/invoices/inv_x", "/operator/receivables", "/operator/customers", "/operator/margins", "/operator/sellers", picture} {
		b.get(path).want(t, 404)
	}
	for _, path := range []string{"/", "/account", "/account/usage", "/account/keys/new", "/webhooks/new", "/account/notifications", "/operator", "/operator/users", "/account/audit"} {
		p := b.get(path).want(t, 200)
		for _, word := range []string{"nvoice", "illing", "ubscription.", "payment.", "/account/plan"} {
			if strings.Contains(p.body, word) {
				t.Errorf("%s says %q", path, word)
			}
		}
	}
}
