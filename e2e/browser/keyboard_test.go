//go:build browser

package browser

import (
	"net/http"
	"testing"

	"slipway/e2e/world"
)

// A user can do everything from signing in to deleting the site without a mouse.
func TestBrowserKeyboard(t *testing.T) {
	t.Parallel()
	world.Long(t)
	h := newHarness(t, "keyboard", "pier")
	if _, err := h.User(email); err != nil {
		t.Fatal(err)
	}
	h.commit("acme/pier", "Drive the piles", h.project("await pass('dawn')\npage('The first pier')\n"))
	w := h.window()
	live := "https://pier.localhost:" + h.port() + "/"
	w.Allow(live)

	w.Go("/sign-in")
	w.Focused("#f-email")
	w.Keys(email, "Tab")
	w.Focused("#f-password")
	w.KeysLead("correct horse battery staple 9", "Enter")

	w.Keys("Tab")
	w.Focused(".skip")
	w.Keys("Enter")
	w.Focused("#main")
	w.Reach("@new-site")
	w.KeysLead("Enter")
	w.Focused("#f-repository")
	w.KeysLead("git.test/acme/pier", "Enter")
	w.Reach("@create")
	w.KeysLead("Space")

	// The focused element stays on the page while the page updates during the build. When the element disappears, the
	// focus moves to the section that contained it.
	w.Sees("h1", "Drive the piles")
	w.Reach("@open-cancel")
	w.Keys("Enter")
	w.Sees("dialog:popover-open")
	w.Focused("dialog:popover-open button")
	w.Look("cancel-asked")
	w.Keys("Tab", "Tab", "Tab", "Tab")
	w.Focused("dialog:popover-open button")
	w.Keys("Escape")
	w.Misses("dialog:popover-open")
	w.Focused("@open-cancel")
	w.Sees("@deployment .stage.running", "Build")
	w.Until(
		"the page is not brought up to date",
		`document.querySelector('.stage.running .stage-time').textContent !== `+quoted(w.Text("@deployment .stage.running .stage-time")),
	)
	w.Focused("@open-cancel")
	h.open("dawn")
	w.Sees("@deployment @status-success")
	w.KeepsFocus()
	site := w.Path()[:len("/sites/site_2akzzdiw3o222busxy7r3iqycc")]
	w.Reach("@live-link")
	w.KeysLead("Enter")
	w.Sees("h1", "The first pier")

	w.Go("/")
	w.Keys("/")
	w.Focused("@search")
	w.Reach("details.menu summary, .card-link")
	w.KeysLead("Enter")
	w.Reach("details.menu summary")
	w.Keys("Enter")
	w.Reach(`.menu-panel a[href="/account"]`)
	w.KeysLead("Enter")
	w.Reach(`.rail-link[href="/account/keys"]`)
	w.KeysLead("Enter")
	w.Reach("@new-key")
	w.KeysLead("Enter")
	w.Focused("#f-name")
	w.Keys("By hand")
	w.Reach(`input[value="sites:read"]`)
	w.Keys("Space")
	w.Look("key-new")
	w.Reach("@submit")
	w.KeysLead("Enter")
	w.Reach(".once .copy")
	w.Keys("Enter")
	w.Sees(".once .copy", "Copied")
	w.KeepsFocus()
	var key string
	w.Eval(`navigator.clipboard.readText()`, &key)
	if status, body := h.curl(
		`curl http://`+h.Listen+`/api/v1/sites -H "Authorization: Bearer $SLIPWAY_KEY"`,
		key,
	); status != http.StatusOK {
		t.Errorf("the copied key gets %d: %s", status, body)
	}

	h.commit("acme/pier", "Rebuild in stone", h.project("page('The stone pier')\n"))
	w.Go(site)
	w.Reach("@deploy")
	w.KeysLead("Enter")
	w.Sees("@deployment @status-success")
	w.Go(site)
	w.Reach("@open-roll-*")
	w.Keys("Enter")
	w.Focused("dialog:popover-open button")
	w.Keys("Escape")
	w.Focused("@open-roll-*")
	w.Keys("Enter")
	w.Reach("@do-roll-*")
	w.KeysLead("Enter")
	w.Sees("@flash", "Rolled back")
	w.Go(live)
	w.Sees("h1", "The first pier")

	w.Go(site + "/settings")
	w.Reach("@open-delete-site")
	w.ReachBack("#f-name") // a long way up, on a page with a sticky bar
	w.Reach("@open-delete-site")
	w.Keys("Enter")
	w.Focused("#delete-site-confirm")
	w.Keys("pier")
	w.KeysLead("Enter")
	w.Sees("@flash")
	w.Reach("details.menu summary")
	w.Keys("Enter")
	w.Sees(".menu-panel")
	w.Keys("Escape")
	w.Misses(".menu-panel")
	w.Focused("details.menu summary")
	w.Keys("Enter")
	w.Reach("@sign-out")
	w.KeysLead("Enter")
	w.Sees("#f-email")
}
