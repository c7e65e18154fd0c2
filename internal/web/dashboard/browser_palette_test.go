//go:build browser

package dashboard

import (
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/team"
)

// The command palette opens, finds, navigates and closes by keyboard alone, and g with another letter goes to a page.
func TestBrowserPalette(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	u := w.user("ada@example.test", false)
	w.site(u, "Harbor Journal")
	shop := "/sites/" + string(w.site(u, "Nordlicht Shop").ID)
	b := w.window("palette", w.srv.URL)
	signIn(b, u.Email)
	b.Go("/account")
	open := func() { b.Run(chromedp.KeyEvent("k", chromedp.KeyModifiers(2))) }
	open()
	b.Sees("@palette-dialog", "Harbor Journal", "Nordlicht Shop", "Profile", "New site")
	b.Look("palette")
	b.Run(chromedp.KeyEvent("nord"))
	b.Until("the shop is not first", `document.querySelector('.palette-item[aria-selected="true"]').innerText.includes('Nordlicht') &&
		document.querySelectorAll('.palette-item').length === 1`)
	b.Run(chromedp.KeyEvent(kb.Enter))
	b.Until("the shop does not open", `location.pathname === '`+shop+`' && document.readyState === 'complete'`)
	b.Run(chromedp.KeyEvent("gd"))
	b.Until("g d does not open the deployments", `location.pathname === '`+shop+`/deployments' && document.readyState === 'complete'`)
	// Dispatch real key events: if a script prevents the default, the key isn't typed.
	b.Run(input.DispatchKeyEvent(input.KeyDown).WithKey("/").WithCode("Slash").WithText("/"), input.DispatchKeyEvent(input.KeyUp).WithKey("/"))
	b.Sees("@palette-dialog", "Recent")
	b.Run(chromedp.KeyEvent("nothing is called this"))
	b.Sees("@palette-dialog", "No results")
	b.Run(chromedp.KeyEvent(kb.Escape))
	b.Misses("@palette-dialog")
	b.Run(chromedp.KeyEvent("?"))
	b.Sees("@shortcuts", "Deployments", "Command palette")
	b.Look("shortcuts")
}

// On a team's pages the palette finds the team's sites, and its pages and actions stay in the team.
func TestBrowserPaletteOfTeam(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	u := w.user("ada@example.test", false)
	w.site(u, "Own journal")
	var shop site.Site
	must(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
		acme, err := w.dash.Teams.CreateTx(t.Context(), tx, u, team.NewTeam{Name: "Acme"})
		if err != nil {
			return err
		}
		shop, err = w.dash.Sites.CreateTx(t.Context(), tx, acme.Owner, site.NewSite{Name: "Team shop", Type: "static", Repository: "git.test/acme/site"})
		return err
	}))
	b := w.window("palette-team", w.srv.URL)
	signIn(b, u.Email)
	for _, page := range []string{"/webhooks?team=acme", "/sites/" + string(shop.ID)} {
		b.Go(page)
		b.Run(chromedp.KeyEvent("k", chromedp.KeyModifiers(2)))
		b.Sees("@palette-dialog", "Team shop")
		b.Run(chromedp.KeyEvent("journal"))
		b.Sees("@palette-dialog", "No results")
		b.Run(chromedp.KeyEvent(kb.Escape))
		b.Misses("@palette-dialog")
		for action, want := range map[string]string{"New site": "/new?team=acme", "API keys": "/account/keys?team=acme", "Webhooks": "/webhooks?team=acme"} {
			b.Go(page)
			b.Run(chromedp.KeyEvent("k", chromedp.KeyModifiers(2)), chromedp.KeyEvent(action))
			b.Until(action+" is not first", `document.querySelector('.palette-item[aria-selected="true"]')?.innerText.includes('`+action+`')`)
			b.Run(chromedp.KeyEvent(kb.Enter))
			b.Until(action+" leaves the team", `location.pathname + location.search === '`+want+`' && document.readyState === 'complete'`)
		}
	}
	// Recently visited pages stay in the team too.
	b.Go("/webhooks/new?team=acme")
	b.Go("/account")
	// Search results that arrive while the mouse button is down don't replace the item under the pointer, which gets
	// the click.
	b.Eval(`void (window.fetch = ((real) => async (...what) => {
		const found = await real(...what), list = await found.json();
		await new Promise((resolve) => { window.find = resolve; });
		return { ok: found.ok, json: async () => { setTimeout(() => { window.read = true; }); return list; } };
	})(window.fetch))`, nil)
	b.Run(chromedp.KeyEvent("k", chromedp.KeyModifiers(2)))
	b.Sees("@palette-dialog", "Recent", "Create webhook")
	b.Until("no sites are looked for", `window.find`)
	var at struct{ X, Y float64 }
	b.Eval(`((r) => ({ x: r.x + r.width / 2, y: r.y + r.height / 2 }))(document.getElementById('palette-0').getBoundingClientRect())`, &at)
	mouse := func(kind input.MouseType, buttons int64) {
		t.Helper()
		b.Run(input.DispatchMouseEvent(kind, at.X, at.Y).WithButton(input.Left).WithButtons(buttons).WithClickCount(1))
	}
	mouse(input.MousePressed, 1)
	b.Until("what was found is not read", `window.find() || window.read`)
	mouse(input.MouseReleased, 0)
	b.Until("the page that was visited last leaves the team", `location.pathname + location.search === '/webhooks/new?team=acme' && document.readyState === 'complete'`)
}
