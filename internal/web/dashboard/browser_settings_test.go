//go:build browser

package dashboard

import "testing"

// One bar counts the changes of all forms and saves or discards all of them.
func TestBrowserSettings(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	u := w.user("ada@example.test", false)
	at := w.planned(u, nextPlan)
	b := w.window("settings", w.srv.URL)
	signIn(b, u.Email)
	b.Go(at)
	b.Sees("@effective-run_memory", "1024", "from slipway.toml")
	b.Misses("@save-bar")
	b.Misses("@save-build")
	b.Misses("#f-run_pids") // collapsed
	b.Look("settings")
	b.Type("#f-name", "Journal")
	b.Type("#f-build_command", "make")
	b.Type("#f-run_memory", "256")
	b.Sees("@save-bar", "3 unsaved changes")
	b.Look("settings-changed")
	b.Click("@discard")
	b.Misses("@save-bar")
	b.Until("the name was not discarded", `document.querySelector('#f-name').value === 'Harbor Journal'`)
	b.Type("#f-name", "Journal")
	b.Type("#f-run_memory", "256")
	b.Press("@save-all")
	b.Sees("@flash", "Saved")
	b.Sees("@effective-run_memory", "set here")
	b.Until("the name was not saved", `document.querySelector('#f-name').value === 'Journal'`)
	b.Until("the memory was not saved", `document.querySelector('#f-run_memory').value === '256'`)
}
