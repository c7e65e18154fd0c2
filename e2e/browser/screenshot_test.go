//go:build browser

package browser

import (
	"net/http"
	"testing"

	"slipway/e2e/world"
	"slipway/internal/deploy/screenshot"
)

// After a deployment the dashboard shows a screenshot of the site. A site with a password has no screenshot.
func TestBrowserScreenshot(t *testing.T) {
	t.Parallel()
	w, err := world.New(binary, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	w.Flags = append(w.Flags, "--browser", screenshot.Find(""))
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	h := &harness{World: w, t: t}
	h.chromium = Start(t, Config{Name: "screenshot"})
	p := h.window()
	h.commit("acme/harbor", "Lay the keel", map[string]string{
		"index.html": `<!doctype html><html lang="en"><title>Harbor</title><link rel="icon" href="data:,"><body style="background:#1e5aa8;color:#fff;font:64px sans-serif"><h1>Harbor</h1>`,
	})
	p.Go(h.setupLink())
	p.Type("#f-email", email)
	p.Type("#f-password", password)
	p.Press("@submit")
	p.Go("/new")
	p.Type("#f-repository", "git.test/acme/harbor")
	p.Press("@continue")
	p.Press("@create")
	p.Sees("@deployment @status-success")
	p.Go("/")
	p.Sees("@cards", "harbor")
	p.Until("the card shows no screenshot", `fetch('/').then((r) => r.text()).then((t) => t.includes('data-test="screenshot"'))`)
	p.Go("/")
	p.Until("the screenshot is not drawn", `document.querySelector('[data-test="screenshot"]').naturalWidth === 800`)
	p.Look("home-screenshot")
	p.Press("@cards .card-link")
	p.Sees("@overview @screenshot")
	site := p.Path()
	p.Look("site-screenshot")
	picture := p.Attr("@overview @screenshot", "src")
	p.Go(site + "/rules")
	p.Type("#f-password", "a password for visitors")
	p.Eval(`void (document.querySelector('#f-protection').value = 'all')`, nil)
	p.Press("@save-serving")
	p.Sees("@flash")
	p.Go(site)
	p.Misses("@screenshot")
	var status int
	p.Expect(http.StatusNotFound)
	if p.Eval(`fetch(`+quoted(picture)+`, {cache: 'no-store'}).then((r) => r.status)`, &status); status != http.StatusNotFound {
		t.Errorf("the picture of a protected site answers %d", status)
	}
}
