//go:build browser

package browser

import (
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

var keyNames = map[string]chromedp.Action{
	"Enter": chromedp.KeyEvent(kb.Enter), "Space": chromedp.KeyEvent(" "), "Escape": chromedp.KeyEvent(kb.Escape),
	"ArrowLeft": chromedp.KeyEvent(kb.ArrowLeft),
	"Tab":       chromedp.KeyEvent(kb.Tab), "Shift+Tab": chromedp.KeyEvent(kb.Tab, chromedp.KeyModifiers(input.ModifierShift)),
}

// Keys presses the named keys; a string that isn't a key's name is typed.
func (w *Window) Keys(names ...string) {
	w.t.Helper()
	for _, name := range names {
		k, special := keyNames[name]
		if !special {
			k = chromedp.KeyEvent(name)
		}
		w.Run(k)
	}
}

// KeysLead presses keys, the last of which opens another page.
func (w *Window) KeysLead(names ...string) {
	w.t.Helper()
	w.leads(func() { w.Keys(names...) })
}

// stop describes the element that has the focus.
type stop struct {
	Lost    bool   // no element has the focus
	Here    bool   // it is the wanted element
	Ring    bool   // its focus ring is visible
	Covered string // the element that covers it
	Element string
}

func (w *Window) stop(selector string) (s stop) {
	w.t.Helper()
	w.Eval(`(() => {
		const e = document.activeElement;
		if (!e || e === document.body) return { lost: true };
		const ring = (s) => s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) > 0;
		const r = e.getBoundingClientRect(), over = document.elementFromPoint(r.x + r.width / 2, Math.min(r.y + r.height / 2, innerHeight - 1));
		return {
			here: `+quoted(css(selector))+` !== '' && e.matches(`+quoted(css(selector)+", never")+`),
			ring: ring(getComputedStyle(e)) || ring(getComputedStyle(e, '::after')),
			covered: over && (e.contains(over) || over.contains(e)) ? '' : over ? over.outerHTML.slice(0, 160) : 'the edge of the screen',
			element: e.outerHTML.slice(0, 160),
		};
	})()`, &s)
	return s
}

// Reach presses Tab until the wanted element has the focus. At each stop on the way the focused element and its ring
// must be visible.
func (w *Window) Reach(selector string) { w.t.Helper(); w.reach(selector, "Tab") }

// ReachBack is Reach with Shift+Tab.
func (w *Window) ReachBack(selector string) { w.t.Helper(); w.reach(selector, "Shift+Tab") }

func (w *Window) reach(selector, key string) {
	w.t.Helper()
	w.Sees(selector)
	for range 120 {
		w.Keys(key)
		s := w.stop(selector)
		switch {
		case s.Lost:
			w.fatal("the focus is lost on the way to %s", selector)
		case !s.Ring:
			w.t.Errorf("%s: nothing shows the focus on %s", w.Path(), s.Element)
		case s.Covered != "":
			w.t.Errorf("%s: %s has the focus under %s", w.Path(), s.Element, s.Covered)
		}
		if s.Here {
			return
		}
	}
	w.fatal("no way to %s by %s", selector, key)
}

// Focused waits until an element has the focus.
func (w *Window) Focused(selector string) {
	w.t.Helper()
	w.Until(selector+" doesn't have the focus", `document.activeElement.matches(`+quoted(css(selector))+`)`)
}

// KeepsFocus checks that some element has the focus.
func (w *Window) KeepsFocus() {
	w.t.Helper()
	if s := w.stop(""); s.Lost {
		w.fatal("the focus is lost")
	}
}
