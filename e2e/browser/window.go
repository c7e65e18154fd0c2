//go:build browser

package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/audits"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"

	"slipway/e2e/world"
)

// Window is one window with cookies of its own. Selectors are CSS, in which @name stands
// for [data-test="name"] and @name* for all whose hook begins so.
type Window struct {
	Base string // scheme, host and port of the pages that Go opens

	t       testing.TB
	ctx     context.Context
	browser *Browser

	mu       sync.Mutex // guards all below
	hosts    map[string]bool
	expected map[int]int    // status → how many answers of it may still come
	refused  map[string]int // word → how often the browser has complained with it
	faults   []string
	at       string // the page that was opened last
}

// Popup returns the window that what is done opens.
func (w *Window) Popup(do func()) *Window { w.t.Helper(); return w.popup(do, true) }

// Elsewhere is Popup for a page that is not ours: what it does is nobody's business here.
func (w *Window) Elsewhere(do func()) *Window { w.t.Helper(); return w.popup(do, false) }

func (w *Window) popup(do func(), watched bool) *Window {
	w.t.Helper()
	opened := chromedp.WaitNewTarget(w.ctx, func(i *target.Info) bool { return i.Type == "page" && i.OpenerID != "" })
	do()
	select {
	case id := <-opened:
		ctx, stop := chromedp.NewContext(w.ctx, chromedp.WithTargetID(id))
		w.t.Cleanup(stop)
		p := &Window{t: w.t, ctx: ctx, browser: w.browser, Base: w.Base, hosts: w.hosts, expected: map[int]int{}, refused: map[string]int{}}
		if watched {
			p.watch()
		}
		p.Run(network.Enable(), audits.Enable(), page.Enable(), chromedp.EmulateViewport(wide, height))
		return p
	case <-time.After(patience):
		w.fatal("no popup opens")
		return nil
	}
}

var hook = regexp.MustCompile(`@([a-zA-Z0-9_.-]+)(\*?)`)

func css(selector string) string {
	return hook.ReplaceAllStringFunc(selector, func(s string) string {
		m := hook.FindStringSubmatch(s)
		if m[2] != "" {
			return `[data-test^="` + m[1] + `"]`
		}
		return `[data-test="` + m[1] + `"]`
	})
}

// quoted is a selector or a text as JavaScript writes it.
func quoted(text string) string {
	b, _ := json.Marshal(text)
	return string(b)
}

// Run does what chromedp can.
func (w *Window) Run(actions ...chromedp.Action) {
	w.t.Helper()
	if err := chromedp.Run(w.ctx, actions...); err != nil {
		w.fatal("%v", err)
	}
}

// fatal ends the test and keeps a picture of what the window shows.
func (w *Window) fatal(format string, args ...any) {
	w.t.Helper()
	ctx, stop := context.WithTimeout(w.ctx, 5*time.Second)
	defer stop()
	var at, text string
	var png []byte
	chromedp.Run(ctx, chromedp.Location(&at), chromedp.Evaluate(`document.body.innerText.slice(0, 3000)`, &text),
		chromedp.CaptureScreenshot(&png))
	file := filepath.Join(w.browser.shots, "failure.png")
	os.WriteFile(file, png, 0o644)
	w.t.Fatalf("%s\nat %s, picture in %s:\n%s", fmt.Sprintf(format, args...), at, file, text)
}

// eval runs a script in the page and waits for its promise.
func (w *Window) eval(script string, out any) error {
	return chromedp.Run(w.ctx, chromedp.Evaluate(script, out, func(p *runtime.EvaluateParams) *runtime.EvaluateParams {
		return p.WithAwaitPromise(true).WithUserGesture(true)
	}))
}

// Eval is a script's value.
func (w *Window) Eval(script string, out any) {
	w.t.Helper()
	if err := w.eval(script, out); err != nil {
		w.fatal("%s: %v", script, err)
	}
}

// Until waits until a script says true. A page that is about to be replaced is asked again.
func (w *Window) Until(what, script string) {
	w.t.Helper()
	ctx, stop := context.WithTimeoutCause(w.ctx, patience, fmt.Errorf("it didn't come in %s", patience))
	defer stop()
	if err := w.comes(ctx, script); err != nil {
		w.fatal("%s: %v", what, err)
	}
}

// comes returns when a script, or what it promises, is true, or ctx ends.
func (w *Window) comes(ctx context.Context, script string) error {
	return world.Until(ctx, 25*time.Millisecond, func() (ok bool, err error) {
		err = w.eval("Promise.resolve(("+script+")).then(Boolean)", &ok)
		return ok, err
	})
}

// visible is a script: the elements that can be seen.
func visible(selector string) string {
	return `[...document.querySelectorAll(` + quoted(css(selector)) + `)].filter((e) => e.checkVisibility({visibilityProperty: true}))`
}

// Sees waits until something can be seen, with all of these texts in it.
func (w *Window) Sees(selector string, texts ...string) {
	w.t.Helper()
	list, _ := json.Marshal(append([]string{}, texts...))
	w.Until(fmt.Sprintf("%s %q is not to be seen", selector, texts),
		visible(selector)+`.some((e) => `+string(list)+`.every((t) => e.innerText.includes(t)))`)
}

// Misses waits until something can't be seen any more.
func (w *Window) Misses(selector string) {
	w.t.Helper()
	w.Until(selector+" is still to be seen", visible(selector)+`.length === 0`)
}

// Text returns what the first such element says.
func (w *Window) Text(selector string) (text string) {
	w.t.Helper()
	w.Sees(selector)
	w.Eval(visible(selector)+`[0].innerText`, &text)
	return text
}

// Attr is an attribute of the first such element, resolved where it is an address.
func (w *Window) Attr(selector, name string) (value string) {
	w.t.Helper()
	w.Sees(selector)
	w.Eval(visible(selector)+`[0][`+quoted(name)+`] ?? ""`, &value)
	return value
}

// Path is where the window is, without scheme and host.
func (w *Window) Path() (path string) {
	w.t.Helper()
	w.Eval(`location.pathname`, &path)
	return path
}

// Go opens a page; an address without a host is below Base.
func (w *Window) Go(address string) {
	w.t.Helper()
	if address[0] == '/' {
		address = w.Base + address
	}
	w.mu.Lock()
	w.at = address
	w.mu.Unlock()
	w.leads(func() {
		// Not chromedp.Navigate: it also waits for the load event of the page before.
		w.Run(chromedp.ActionFunc(func(ctx context.Context) error {
			_, _, failed, _, err := page.Navigate(address).Do(ctx)
			if err == nil && failed != "" {
				err = fmt.Errorf("open %s: %s", address, failed)
			}
			return err
		}))
	})
}

// leads waits until what is done has led to another document, and that is all there.
func (w *Window) leads(do func()) {
	w.t.Helper()
	w.Eval(`void (document.slipwayOld = true)`, nil)
	do()
	ctx, stop := context.WithTimeoutCause(w.ctx, patience, fmt.Errorf("it didn't come in %s", patience))
	defer stop()
	var at string
	// Both at once: a page that follows what happens may load itself anew right after.
	if err := world.Until(ctx, 25*time.Millisecond, func() (bool, error) {
		err := w.eval(`!document.slipwayOld && document.readyState === 'complete' ? location.href : ''`, &at)
		return err == nil && at != "", err
	}); err != nil {
		w.fatal("no other page comes: %v", err)
	}
	w.mu.Lock()
	w.at = at
	w.mu.Unlock()
}

// Click clicks the one element that can be seen, where a mouse can reach it.
func (w *Window) Click(selector string) {
	w.t.Helper()
	var at struct {
		N    int
		X, Y float64
		Over string // what lies over it
	}
	for end := time.Now().Add(patience); at.N == 0 && time.Now().Before(end); { // a page that loads itself anew is empty for a moment
		w.Until("no click on "+selector, visible(selector)+`.length > 0`)
		w.Eval(`(() => {
			const all = `+visible(selector)+`, e = all[0];
			if (all.length !== 1) return { n: all.length };
			e.scrollIntoView({ block: 'center', inline: 'nearest', behavior: 'instant' });
			const r = e.getClientRects()[0], x = r.x + r.width / 2, y = r.y + r.height / 2, hit = document.elementFromPoint(x, y);
			return { n: 1, x, y, over: e.contains(hit) ? '' : hit ? hit.outerHTML.slice(0, 200) : 'nothing' };
		})()`, &at)
	}
	if at.N != 1 {
		w.fatal("%d elements are %s, want one", at.N, selector)
	}
	if at.Over != "" {
		w.fatal("a click on %s would reach %s", selector, at.Over)
	}
	mouse := func(t input.MouseType, buttons int64) chromedp.Action {
		return input.DispatchMouseEvent(t, at.X, at.Y).WithButton(input.Left).WithButtons(buttons).WithClickCount(1)
	}
	w.Run(input.DispatchMouseEvent(input.MouseMoved, at.X, at.Y), mouse(input.MousePressed, 1), mouse(input.MouseReleased, 0))
}

// Press clicks what leads to another page.
func (w *Window) Press(selector string) {
	w.t.Helper()
	w.leads(func() { w.Click(selector) })
}

// Type puts a text into a field in the place of what stands there.
func (w *Window) Type(selector, text string) {
	w.t.Helper()
	for end := time.Now().Add(patience); ; {
		w.Click(selector)
		focused := false
		w.Eval(`((e) => typeof e?.select === 'function' && (e.select(), true))(document.activeElement)`, &focused)
		if focused {
			break
		}
		if time.Now().After(end) { // before it, the page may have come to its end under the click
			w.fatal("a click on %s does not lead into a field", selector)
		}
	}
	w.Run(input.InsertText(text))
}

// Copied returns what the clipboard holds after a click on a copy button.
func (w *Window) Copied(button string) (text string) {
	w.t.Helper()
	done := visible(button) + `.some((e) => e.innerText.includes("Copied"))`
	for end := time.Now().Add(patience); ; {
		w.Click(button)
		ctx, stop := context.WithTimeout(w.ctx, 5*time.Second)
		err := w.comes(ctx, done)
		stop()
		if err == nil {
			break
		}
		if time.Now().After(end) { // before it, a page that follows what happens may have replaced the button
			w.fatal("%s does not say that it has copied: %v", button, err)
		}
	}
	w.Eval(`navigator.clipboard.readText()`, &text)
	return text
}
