//go:build browser

package dashboard

import (
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// The command palette by keyboard alone: it opens, finds, goes there and closes; letters after g go to pages.
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
	// As a keyboard does it: what a script prevents is not typed.
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
