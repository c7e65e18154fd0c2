package e2e

import (
	"encoding/json"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"slipway/e2e/world"
)

var (
	// contracts matches the billing words that the contract has even without billing: six events, their descriptions
	// and kinds, and a team role with its scopes.
	contracts = regexp.MustCompile(`(subscription|payment)\.(<wbr>)?(created|renewed|canceled|expired|completed|failed)` +
		`|A (subscription|payment) (began|entered its next period|will not be renewed|ended|completed|failed)` +
		`|"subscription","payment"|billing:(read|write)|"viewer","billing"|viewer \| billing|viewer or billing|owners and billing members|<th>billing</th>` +
		`|A subscription: events of chosen types`) // a webhook's subscription
	ofBilling = regexp.MustCompile(`(?i)\b(invoic\w*|billing\w*|billed|stripe|subscriptions?|coupons?|vat|dunning|receivables?|payments?|credit notes?)\b`)
	linked    = regexp.MustCompile(`href="(/[^"]*)"`)
)

// Without billing, no page of the dashboard, guide, reference page or API operation has a billing word other than the
// contract's. This includes the pages of an operator with a site, a team and a webhook.
func TestNoWordOfBilling(t *testing.T) {
	t.Parallel()
	w, err := world.New(binary, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	w.Flags = append(w.Flags, "--base-url", "http://"+w.Listen)
	ctx, cancel := deadline()
	defer cancel()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(w.Start(ctx))
	_, err = w.CLI(world.Password+"\n", "user", "create", "--admin", "--email", "ada@example.test")
	check(err)
	key, err := w.Key("ada@example.test")
	check(err)
	check(w.Call(ctx, key, "POST", "/sites", map[string]any{"name": "shop", "type": "static", "repository": "git.test/acme/shop"}, nil))
	check(w.Call(ctx, key, "POST", "/teams", map[string]any{"name": "Acme", "slug": "acme"}, nil))
	check(w.Call(ctx, key, "POST", "/webhooks", map[string]any{"url": w.Hooks.URL + "/in", "events": []string{"deployment.completed"}}, nil))
	ada, err := w.Person("ada@example.test")
	check(err)
	words := func(at, text string) {
		t.Helper()
		text = contracts.ReplaceAllString(text, "")
		for _, m := range ofBilling.FindAllStringIndex(text, 5) {
			t.Errorf("%s: …%s…", at, strings.Join(strings.Fields(text[max(0, m[0]-60):min(len(text), m[1]+60)]), " "))
		}
	}
	base, err := url.Parse("http://" + w.Listen)
	check(err)
	known, guides, pages := map[string]bool{"/": true, "/docs": true, "/sign-out": true}, 0, 0
	for next := []string{"/", "/docs"}; len(next) > 0; next = next[1:] {
		page, err := ada.Open(base.String()+next[0], nil)
		check(err)
		if page.Status == http.StatusNotFound || page.Status == http.StatusMethodNotAllowed || page.URL.Host != base.Host {
			continue
		}
		if next[0] != "/api/v1/openapi.json" { // checked separately
			words(next[0], page.Body)
		}
		if pages++; strings.HasPrefix(next[0], "/docs/") {
			guides++
		}
		for _, m := range linked.FindAllStringSubmatch(page.Body, -1) {
			to, err := url.Parse(html.UnescapeString(m[1]))
			if err != nil || known[to.Path] || len(known) > 1000 {
				continue
			}
			known[to.Path] = true
			next = append(next, to.Path)
		}
	}
	if guides < 30 || pages-guides < 30 {
		t.Errorf("only %d pages of the docs and %d others were read", guides, pages-guides)
	}
	answer, err := w.Do(ctx, world.Request{Method: "GET", Path: "/openapi.json"})
	check(err)
	var document map[string]any
	check(answer.JSON(&document))
	hooks, _ := document["webhooks"].(map[string]any)
	for name := range hooks { // the contract describes the payloads of the six events
		if contracts.FindString(name) == name {
			delete(hooks, name)
		}
	}
	text, err := json.Marshal(document)
	check(err)
	words("openapi.json", string(text))
}
