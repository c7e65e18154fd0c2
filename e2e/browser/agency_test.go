//go:build browser

package browser

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/png"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"slipway/e2e/world"
	"slipway/internal/tenant/mail/mailtest"
)

const (
	agencyFile = `{"seller": {"name": "Harbor Agency", "country": "DE"}, "taxes": {"DE": 1900}, "payment": "IBAN DE02 1203 0000 0000 2020 51"}`
	harborFile = `{"name": "Harbor", "series": "HB", "sender": "Harbor <hello@harbor.test>"}`
)

// An agency runs an installation for its clients. It invites a client to a team, gives the team a plan, and records the
// bank transfer that pays the invoice. The client joins through the link in the email, reads the invoice and how to pay
// it, downloads it, and later sees it paid. The site stays online throughout, and no payment provider is involved.
func TestBrowserAgency(t *testing.T) {
	t.Parallel()
	world.Long(t)
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
	w.Flags = append(w.Flags, "--billing", "--base-url", "http://"+w.Listen, "--smtp", mails.Addr, "--smtp-from", "Slipway <slipway@example.test>")
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), world.Patience(time.Minute))
	defer cancel()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range [][]string{
		{agencyFile, "billing", "settings", "-"},
		{proFile, "billing", "publish", "-"},
		{password + "\n", "user", "create", "--admin", "--email", "boss@example.test"},
	} {
		if out, err := w.CLI(c[0], c[1:]...); err != nil {
			t.Fatal(out, err)
		}
	}
	logo := filepath.Join(w.Dir, "logo.png")
	var picture bytes.Buffer
	check(png.Encode(&picture, image.NewGray(image.Rect(0, 0, 8, 8))))
	check(os.WriteFile(logo, picture.Bytes(), 0o600))
	if out, err := w.CLI(harborFile, "billing", "seller", "harbor", "-", "--logo", logo); err != nil {
		t.Fatal(out, err)
	}
	mailed := func(to string, link *regexp.Regexp) (found string) {
		t.Helper()
		check(world.Until(ctx, 25*time.Millisecond, func() (bool, error) {
			for _, m := range mails.All() {
				if m.To == to && found == "" {
					found = link.FindString(m.Text)
				}
			}
			return found != "", fmt.Errorf("%s got no mail with %s", to, link)
		}))
		return found
	}
	chromium := Start(t, Config{Name: "agency"})
	boss, client := chromium.Window("http://"+w.Listen), chromium.Window("http://"+w.Listen)

	// The agency makes a team for the client and invites them to it.
	boss.signIn("boss@example.test")
	boss.Go("/teams/new")
	boss.Type("#f-name", "Old Bakery")
	boss.Type("#f-slug", "bakery")
	boss.Press("@submit")
	boss.Go("/teams/bakery/invite")
	boss.Type("#f-email", "ida@bakery.test")
	boss.Click(`input[name=role][value=owner]`)
	boss.Press("@submit")
	client.Go(mailed("ida@bakery.test", regexp.MustCompile(`http://\S+/invitations/\S+`)))
	client.Sees("@team", "Old Bakery")
	client.Type("#f-password", password)
	client.Press("@submit")

	// The client's site.
	check(world.WriteFiles(filepath.Join(w.Dir, "content"), map[string]string{"index.html": "<h1>rolls and bread</h1>"}))
	_, err = w.Git.Commit("acme/bakery", "main", filepath.Join(w.Dir, "content"), "a commit")
	check(err)
	own, err := w.Key("boss@example.test")
	check(err)
	var team struct{ Key string }
	check(w.Call(ctx, own, "POST", "/keys", map[string]any{"name": "bakery", "scopes": []string{"*"}, "teamId": "bakery"}, &team))
	var site struct{ Data struct{ URL string } }
	check(w.Call(ctx, team.Key, "POST", "/sites", map[string]any{"name": "bakery", "type": "static", "repository": "git.test/acme/bakery"}, &site))
	visitor, err := w.Browser()
	check(err)
	online := func() {
		t.Helper()
		check(world.Until(ctx, 50*time.Millisecond, func() (bool, error) {
			answer, err := w.Site(ctx, visitor, world.Request{Method: http.MethodGet, URL: site.Data.URL + "/"})
			return err == nil && strings.Contains(string(answer.Body), "rolls and bread"), fmt.Errorf("GET %s: %v, %d", site.Data.URL, err, answer.Status)
		}))
	}
	online()

	// It gives the client a plan, which creates an invoice immediately.
	boss.Go("/operator/customers")
	boss.Press(`@customer-bakery a`)
	boss.Eval(`document.querySelector("#f-seller").value = "harbor"`, nil)
	boss.Press("@save-seller")
	boss.Press("@choose-pro-month")
	boss.Sees("@words", "19.00 EUR per month", "Active")
	number := boss.Text(`main a[data-test^="pdf-"]`)

	if !strings.HasPrefix(number, "HB-") {
		t.Errorf("the number %s is not in the seller's series", number)
	}

	// The client reads how to pay the invoice, on a page with the agency's brand.
	client.Go(mailed("ida@bakery.test", regexp.MustCompile(`http://\S+/account/invoices/inv_\S+`)))
	client.Sees("h1", number)
	client.Sees("@brand", "Harbor")
	client.Until("the logo", `document.querySelector('[data-test="brand"] img').naturalWidth === 8`)
	client.Sees("@total", "22.61 EUR")
	client.Sees("@transfer", "22.61 EUR due on", "reference "+number, "IBAN DE02 1203 0000 0000 2020 51")
	var printed string
	client.Eval(`fetch(`+visible("@pdf")+`[0].href).then(r => r.text()).then(t => t.slice(0, 5))`, &printed)
	if printed != "%PDF-" {
		t.Errorf("the PDF begins with %q", printed)
	}

	// The agency records the transfer, two clicks away from the client's page.
	boss.Press("@record-" + number)
	boss.Type("#f-reference", "2026-12-03/0817")
	boss.Press("@record")
	boss.Sees("@flash", "Recorded 22.61 EUR for invoice "+number)
	boss.Sees("main", "Nothing is open")
	client.Press(`main a[href^="/account/invoices?"]`)
	client.Sees("main", number, "Paid")
	client.Press(`main a[href^="/account/invoices/inv_"]`)
	client.Sees("main", "Received")
	client.Misses("@transfer")
	online()
	sent := 0
	for _, m := range mails.All() {
		if m.To == "ida@bakery.test" && strings.Contains(m.Header.Get("From"), "hello@harbor.test") {
			sent++
		}
	}
	if sent == 0 {
		t.Error("no email was sent")
	}
	boss.Go("/operator/sellers")
	boss.Sees("@seller-harbor", "HB-…", "1")
	if out, err := w.CLI("", "billing", "check"); err != nil {
		t.Error(out, err)
	}
}
