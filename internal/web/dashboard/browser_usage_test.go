//go:build browser

package dashboard

import (
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/usage"
)

// The usage page shows usage by day, in both themes and on a phone.
func TestBrowserUsage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const ada = "ada@example.test"
	u := w.user(ada, false)
	first, second := w.site(u, "Harbor Journal"), w.site(u, "A shop with a name that is too long for a phone's screen")
	source := usage.NewSource("dep_25o5kzh3mc7yw4tn6pqd2xlfae/1")
	now := db.Now()
	for back := 20; back >= 0; back-- {
		at := now.Add(-time.Duration(back) * 24 * time.Hour)
		n := int64(back%7+1) << 30
		source.Add(at, u.Owner, usage.Bandwidth, first.ID, n)
		source.Add(at, u.Owner, usage.Bandwidth, second.ID, n/5)
		source.Add(at, u.Owner, usage.Requests, first.ID, n>>17)
		source.Add(at, u.Owner, usage.Build, first.ID, int64(back%5)*200_000)
		source.Add(at, u.Owner, usage.Memory, first.ID, 256*86_400)
		source.Add(at, u.Owner, usage.Storage, "", 24*n)
	}
	if err := w.dash.Usage.Write(t.Context(), source); err != nil {
		t.Fatal(err)
	}
	b := w.window("usage", w.srv.URL)
	signIn(b, ada)
	b.Go("/account/usage")
	b.Look("usage")
	b.Click("#usage-ban-days summary")
	b.Look("usage-table")
}
