//go:build browser

package dashboard

import (
	"context"
	"net/http"
	"testing"

	"slipway/internal/platform/db"
	"slipway/internal/web/requestinfo"
)

// A page whose stream is refused says so, reconnects by itself and then shows the current state. A page whose reader
// may no longer follow says that, too.
func TestBrowserStreamComesBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *Config) { c.Streams = requestinfo.NewStreams(10, 1, 10) })
	u := w.user("ada@example.test", false)
	s := w.site(u, "Harbor")
	other := w.as(u.Email)
	other.client.Timeout = 0
	ctx, stop := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, w.srv.URL+"/sites/"+string(s.ID)+"/follow", nil)
	must(t, err)
	held, err := other.client.Do(r)
	must(t, err)
	defer held.Body.Close()
	if held.StatusCode != http.StatusOK {
		t.Fatalf("the first stream: %s", held.Status)
	}
	b := w.window("streams", w.srv.URL)
	b.Refuses("429")
	signIn(b, u.Email)
	b.Sees("@paused", "Live updates paused. Reconnecting…")
	b.Refused("429")
	b.Look("paused")
	stop()
	b.Misses("@paused")
	b.Sees("@card-" + string(s.ID) + " @status-pending")
	w.activate(s)
	b.Sees("@card-" + string(s.ID) + " @status-active")

	// The session ends elsewhere: the page stops sending requests.
	must(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := w.dash.Accounts.EndSessionsTx(t.Context(), tx, u.ID, "")
		return err
	}))
	b.Refuses("401")
	b.Sees("@paused", "Live updates have ended. Reload the page.")
}

// A site's header and navigation update with its overview, so that the next step is offered at once.
func TestBrowserHeadFollows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	u := w.user("ada@example.test", false)
	s := w.site(u, "Harbor")
	b := w.window("head", w.srv.URL)
	signIn(b, u.Email)
	b.Go("/sites/" + string(s.ID))
	b.Misses(`.head-actions a[href^="https://harbor."]`)
	w.activate(s)
	b.Sees(`.head-actions a[href^="https://harbor."]`, "Visit")
}
