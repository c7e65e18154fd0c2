//go:build browser

package wordpress

import (
	"strings"
	"testing"

	"slipway/e2e/browser"
	"slipway/e2e/world"
)

// With a mouse and with only the keyboard, the two of the ten stories (e2e/browser) that need a WordPress take no more
// acts than on the best other platform.
func TestBrowserTenStories(t *testing.T) {
	t.Parallel()
	world.Long(t)
	h := install(t)
	for name, keyboard := range map[string]bool{"mouse": false, "keys": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			own := *h
			own.t = t
			own.two(keyboard, name)
		})
	}
}

func (h *installation) two(keyboard bool, name string) {
	w := browser.Start(h.t, browser.Config{Name: "ten-wordpress-" + name, AnyCertificate: true}).Window("http://" + h.Listen)
	w.Go("/sign-in")
	w.Type("#f-email", "ada@example.test")
	w.Type("#f-password", world.Password)
	w.Press("@submit")
	p := &browser.Hand{Window: w, Keyboard: keyboard}
	p.Tell("new WordPress and open wp-admin", "/", func() {
		p.Open("@new-site")
		p.Open(`.new-kinds a[href="/new?type=wordpress"]`)
		p.Fill("#f-name", name)
		p.Open("@create")
		p.Sees("@open-admin")
		admin := w.Elsewhere(func() { p.Do("@open-admin") })
		admin.Sees("#wpadminbar")
		admin.Sees("h1", "Dashboard")
	})
	site := "/" + strings.Join(strings.Split(p.Path(), "/")[1:3], "/")

	p.Tell("back up and restore", "/", func() {
		p.Open(`.card-link[href="` + site + `"]`)
		p.Open(`.rail-link[href="` + site + `/backups"]`)
		p.Open("@back-up")
		p.Sees("@backup @status-verified")
		p.Asks("@open-restore-*")
		p.Fill(`dialog:popover-open input[name="confirm"]`, name)
		p.Open("dialog:popover-open @do-restore-*")
		p.Sees("@progress @status-success")
	})
}
