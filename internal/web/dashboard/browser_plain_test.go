//go:build browser

package dashboard

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"

	chromium "slipway/e2e/browser"
	"slipway/internal/platform/db"
	"slipway/internal/tenant/site"
	"slipway/internal/web/dashboard/sites"
)

// Without scripts, every page shows the same content, has no control without effect, and each form can be sent or says
// why not.
func TestBrowserWithoutScripts(t *testing.T) {
	t.Parallel()
	var p blog
	w := p.world(t, demo, func(c *Config) {
		c.Programs = programs{log: func(_ site.ID, f sites.ProgramFilter) ([]sites.ProgramLine, error) { return printed(30, f), nil }}
	})
	u := w.user("ada@example.test", true)
	me := w.as(u.Email)
	th := w.things()
	press := w.liveWordPress(u, me)
	me.get(press+"/state/follow").want(t, 200, "event: end") // stores the current state, so that both visits see the same
	app := w.site(u, "App")
	w.program(app, w.deployment(app))
	yes := true
	must(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := w.dash.Sites.UpdateTx(t.Context(), tx, u.Owner, app.ID, site.Patch{Run: &site.Run{Terminal: &yes}})
		return err
	}))

	var paths []string
	for _, rt := range w.dash.routes {
		if rt.Method != http.MethodGet || strings.HasSuffix(rt.Path, "/follow") || strings.HasPrefix(rt.Path, "/live/") || strings.HasPrefix(rt.Path, "/assets/") {
			continue
		}
		ids := []string{th["{id}"]}
		if strings.HasPrefix(rt.Path, "/sites/{id}") && strings.Count(rt.Path, "{") == 1 {
			ids = append(ids, string(app.ID), strings.Split(press, "/")[2])
		}
		for _, id := range ids {
			if path := th.fill(strings.ReplaceAll(rt.Path, "{id}", id)); w.isPage(me, path) {
				paths = append(paths, path)
			}
		}
	}
	paths = append(paths, "/?view=list", "/?q=nothing", "/new?type=wordpress", "/account/keys/new?team=crew", "/webhooks?team=crew")
	if len(paths) < 90 {
		t.Fatalf("%d pages only: %s", len(paths), paths)
	}

	t.Logf("%d pages", len(paths))
	b := chromium.Share(t, "plain")
	with, without := b.Window(w.srv.URL), b.Window(w.srv.URL)
	with.Refuses("text/event-stream") // streams of pages that are left at once
	signIn(with, u.Email)
	without.Run(emulation.SetScriptExecutionDisabled(true))
	without.Go("/sign-in")
	plain(t, without, "/sign-in")
	signIn(without, u.Email)
	for _, path := range paths {
		with.Go(path)
		without.Go(path)
		var all, has []string
		with.Eval(says, &all)
		without.Eval(says, &has)
		found := map[string]bool{}
		for _, s := range has {
			found[s] = true
		}
		for _, s := range all {
			if !found[s] && path != "/account/second-factor" { // that page's secret differs each time
				t.Errorf("%s doesn't say %q without scripts", path, s)
			}
		}
		plain(t, without, path)
	}

	// Writing, choosing, confirming in a dialog and searching work, too.
	at := "/sites/" + string(app.ID)
	without.Go(at + "/env")
	without.Type("#f-key", "GREETING")
	without.Type("#f-value", "Ahoy")
	without.Press("@add-var")
	without.Sees("@vars", "GREETING", "Ahoy")
	without.Click("@select-GREETING")
	without.Click("@open-delete-vars")
	without.Press("@do-delete-vars")
	without.Misses("@vars")
	without.Go("/")
	without.Press("@favorite-" + string(app.ID))
	without.Sees("@favorite-" + string(app.ID) + `[aria-pressed="true"]`)
	without.Type("@search", "App")
	without.Press(".search button")
	without.Sees("@card-" + string(app.ID))
	without.Misses("@card-" + th["{id}"])
	without.Click(".rail-foot summary")
	without.Press(`.menu-panel button[value="dark"]`)
	without.Sees(`html[data-theme="dark"]`)
	without.Click(`.rail-foot summary`)
	without.Press("@sign-out")
	without.Sees("#f-email")
}

// isPage reports whether a path returns an HTML page.
func (w *world) isPage(b *browser, path string) bool {
	w.t.Helper()
	ctx, stop := context.WithCancel(w.t.Context())
	defer stop() // the beginning of a download is enough
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, w.srv.URL+path, nil)
	must(w.t, err)
	r.Header.Set("Accept", "text/html")
	a, err := b.client.Do(r)
	must(w.t, err)
	a.Body.Close()
	return a.StatusCode == http.StatusOK && strings.HasPrefix(a.Header.Get("Content-Type"), "text/html")
}

// says is a script that returns the readable text of a page, without the controls that need scripts.
const says = `[...document.querySelectorAll('main :is(h1, h2, h3, p, dt, dd, label, legend, th, td, li, code, .status, a.button, button.button)')]
	.filter((e) => e.checkVisibility({ visibilityProperty: true }) && !e.closest('.only-js, [data-presets], .copy, .log-bar, .save-bar, .gauge, [data-passkey]') && !e.querySelector('time, .only-js, .copy'))
	.map((e) => e.innerText.trim().replace(/\s+/g, ' ')).filter((s) => s && !/ ago\b|just now/.test(s))`

// plain fails the test if a page has a control that works only with scripts.
func plain(t *testing.T, b *chromium.Window, path string) {
	t.Helper()
	var dead []string
	b.Eval(`(() => {
		const seen = (e) => e.checkVisibility({ visibilityProperty: true }), out = [], main = document.querySelector('main');
		if (!main || !seen(main) || main.innerText.trim().length < 20) out.push('the page has no content');
		for (const e of document.querySelectorAll('button[type="button"]')) if (seen(e) && !e.hasAttribute('popovertarget')) out.push('nothing happens: ' + e.outerHTML.slice(0, 160));
		for (const e of document.querySelectorAll('a:not([href]), a[href="#"], [role="button"], [contenteditable]')) if (seen(e)) out.push('nothing happens: ' + e.outerHTML.slice(0, 160));
		for (const f of document.querySelectorAll('form')) {
			const fields = [...f.elements].filter((e) => e.type !== 'hidden' && e.tagName !== 'FIELDSET');
			const shown = fields.filter(seen), asks = f.closest('[popover], details:not([open])');
			const send = fields.some((e) => /^(submit|image)$/.test(e.type) && (seen(e) || asks));
			if (asks ? !send : shown.length > 0 && !send) out.push('can\'t be sent: ' + f.outerHTML.slice(0, 160));
		}
		for (const e of document.querySelectorAll('[popovertarget]')) if (!document.getElementById(e.getAttribute('popovertarget'))?.hasAttribute('popover')) out.push('opens nothing: ' + e.outerHTML.slice(0, 160));
		return out;
	})()`, &dead)
	for _, d := range dead {
		t.Errorf("%s: %s", path, d)
	}
}
