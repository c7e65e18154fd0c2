package api_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"strings"
	"testing"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/billing"
	"slipway/internal/tenant/billing/party"
	"slipway/internal/tenant/billing/plan"
	"slipway/internal/tenant/billing/seller"
	"slipway/internal/tenant/limits"
	"slipway/internal/tenant/usage"
	"slipway/internal/tenant/webhook"
	"slipway/internal/web/api"
)

// newBillingWorld returns the API of an installation with billing and a plan.
func newBillingWorld(t *testing.T) *world {
	w := newWorld(t, func(c *api.Config) {
		c.Billing = billing.New(billing.Config{
			DB: c.DB, Usage: usage.New(usage.Config{DB: c.DB}), Limits: c.Limits, Hooks: webhook.New(webhook.Config{DB: c.DB, Billing: true}),
		})
		c.Limits.Connect(c.Billing)
		c.Sellers = seller.NewHosts(seller.HostsConfig{DB: c.DB, BaseURL: c.BaseURL, SiteDomain: "sites.test"})
	})
	w.write(func(tx *db.Tx) error {
		s := party.DefaultSettings()
		s.Seller, s.Taxes = party.Party{Name: "Acme", Country: "DE"}, map[string]int64{"DE": 1900}
		if err := w.c.Billing.SaveSettingsTx(t.Context(), tx, "", s); err != nil {
			return err
		}
		for name, amount := range map[string]int64{"pro": 1900, "max": 4900} {
			if _, err := w.c.Billing.PublishTx(t.Context(), tx, "", plan.Terms{
				Plan: name, Title: strings.ToUpper(name), Currency: "EUR", Term: plan.Month, Amount: amount, Public: true,
				Limits: map[limits.Name]int64{limits.Sites: 3},
			}); err != nil {
				return err
			}
		}
		return nil
	})
	return w
}

func (w *world) write(fn func(tx *db.Tx) error) {
	w.t.Helper()
	if err := w.db.Write(w.t.Context(), fn); err != nil {
		w.t.Fatal(err)
	}
}

// A plan is subscribed to at the previewed price, invoiced, paid and canceled. Other users see nothing of it, and a key
// without the scope is refused.
func TestBilling(t *testing.T) {
	t.Parallel()
	w := newBillingWorld(t)
	_, key := w.user("ada@example.test")
	_, other := w.user("eve@example.test")
	_, narrow := w.user("mia@example.test", account.SitesRead, account.BillingRead)
	if plans := w.must(200, "GET", "/plans", key, nil)["data"].([]any); len(plans) != 2 {
		t.Errorf("%v", plans)
	}
	if a := w.api("GET", "/subscription", key, nil); a.status != 404 {
		t.Errorf("%d %s", a.status, a.body)
	}
	preview := w.must(200, "POST", "/billing/preview", key, m{"action": "subscribe", "plan": "pro"})
	if due := preview["dueNow"].(map[string]any); due["amount"] != 2261.0 || due["currency"] != "EUR" {
		t.Errorf("%v", preview)
	}
	if a := w.api("POST", "/subscription", key, m{"plan": "pro", "digest": "something else"}); a.status != 409 || !strings.Contains(a.body, "price_changed") {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := w.api("POST", "/subscription", narrow, m{"plan": "pro"}); a.status != 403 {
		t.Errorf("a key without billing:write: %d %s", a.status, a.body)
	}
	w.must(200, "PUT", "/billing/profile", key, m{"name": "Ada Lovelace", "country": "DE"})
	sub := w.must(201, "POST", "/subscription", key, m{"plan": "pro", "digest": preview["digest"]})
	if sub["status"] != "active" || sub["plan"] != "pro" || sub["cancelAt"] != nil {
		t.Errorf("%v", sub)
	}
	if a := w.api("POST", "/subscription", key, m{"plan": "pro"}); a.status != 409 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if got := w.must(200, "PATCH", "/subscription", key, m{"plan": "max"}); got["plan"] != "max" {
		t.Errorf("%v", got)
	}
	if got := w.must(200, "PATCH", "/subscription", key, m{"plan": "pro"}); got["plan"] != "max" || got["nextPlan"] != "pro" {
		t.Errorf("a downgrade doesn't wait: %v", got)
	}
	invoices := w.must(200, "GET", "/invoices", key, nil)["data"].([]any)
	if len(invoices) != 2 {
		t.Fatalf("%v", invoices)
	}
	first := invoices[1].(map[string]any)
	id := first["id"].(string)
	details := w.must(200, "GET", "/invoices/"+id, key, nil)
	if lines := details["lines"].([]any); len(lines) != 1 || details["status"] != "open" || details["remaining"].(map[string]any)["amount"] != 2261.0 {
		t.Errorf("%v", details)
	}
	pdf := w.api("GET", "/invoices/"+id+".pdf", key, nil)
	if pdf.status != 200 || !strings.HasPrefix(pdf.body, "%PDF-") || pdf.header.Get("Content-Type") != "application/pdf" {
		t.Errorf("%d %s", pdf.status, pdf.header)
	}
	for _, path := range []string{"/invoices/" + id, "/invoices/" + id + ".pdf", "/invoices?before=" + id, "/invoices/inv_x", "/subscription"} {
		if a := w.api("GET", path, other, nil); a.status != 404 {
			t.Errorf("another account, %s: %d %s", path, a.status, a.body)
		}
	}
	w.write(func(tx *db.Tx) error {
		_, err := w.c.Billing.RecordTx(t.Context(), tx, id, billing.Received{Amount: 2261, Reference: "a"})
		return err
	})
	if list := w.must(200, "GET", "/payments", key, nil)["data"].([]any); len(list) != 1 || list[0].(map[string]any)["status"] != "completed" {
		t.Errorf("%v", list)
	}
	if got := w.must(200, "GET", "/invoices/"+id, key, nil); got["status"] != "paid" {
		t.Errorf("%v", got)
	}
	w.must(200, "PUT", "/billing/budget", key, m{"amount": 5000, "currency": "EUR"})
	if got := w.must(200, "GET", "/billing/budget", key, nil); got["amount"] != 5000.0 {
		t.Errorf("%v", got)
	}
	if got := w.must(200, "DELETE", "/subscription", key, nil); got["status"] != "canceled" || got["cancelAt"] == nil || got["reason"] != "requested" {
		t.Errorf("%v", got)
	}
	w.must(200, "POST", "/subscription/resume", key, nil)
	if got := w.must(200, "DELETE", "/subscription?now=true", key, nil); got["status"] != "expired" {
		t.Errorf("%v", got)
	}
	var did []string
	for _, e := range w.log() {
		did = append(did, e.Action)
	}
	for _, want := range []string{"subscription.created", "subscription.changed", "subscription.canceled", "subscription.resumed", "billing.budget_changed", "billing.profile_changed"} {
		if !strings.Contains(strings.Join(did, " "), want) {
			t.Errorf("%s is not in the audit log: %v", want, did)
		}
	}
}

// Invalid billing requests are refused with an error code.
func TestBillingRefuses(t *testing.T) {
	t.Parallel()
	w := newBillingWorld(t)
	_, key := w.user("ada@example.test")
	for _, x := range []struct {
		method, path string
		body         any
		code         string
	}{
		{"POST", "/subscription", m{"plan": "gold"}, "invalid_plan"},
		{"POST", "/subscription", m{"plan": "pro", "interval": "week"}, "invalid_"},
		{"POST", "/billing/preview", m{"action": "subscribe"}, "invalid_plan"},
		{"POST", "/billing/preview", m{"action": "steal", "plan": "pro"}, "invalid_"},
		{"PUT", "/billing/budget", m{"amount": -1, "currency": "EUR"}, "invalid_amount"},
		{"PUT", "/billing/budget", m{"amount": 9_000_000_000_000_000_000, "currency": "EUR"}, "invalid_amount"},
		{"PUT", "/billing/budget", m{"amount": 1.5, "currency": "EUR"}, "invalid_amount"},
		{"PUT", "/billing/budget", m{"amount": 1, "currency": "XXX"}, "invalid_currency"},
		{"PUT", "/billing/profile", m{"name": "Ada", "country": "Germany"}, "invalid_country"},
		{"PUT", "/billing/profile", m{"name": "Ada", "country": "DE", "vatId": "not one"}, "invalid_vat_id"},
		{"GET", "/invoices?limit=0", nil, "invalid_limit"},
		{"DELETE", "/subscription?now=perhaps", nil, "invalid_now"},
	} {
		if a := w.api(x.method, x.path, key, x.body); a.status != 400 || !strings.Contains(a.body, `"code":"`+x.code) {
			t.Errorf("%s %s %v: %d %s, want %s", x.method, x.path, x.body, a.status, a.body, x.code)
		}
	}
}

// Without billing there are no billing routes, and the OpenAPI document mentions billing only in the contract's event
// names and the teams' role and scopes.
func TestNoBilling(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, key := w.user("ada@example.test")
	for _, path := range []string{"/plans", "/subscription", "/billing/preview", "/billing/profile", "/billing/budget", "/invoices", "/invoices/inv_x", "/payments"} {
		if a := w.api("GET", path, key, nil); a.status != 404 {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	text := w.send("GET", "/api/v1/openapi.json", "", nil).body
	for _, word := range []string{"invoice.", "listInvoices", `"/api/v1/plans"`, "Billing", "credit note"} {
		if strings.Contains(text, word) {
			t.Errorf("the document has %q", word)
		}
	}
	for _, path := range []string{"/docs/billing", "/docs/guides/billing"} {
		if a := w.send("GET", path, "", nil); a.status != 404 {
			t.Errorf("%s: %d", path, a.status)
		}
	}
	selling := newBillingWorld(t)
	for _, path := range []string{"/docs/billing", "/docs/guides/billing"} {
		if a := selling.send("GET", path, "", nil); a.status != 200 || !strings.Contains(a.body, "invoice") {
			t.Errorf("%s with billing: %d", path, a.status)
		}
	}
	with := selling.send("GET", "/api/v1/openapi.json", "", nil).body
	if !strings.Contains(with, "listInvoices") || !strings.Contains(with, `"Billing"`) {
		t.Error("with billing the document has nothing of it either")
	}
	// No operation that billing adds, including those of operators and cards, exists without billing, not even for an
	// operator.
	_, operator := w.operator("root@example.test")
	have, more := operationsOf(t, text), operationsOf(t, with)
	added := 0
	for method, paths := range more {
		for path := range paths {
			if have[method][path] {
				continue
			}
			added++
			if a := w.api(method, strings.NewReplacer("{", "", "}", "").Replace(strings.TrimPrefix(path, "/api/v1")), operator, m{}); a.status != 404 {
				t.Errorf("%s %s: %d %s", method, path, a.status, a.body)
			}
		}
	}
	if added < 30 {
		t.Errorf("billing adds %d operations", added)
	}
}

// operationsOf returns the paths of an OpenAPI document by method.
func operationsOf(t *testing.T, document string) map[string]map[string]bool {
	t.Helper()
	var d struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	if err := json.Unmarshal([]byte(document), &d); err != nil {
		t.Fatal(err)
	}
	out := map[string]map[string]bool{}
	for path, item := range d.Paths {
		for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE"} {
			if item[strings.ToLower(method)] == nil {
				continue
			}
			if out[method] == nil {
				out[method] = map[string]bool{}
			}
			out[method][path] = true
		}
	}
	return out
}

// An action that the plan doesn't include is refused with 402, which names the plan and the cheapest sufficient one. A
// grant overrides the plan.
func TestUpgrades(t *testing.T) {
	t.Parallel()
	w := newBillingWorld(t)
	id, key := w.user("ada@example.test")
	w.write(func(tx *db.Tx) error {
		for amount, file := range map[int]string{
			900:  `{"plan": "small", "title": "Small", "features": ["previews"], "limits": {"sites": 1}`,
			9900: `{"plan": "all", "title": "All", "limits": {"sites": 100}`,
		} {
			terms, err := plan.ReadTerms(strings.NewReader(file + fmt.Sprintf(`, "currency": "EUR", "interval": "month", "amount": %d, "public": true}`, amount)))
			if err != nil {
				return err
			}
			if _, err := w.c.Billing.PublishTx(t.Context(), tx, "", terms); err != nil {
				return err
			}
		}
		return nil
	})
	for _, p := range w.must(200, "GET", "/plans", key, nil)["data"].([]any) {
		p := p.(map[string]any)
		if n := len(p["features"].([]any)); p["plan"] == "small" && n != 1 || p["plan"] == "all" && n != 4 {
			t.Errorf("%v", p)
		}
	}
	w.must(201, "POST", "/subscription", key, m{"plan": "small"})
	refused := w.must(402, "POST", "/sites", key, m{"name": "Blog", "type": "wordpress"})
	up, _ := refused["upgrade"].(map[string]any)
	if refused["code"] != "limit_reached" || refused["name"] != "sites.wordpress" || refused["plan"] != "small" || up["plan"] != "pro" ||
		!strings.HasSuffix(fmt.Sprint(up["url"]), "/account/plan") || !strings.Contains(fmt.Sprint(refused["details"]), "doesn't include WordPress sites") {
		t.Errorf("%v", refused)
	}
	site := w.site(key, "One")
	refused = w.must(402, "POST", "/sites", key, m{"name": "Two", "type": "static", "repository": "git.test/acme/site"})
	if up, _ := refused["upgrade"].(map[string]any); up["plan"] != "pro" || refused["name"] != "sites" {
		t.Errorf("%v", refused)
	}
	refused = w.must(402, "POST", "/sites/"+site+"/domains", key, m{"name": "www.example.com"})
	if refused["name"] != "domains" {
		t.Errorf("%v", refused)
	}
	w.write(func(tx *db.Tx) error {
		_, err := w.c.Billing.GrantTx(t.Context(), tx, w.owner(id), plan.Grant{Name: limits.Sites, Value: 5, Reason: "a favor"})
		return err
	})
	w.must(201, "POST", "/sites", key, m{"name": "Two", "type": "static", "repository": "git.test/acme/site"})

	// When a team's limit is reached, the error links to the team's plan page and not to the caller's own.
	_, eve := w.user("eve@example.test")
	_, ofTeam := w.teamOf(eve, "Acme")
	w.must(201, "POST", "/subscription", ofTeam, m{"plan": "small"})
	refused = w.must(402, "POST", "/sites", ofTeam, m{"name": "Blog", "type": "wordpress"})
	if up, _ := refused["upgrade"].(map[string]any); !strings.HasSuffix(fmt.Sprint(up["url"]), "/account/plan?team=acme") {
		t.Errorf("%v", refused)
	}
	if _, err := plan.ReadTerms(strings.NewReader(`{"plan": "x", "title": "X", "currency": "EUR", "interval": "month", "features": [], "limits": {"domains": 1}}`)); err == nil {
		t.Error("a limit of a feature that isn't included")
	}
	plain := newWorld(t).send("GET", "/api/v1/openapi.json", "", nil).body
	if strings.Contains(plain, `"upgrade"`) || !strings.Contains(w.send("GET", "/api/v1/openapi.json", "", nil).body, `"upgrade"`) {
		t.Error("the document of an installation without billing has upgrade, or that of one with billing hasn't")
	}
}

// Operators manage customers, invoices and margins over the API. Customers' keys and restricted operator keys can't.
func TestOperatorsBilling(t *testing.T) {
	t.Parallel()
	w := newBillingWorld(t)
	_, key := w.user("ada@example.test")
	root, admin := w.operator("op@example.test")
	_, narrow := w.user("mia@example.test", account.BillingRead, account.BillingWrite)
	own := w.must(200, "GET", "/admin/owners/ada@example.test", admin, nil)
	if own["name"] != "ada@example.test" || own["subscription"] != nil {
		t.Errorf("%v", own)
	}
	base := "/admin/owners/" + own["id"].(string)
	sub := w.must(201, "POST", base+"/subscription", admin, m{"plan": "pro"})
	if sub["status"] != "active" {
		t.Errorf("%v", sub)
	}
	open := w.must(200, "GET", "/admin/invoices", admin, nil)["data"].([]any)
	if len(open) != 1 {
		t.Fatalf("%v", open)
	}
	inv := "/admin/invoices/" + open[0].(map[string]any)["id"].(string)
	w.must(409, "POST", inv+"/finalize", admin, m{})
	w.must(400, "POST", inv+"/payments", admin, m{"amount": -5, "reference": "a"})
	paid := w.must(201, "POST", inv+"/payments", admin, m{"amount": 2261, "reference": "a"})
	if paid["status"] != "completed" || paid["provider"] != "manual" {
		t.Errorf("%v", paid)
	}
	w.must(409, "POST", inv+"/payments", admin, m{"amount": 2261, "reference": "a"})
	w.must(409, "POST", inv+"/refunds", admin, m{"amount": 500, "reason": "an outage"}) // no card is stored
	back := w.must(201, "POST", inv+"/refunds", admin, m{"amount": 500, "reason": "an outage", "reference": "b"})
	if back["status"] != "completed" || back["amount"].(map[string]any)["amount"] != 500.0 {
		t.Errorf("%v", back)
	}
	w.must(409, "POST", inv+"/refunds", admin, m{"amount": 500, "reason": "an outage", "reference": "b"})
	w.must(200, "POST", inv+"/void", admin, m{"reason": "a mistake"})
	if own = w.must(200, "GET", base, admin, nil); own["credits"].([]any)[0].(map[string]any)["amount"] != 1761.0 {
		t.Errorf("%v", own)
	}
	w.must(201, "POST", base+"/credits", admin, m{"amount": 39, "currency": "EUR", "reason": "a favor"})
	grant := w.must(201, "POST", base+"/grants", admin, m{"name": "sites", "value": 9, "until": "2040-01-31T09:00:00Z", "reason": "a favor"})
	w.must(400, "POST", base+"/grants", admin, m{"name": "sites", "value": 9, "until": "tomorrow", "reason": "a favor"})
	w.must(400, "POST", base+"/grants", admin, m{"name": "wings", "value": 9, "reason": "a favor"})
	if list := w.must(200, "GET", base+"/grants", admin, nil)["data"].([]any); len(list) != 1 {
		t.Errorf("%v", list)
	}
	w.must(200, "DELETE", base+"/grants/"+grant["id"].(string), admin, nil)
	w.must(404, "DELETE", base+"/grants/"+grant["id"].(string), admin, nil)
	if rows := w.must(200, "GET", "/admin/margins", admin, nil)["data"].([]any); len(rows) != 1 || rows[0].(map[string]any)["margin"].(map[string]any)["amount"] != 1900.0 {
		t.Errorf("%v", rows)
	}
	if got := w.must(200, "GET", "/admin/reconcile", admin, nil); got["provider"] != "manual" {
		t.Errorf("%v", got)
	}
	w.must(200, "PATCH", base+"/subscription", admin, m{"plan": "max"})
	if list := w.must(200, "GET", "/admin/owners?search=ADA", admin, nil)["data"].([]any); len(list) != 1 || list[0].(map[string]any)["subscription"].(map[string]any)["plan"] != "max" {
		t.Errorf("%v", list)
	}
	w.must(400, "DELETE", base+"/subscription?now=perhaps", admin, nil)
	if got := w.must(200, "DELETE", base+"/subscription?now=true", admin, nil); got["status"] != "expired" || got["reason"] != "operator" {
		t.Errorf("%v", got)
	}
	w.must(404, "GET", "/admin/owners/nobody@example.test", admin, nil)
	_, team := w.teamOf(admin, "Acme")
	_, app := w.grant(root, account.BillingRead, account.BillingWrite)
	asked := 0
	for method, paths := range operationsOf(t, w.send("GET", "/api/v1/openapi.json", "", nil).body) {
		for path := range paths {
			path, ok := strings.CutPrefix(path, "/api/v1/admin/")
			if !ok {
				continue
			}
			asked++
			path = strings.NewReplacer("owners/{id}", base, "invoices/{id}", inv, "sellers/{id}", "/admin/sellers/harbor", "{grant}", "grn_x").Replace(path)
			if !strings.HasPrefix(path, "/") {
				path = "/admin/" + path
			}
			for name, k := range map[string]string{"a customer": key, "a narrow key": narrow, "an operator's team": team, "an operator's app": app} {
				if a := w.api(method, path, k, m{}); a.status != 403 {
					t.Errorf("%s: %s %s: %d %s", name, method, path, a.status, a.body)
				}
			}
			if a := w.api(method, path, "", m{}); a.status != 401 {
				t.Errorf("without credentials: %s %s: %d %s", method, path, a.status, a.body)
			}
		}
	}
	if asked < 16 {
		t.Errorf("%d operations are for operators", asked)
	}
}

// Operators add and update sellers and assign customers to them. Omitted fields stay unchanged, and invalid values are
// refused.
func TestSellers(t *testing.T) {
	t.Parallel()
	w := newBillingWorld(t)
	w.user("ada@example.test")
	_, admin := w.operator("op@example.test")
	var picture bytes.Buffer
	if err := png.Encode(&picture, image.NewGray(image.Rect(0, 0, 8, 8))); err != nil {
		t.Fatal(err)
	}
	logo := base64.StdEncoding.EncodeToString(picture.Bytes())
	made := w.must(201, "POST", "/admin/sellers", admin, m{"id": "harbor", "name": "Harbor", "series": "HB", "sender": "Harbor <hello@harbor.test>", "logo": logo})
	if made["id"] != "harbor" || !strings.HasSuffix(made["logoUrl"].(string), ".png") || made["customers"] != 0.0 {
		t.Errorf("%v", made)
	}
	for code, body := range map[string]m{
		"seller_exists":  {"id": "harbor", "name": "Harbor", "series": "HB"},
		"series_taken":   {"id": "other", "name": "Other", "series": "HB"},
		"invalid_id":     {"id": "O", "name": "Other", "series": "OT"},
		"invalid_logo":   {"id": "other", "name": "Other", "series": "OT", "logo": "no picture"},
		"invalid_sender": {"id": "other", "name": "Other", "series": "OT", "sender": "nobody"},
	} {
		if a := w.api("POST", "/admin/sellers", admin, body); !strings.Contains(a.body, `"`+code+`"`) {
			t.Errorf("%v: %d %s, want %s", body, a.status, a.body, code)
		}
	}
	kept := w.must(200, "PATCH", "/admin/sellers/harbor", admin, m{"name": "Harbor & Sons"})
	if kept["name"] != "Harbor & Sons" || kept["sender"] != made["sender"] || kept["logoUrl"] != made["logoUrl"] {
		t.Errorf("%v", kept)
	}
	if a := w.api("PATCH", "/admin/sellers/harbor", admin, m{"series": "HX"}); a.status != 400 {
		t.Errorf("the series changes: %d %s", a.status, a.body)
	}
	if bare := w.must(200, "PATCH", "/admin/sellers/harbor", admin, m{"logo": "", "sender": ""}); bare["logoUrl"] != nil || bare["sender"] != "" {
		t.Errorf("%v", bare)
	}
	if hosted := w.must(200, "PATCH", "/admin/sellers/harbor", admin, m{"host": "Panel.harbor.test"}); hosted["host"] != "panel.harbor.test" {
		t.Errorf("%v", hosted)
	}
	if a := w.api("POST", "/admin/sellers", admin, m{"id": "other", "name": "Other", "series": "OT", "host": "panel.harbor.test"}); a.status != 409 {
		t.Errorf("two sellers have a host: %d %s", a.status, a.body)
	}
	w.must(400, "PATCH", "/admin/sellers/harbor", admin, m{"host": "a.sites.test"})
	if kept := w.must(200, "PATCH", "/admin/sellers/harbor", admin, m{"name": "Harbor"}); kept["host"] != "panel.harbor.test" {
		t.Errorf("%v", kept)
	}
	w.must(404, "PATCH", "/admin/sellers/other", admin, m{"name": "Other"})
	name := func(settings m) any { return settings["seller"].(map[string]any)["name"] }
	if got := w.must(200, "GET", "/admin/sellers/harbor/settings", admin, nil); name(got) != "Acme" {
		t.Errorf("without settings a seller has %v", got)
	}
	w.must(400, "PUT", "/admin/sellers/harbor/settings", admin, m{"seller": m{"name": "Harbor Hosting", "country": "Germany"}})
	w.must(404, "PUT", "/admin/sellers/other/settings", admin, m{"seller": m{"name": "Harbor Hosting", "country": "DE"}})
	set := w.must(200, "PUT", "/admin/sellers/harbor/settings", admin, m{"seller": m{"name": "Harbor Hosting", "country": "DE"}, "graceDays": 0})
	if set["graceDays"] != 0.0 || set["dueDays"] != 14.0 {
		t.Errorf("%v", set)
	}
	if got := w.must(200, "GET", "/admin/sellers/harbor/settings", admin, nil); name(got) != "Harbor Hosting" {
		t.Errorf("%v", got)
	}
	customer := "/admin/owners/ada@example.test"
	w.must(404, "PUT", customer+"/seller", admin, m{"seller": "other"})
	if got := w.must(200, "PUT", customer+"/seller", admin, m{"seller": "harbor"}); got["seller"] != "harbor" {
		t.Errorf("%v", got)
	}
	if list := w.must(200, "GET", "/admin/sellers", admin, nil)["data"].([]any); len(list) != 1 || list[0].(map[string]any)["customers"] != 1.0 {
		t.Errorf("%v", list)
	}
	w.must(201, "POST", customer+"/subscription", admin, m{"plan": "pro"})
	if got := w.must(200, "GET", "/admin/margins", admin, nil)["data"].([]any); len(got) != 1 || got[0].(map[string]any)["seller"] != "harbor" {
		t.Errorf("%v", got)
	}
	w.must(200, "PUT", customer+"/seller", admin, m{"seller": ""})
	if got := w.must(200, "GET", customer, admin, nil); got["seller"] != nil {
		t.Errorf("%v", got)
	}
	if got := w.must(200, "GET", "/admin/margins", admin, nil)["data"].([]any); got[0].(map[string]any)["seller"] != nil {
		t.Errorf("%v", got)
	}
}

// operator creates an operator and returns a key.
func (w *world) operator(email string) (id account.UserID, key string) {
	w.t.Helper()
	u, err := w.c.Accounts.CreateUser(w.t.Context(), email, "", true)
	if err != nil {
		w.t.Fatal(err)
	}
	return u.ID, w.key(u.ID, account.NewKey{})
}
