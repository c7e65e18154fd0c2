//go:build browser

package browser

import (
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
)

// The documentation is readable without signing in, in both themes and on a phone. Examples can be found, copied and
// tried on the page. Checks that need no browser are in internal/web/api and cover every page.
func TestDocumentation(t *testing.T) {
	t.Parallel()
	h := newHarness(t, "docs")
	w := h.window()
	key, err := h.User(email)
	if err != nil {
		t.Fatal(err)
	}
	// One page of each kind, and the guides with the widest tables and code.
	for _, path := range []string{
		"/docs", "/docs?q=roll+back", "/docs/guides/configuration", "/docs/guides/builds", "/docs/guides/sso", "/docs/sites", "/docs/account",
	} {
		w.Go(path)
		w.Sees("main h1")
		w.Look(strings.NewReplacer("/", "-", "?q=", "-", "+", "-").Replace(strings.Trim(path, "/")))
	}

	// Without scripts, all pages load and show no button that needs a script.
	plain := h.window()
	plain.Run(emulation.SetScriptExecutionDisabled(true))
	for _, path := range []string{"/docs", "/docs/guides/configuration", "/docs/sites", "/docs/account"} {
		plain.Go(path)
		plain.Sees("main h1")
		var dead []string
		plain.Eval(`[...document.querySelectorAll('button[type="button"]:not([popovertarget]), a:not([href]), [role="tab"], [role="button"]')]
			.filter((e) => e.checkVisibility({ visibilityProperty: true })).map((e) => e.outerHTML.slice(0, 120))`, &dead)
		if len(dead) > 0 {
			t.Errorf("%s without scripts: %d do nothing, such as %s", path, len(dead), dead[0])
		}
		var hidden int
		if plain.Eval(`[...document.querySelectorAll('main h2')].filter((e) => !e.checkVisibility()).length`, &hidden); hidden > 0 {
			t.Errorf("%s without scripts: %d sections are hidden", path, hidden)
		}
	}
	plain.Go("/docs")
	plain.Type("#q", "roll back")
	plain.Press(".top form button")
	plain.Sees(`.ops a[href="/docs/sites#rollbackSite"]`)

	w.Go("/docs")
	w.Type("#q", "roll back")
	w.Press(".top form button")
	w.Click(`.ops a[href="/docs/sites#rollbackSite"]`)
	w.Until("the example is there", `location.hash === '#rollbackSite'`)
	if text := w.Copied(`section[aria-labelledby="rollbackSite"] .example .copy`); !strings.HasPrefix(text, "curl ") {
		t.Errorf("the copied example is %q", text)
	}
	// No button covers the code beside it, even if lines are long.
	w.Go("/docs/sites")
	for _, width := range []int64{390, 1280} {
		w.Run(emulation.SetDeviceMetricsOverride(width, 860, 1, false))
		var over string
		w.Eval(`[...document.querySelectorAll('.copy')].filter((b) => b.checkVisibility()).map((b) => {
			const pre = b.parentElement.querySelector('pre'), line = document.createRange();
			line.selectNodeContents(pre);
			const r = b.getBoundingClientRect(), frame = pre.getBoundingClientRect();
			const under = [...line.getClientRects()].some((t) => Math.min(t.right, frame.right) > r.left && t.left < r.right && t.bottom > r.top && t.top < r.bottom);
			return under ? pre.innerText.slice(0, 80) : '';
		}).find(Boolean) || ''`, &over)
		if over != "" {
			t.Errorf("at %d px a copy button lies over %q", width, over)
		}
	}
	w.Go("/docs/account#getAccount")
	try := `section[aria-labelledby="getAccount"] .try `
	w.Click(try + "button")
	w.Type(try+`input[type="password"]`, key)
	w.Click(try + "button:not(.copy)")
	w.Sees(try+"pre", "200", email)

	// Writes are marked, and irreversible operations ask the user to type a confirmation.
	w.Go("/docs/sites#createSite")
	try = `section[aria-labelledby="createSite"] .try `
	w.Click(try + "button")
	w.Sees(try+".warns", "Changes the account")
	w.Type(try+`input[type="password"]`, key)
	w.Click(try + "button:not(.copy)")
	w.Sees(try+"pre", "202", `"name": "My site"`)
	var id string
	w.Eval(`document.querySelector('section[aria-labelledby="createSite"] .try pre').textContent.match(/site_\w+/)[0]`, &id)
	w.Click(`section[aria-labelledby="deleteSite"] .try button`)
	w.Look("docs-try")
	try = `section[aria-labelledby="deleteSite"] .try `
	w.Type(try+`input[name="id"]`, id)
	w.Click(try + "button:not(.copy)")
	var sent bool
	if w.Eval(`!document.querySelector('section[aria-labelledby="deleteSite"] .try pre').hidden`, &sent); sent {
		t.Error("the deletion's request is shown before the name is typed")
	}
	w.Type(try+`input[name="confirm"]`, "deleteSite")
	w.Click(try + "button:not(.copy)")
	w.Until("the deletion has no answer", `/^20\d/.test(document.querySelector('section[aria-labelledby="deleteSite"] .try pre').textContent)`)
}
