//go:build browser

package browser

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"slipway/e2e/world"
)

// story is one user's work with the program, starting with the first start.
type story struct {
	*harness
	*Window
	t    *testing.T
	site string // path of the site's pages in the dashboard
	live string // the site's URL

	begun time.Time
}

// A user can do everything in the dashboard, from the first start to deleting a site, with the real program and a real
// browser.
func TestBrowserStory(t *testing.T) {
	t.Parallel()
	h := newHarness(t, "story", "harbor", "leaflet")
	s := &story{harness: h, Window: h.window(), t: t, live: "https://harbor.localhost:" + h.port() + "/", begun: time.Now()}
	s.Allow(s.live)
	s.Allow("https://leaflet.localhost:" + h.port())
	s.comeIn()
	s.newSite()
	s.variables()
	s.apiKey()
	s.webhook()
	s.deployHook()
	s.goBack()
	s.members()
	s.brokenBuild()
	s.domain()
	s.plainSite()
	s.restOfThePages()
	s.account()
	s.search()
	s.delete()
}

func (s *story) step(name string) { s.t.Logf("%5.1f s  %s", time.Since(s.begun).Seconds(), name) }

// stays checks that the page doesn't load another document during do.
func (s *story) stays(do func()) {
	s.t.Helper()
	s.Eval(`void (document.slipwayStays = true)`, nil)
	do()
	var same bool
	if s.Eval(`!!document.slipwayStays`, &same); !same {
		s.t.Error("the page was reloaded")
	}
}

func (s *story) comeIn() {
	s.step("the first start's link works once")
	link := s.setupLink()
	s.Go("/")
	s.Sees("@not-set-up")
	s.Look("nobody-here")
	s.Go(link)
	s.Look("setup")
	s.Type("#f-email", email)
	s.Type("#f-password", password)
	s.Press("@submit")
	s.Sees("@flash")
	s.Look("home-empty")
	other := s.window()
	other.Expect(http.StatusNotFound)
	other.Go(link)
	other.Misses("#f-password")
	other.Look("setup-used")
}

// answers waits until the site responds with this status and text to a client that trusts only the exported root.
func (s *story) answers(status int, text string) {
	s.t.Helper()
	client, err := s.Browser()
	if err != nil {
		s.t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	ctx, stop := context.WithTimeout(s.t.Context(), patience)
	defer stop()
	var a world.Answer
	err = world.Until(ctx, 10*time.Millisecond, func() (_ bool, err error) {
		a, err = s.Site(ctx, client, world.Request{Method: http.MethodGet, URL: s.live})
		return a.Status == status && strings.Contains(string(a.Body), text), err
	})
	if err != nil {
		s.t.Fatalf("%s does not answer %d with %q: %v\n%d %.1000s", s.live, status, text, err, a.Status, a.Body)
	}
}
