//go:build browser

package dashboard

import (
	"strings"
	"testing"
)

// Inputs, selects and buttons have the same height on every page.
func TestBrowserControls(t *testing.T) {
	t.Parallel()
	var p blog
	w := p.world(t)
	u := w.user("ada@example.test", true)
	me := w.as(u.Email)
	press := w.liveWordPress(u, me)
	me.get(press+"/state/follow").want(t, 200, "event: end") // otherwise the page reloads while it is measured
	site := strings.TrimSuffix(w.planned(u, nextPlan), "/settings")
	plain := "/sites/" + string(w.site(u, "Plain").ID)
	b := w.window("controls", w.srv.URL)
	measure := func(path string) {
		t.Helper()
		b.Go(path)
		var odd []string
		b.Eval(`[...document.querySelectorAll('main :is(input:not([type="checkbox"], [type="radio"], [type="hidden"]), select:not([multiple]), .button:not(.small)), .gate-panel :is(input:not([type="checkbox"], [type="radio"], [type="hidden"]), .button)')]
			.filter((el) => el.checkVisibility() && el.offsetHeight && el.offsetHeight !== 36)
			.map((el) => el.tagName + ' ' + (el.name || el.innerText) + ' has ' + el.offsetHeight + ' px')`, &odd)
		if len(odd) > 0 {
			t.Errorf("%s: %s", path, strings.Join(odd, ", "))
		}
	}
	for _, path := range []string{"/sign-in", "/forgot"} {
		measure(path)
	}
	signIn(b, u.Email)
	for _, path := range []string{
		"/", "/new", "/new?type=wordpress", "/account", "/account/security", "/account/keys", "/account/git", "/account/notifications", "/webhooks/new",
		"/operator/users", "/operator/git", press,
		site, site + "/deployments", site + "/domains", site + "/env", site + "/env/import", plain + "/rules", site + "/git", site + "/hooks",
		site + "/backups", site + "/databases", site + "/settings", site + "/logs",
	} {
		measure(path)
	}
}
