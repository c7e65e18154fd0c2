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

// Window is a window with its own cookies. Selectors are CSS, in which @name means [data-test="name"], and @name* every
// element whose data-test begins with name.
type Window struct {
	Base string // scheme, host and port of the pages that Go opens

	t       testing.TB
	ctx     context.Context
	browser *Browser

	mu       sync.Mutex // guards the following fields
	hosts    map[string]bool
	expected map[int]int    // status → number of responses that are still allowed
	refused  map[string]int // word → number of console messages with it
	faults   []string
	at       string // the page that was opened last
}

// Popup returns the window that do opens.
func (w *Window) Popup(do func()) *Window { w.t.Helper(); return w.popup(do, true) }

// Elsewhere is Popup for a page of another program, which isn't watched.
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

// quoted returns a text as a JavaScript string.
func quoted(text string) string {
	b, _ := json.Marshal(text)
	return string(b)
}

// Run runs chromedp actions.
func (w *Window) Run(actions ...chromedp.Action) {
	w.t.Helper()
	if err := chromedp.Run(w.ctx, actions...); err != nil {
		w.fatal("%v", err)
	}
}

// fatal stores a screenshot of the window and ends the test.
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

// Eval evaluates a script and stores its value in out.
func (w *Window) Eval(script string, out any) {
	w.t.Helper()
	if err := w.eval(script, out); err != nil {
		w.fatal("%s: %v", script, err)
	}
}

// Until waits until a script returns true. Errors while the page is being replaced don't count.
func (w *Window) Until(what, script string) {
	w.t.Helper()
	ctx, stop := context.WithTimeoutCause(w.ctx, patience, fmt.Errorf("it didn't come in %s", patience))
	defer stop()
	if err := w.comes(ctx, script); err != nil {
		w.fatal("%s: %v", what, err)
	}
}

// comes returns when a script, or its promise, returns true, or when ctx ends.
func (w *Window) comes(ctx context.Context, script string) error {
	return world.Until(ctx, 25*time.Millisecond, func() (ok bool, err error) {
		err = w.eval("Promise.resolve(("+script+")).then(Boolean)", &ok)
		return ok, err
	})
}

// visible returns a script that lists the visible elements.
func visible(selector string) string {
	return `[...document.querySelectorAll(` + quoted(css(selector)) + `)].filter((e) => e.checkVisibility({visibilityProperty: true}))`
}

// Sees waits until a visible element contains all of these texts.
func (w *Window) Sees(selector string, texts ...string) {
	w.t.Helper()
	list, _ := json.Marshal(append([]string{}, texts...))
	w.Until(fmt.Sprintf("%s %q is not to be seen", selector, texts),
		visible(selector)+`.some((e) => `+string(list)+`.every((t) => e.innerText.includes(t)))`)
}

// Misses waits until no matching element is visible.
func (w *Window) Misses(selector string) {
	w.t.Helper()
	w.Until(selector+" is still to be seen", visible(selector)+`.length === 0`)
}

// Text returns the text of the first visible element.
func (w *Window) Text(selector string) (text string) {
	w.t.Helper()
	w.Sees(selector)
	w.Eval(visible(selector)+`[0].innerText`, &text)
	return text
}

// Attr returns a property of the first visible element. URLs are absolute.
func (w *Window) Attr(selector, name string) (value string) {
	w.t.Helper()
	w.Sees(selector)
	w.Eval(visible(selector)+`[0][`+quoted(name)+`] ?? ""`, &value)
	return value
}

// Path returns the path of the window's URL.
func (w *Window) Path() (path string) {
	w.t.Helper()
	w.Eval(`location.pathname`, &path)
	return path
}

// Go opens a page. A path is relative to Base.
func (w *Window) Go(address string) {
	w.t.Helper()
	if address[0] == '/' {
		address = w.Base + address
	}
	w.mu.Lock()
	w.at = address
	w.mu.Unlock()
	w.leads(func() {
		// chromedp.Navigate can't be used: it also waits for the previous page's load event.
		w.Run(chromedp.ActionFunc(func(ctx context.Context) error {
			_, _, failed, _, err := page.Navigate(address).Do(ctx)
			if err == nil && failed != "" {
				err = fmt.Errorf("open %s: %s", address, failed)
			}
			return err
		}))
	})
}

// leads runs do and waits until another document has loaded completely.
func (w *Window) leads(do func()) {
	w.t.Helper()
	w.Eval(`void (document.slipwayOld = true)`, nil)
	do()
	ctx, stop := context.WithTimeoutCause(w.ctx, patience, fmt.Errorf("it didn't come in %s", patience))
	defer stop()
	var at string
	// Both in one script: a page with live updates may reload right after it has loaded.
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

// Click clicks the only visible matching element, if a mouse can reach it.
func (w *Window) Click(selector string) {
	w.t.Helper()
	var at struct {
		N    int
		X, Y float64
		Over string // the element that covers it
	}
	for end := time.Now().Add(patience); at.N == 0 && time.Now().Before(end); { // a page that is reloading is briefly empty
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

// Press clicks an element that opens another page.
func (w *Window) Press(selector string) {
	w.t.Helper()
	w.leads(func() { w.Click(selector) })
}

// Type replaces a field's text.
func (w *Window) Type(selector, text string) {
	w.t.Helper()
	for end := time.Now().Add(patience); ; {
		w.Click(selector)
		focused := false
		w.Eval(`((e) => typeof e?.select === 'function' && (e.select(), true))(document.activeElement)`, &focused)
		if focused {
			break
		}
		if time.Now().After(end) { // before the deadline: the click may have hit a page that was still loading
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
		if time.Now().After(end) { // before the deadline: a page with live updates may have replaced the button
			w.fatal("%s does not say that it has copied: %v", button, err)
		}
	}
	w.Eval(`navigator.clipboard.readText()`, &text)
	return text
}
