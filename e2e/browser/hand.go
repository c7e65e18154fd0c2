//go:build browser

package browser

import (
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
)

// Hand performs a user's actions in a window, with a mouse or only the keyboard, and counts them: each pressed link,
// button or checkbox is one act. Typing, focusing a field and moving the focus don't count, as in Peers.
type Hand struct {
	*Window
	Keyboard bool // without a mouse: Tab to move the focus, Enter or Space to press
	Acts     int
}

// Open presses an element that opens another page.
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

// Do presses an element that changes the current page.
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

// Fill replaces a field's text.
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

// Send presses Enter in the filled field and waits for the next page.
func (h *Hand) Send() {
	h.t.Helper()
	h.KeysLead("Enter")
}

// Asks opens a dialog. With the keyboard, it also closes the dialog once with Escape, which must return the focus to
// the button, and opens it again.
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

// focus moves the focus to an element with Tab, or with Shift+Tab if the element is before the current focus.
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
