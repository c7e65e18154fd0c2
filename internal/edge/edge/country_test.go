package edge

import (
	"net/netip"
	"sync/atomic"
	"testing"

	"slipway/internal/edge/response"
)

// A rule for a country applies only to visitors from it. Neither the fast path nor a shared cache gives its answer to
// other visitors.
func TestCountryRules(t *testing.T) {
	t.Parallel()
	var country atomic.Value
	w := start(t, func(c *Config) {
		c.Countries = countries(func(netip.Addr) string { return country.Load().(string) })
	})
	w.live("s1", "blog", stateLive, w.publish(map[string]string{
		"index.html": "home", "de.html": "deutsch", "about.html": "about",
		"_redirects": "/ /de 200! Country=de,at\n/store /laden 302 Country=at\n",
	}))
	for range 3 { // the fast path stores answers on the first request
		for code, want := range map[string]struct{ body, store string }{
			"DE": {"deutsch", ""},
			"AT": {"deutsch", "/laden"},
			"FR": {"home", ""},
			"":   {"home", ""},
		} {
			country.Store(code)
			a := w.get("https://blog.sites.test/")
			a.want(t, 200, want.body)
			if got := a.header.Get("Cache-Control"); got != response.Private[0] {
				t.Errorf("%q: Cache-Control: %q", code, got)
			}
			a = w.get("https://blog.sites.test/store")
			if got := a.header.Get("Location"); got != want.store ||
				want.store != "" && a.header.Get("Cache-Control") != response.Private[0] {
				t.Errorf("%q: %v", code, a.header)
			}
			if got := w.get("https://blog.sites.test/about").header.Get("Cache-Control"); got == response.Private[0] {
				t.Errorf("a page that no rule is for: Cache-Control: %q", got)
			}
		}
	}
}
