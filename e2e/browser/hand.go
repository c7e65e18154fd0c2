//go:build browser

package browser

import (
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
)

// Hand does what a person does in a window, with a mouse or with the keyboard alone, and counts it: each link, button and box
// that is pressed is one act. Typing, putting the cursor into a field and moving the focus are none, as in Peers.
type Hand struct {
	*Window
	Keyboard bool // no mouse: Tab to get there, Enter or Space to press
	Acts     int
}

// Open presses what leads to another page.
func (h *Hand) Open(selector string) {
	h.t.Helper()
	h.Acts++
	if !h.Keyboard {
		h.Press(selector)
		return
	}
	h.focus(selector)
	h.KeysLead("Enter")
}

// Do presses what changes the page that is there.
func (h *Hand) Do(selector string) {
	h.t.Helper()
	h.Acts++
	if !h.Keyboard {
		h.Click(selector)
		return
	}
	h.focus(selector)
	h.Keys("Space")
}

// Fill writes a text into a field in the place of what stands there.
func (h *Hand) Fill(selector, text string) {
	h.t.Helper()
	if !h.Keyboard {
		h.Type(selector, text)
		return
	}
	h.focus(selector)
	h.Run(chromedp.KeyEvent("a", chromedp.KeyModifiers(input.ModifierCtrl)))
	h.Keys(text)
}

// Send presses Enter in the field that was filled; the page that follows is there when it returns.
func (h *Hand) Send() {
	h.t.Helper()
	h.KeysLead("Enter")
}

// Asks opens a dialog and, by keyboard, leaves it once: the focus must come back to what has opened it.
func (h *Hand) Asks(button string) {
	h.t.Helper()
	if h.Keyboard {
		h.focus(button)
		h.Keys("Enter")
		h.Sees("dialog:popover-open")
		h.Keys("Escape")
		h.Misses("dialog:popover-open")
		h.Focused(button)
	}
	h.Do(button)
	h.Sees("dialog:popover-open")
}

// focus gets the focus to an element by Tab, or by Shift+Tab where that is before the one that has it.
func (h *Hand) focus(selector string) {
	h.t.Helper()
	h.Sees(selector)
	if h.stop(selector).Here {
		return
	}
	var before bool
	h.Eval(`(() => { const at = document.activeElement; return at && at !== document.body &&
		`+visible(selector)+`.some((e) => at.compareDocumentPosition(e) & Node.DOCUMENT_POSITION_PRECEDING && !e.contains(at)); })()`, &before)
	if before {
		h.ReachBack(selector)
	} else {
		h.Reach(selector)
	}
}
