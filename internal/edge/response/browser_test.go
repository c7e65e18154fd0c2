//go:build browser

package response

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"slipway/e2e/browser"
)

// Every error page names the problem, what to do and the request ID, on all screen sizes and in both themes, and links
// to the same address or to the site.
func TestBrowserVisitorPages(t *testing.T) {
	t.Parallel()
	pages := allPages()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i, err := strconv.Atoi(r.URL.Path[1:])
		if err != nil || i >= len(pages) {
			return
		}
		n := pages[i]
		if n == PageEmpty && r.URL.Query().Has("up") || r.Method == http.MethodPost && r.PostFormValue("slipway_password") == "open" {
			fmt.Fprint(w, "<!doctype html><title>In</title><p id=in>Welcome")
			return
		}
		if n == PageAccess && r.Method == http.MethodPost {
			n = PageDenied
		}
		Page(w, r, n)
	}))
	t.Cleanup(srv.Close)
	b := browser.Start(t, browser.Config{Name: "visitors"}).Window(srv.URL)
	for i, n := range pages {
		b.Expect(n.Status)
		b.Go(fmt.Sprint("/", i))
		b.Sees("h1", n.title)
		b.Sees("footer", strconv.Itoa(n.Status))
		b.Look(fmt.Sprintf("%02d-%d", i, n.Status))
		if n == PageEmpty {
			b.Eval(`void history.replaceState(null, '', '?up')`, nil)
			b.Press(".do a")
			b.Sees("#in", "Welcome")
		}
		if n == PageAccess {
			b.Expect(http.StatusUnauthorized)
			b.Type("#p", "guess")
			b.Press("button")
			b.Sees("[role=alert]", "Wrong password")
			b.Type("#p", "open")
			b.Press("button")
			b.Sees("#in", "Welcome")
		}
	}
}
