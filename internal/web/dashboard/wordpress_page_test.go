package dashboard

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"slipway/internal/edge/endpoint"
	"slipway/internal/platform/db"
	"slipway/internal/platform/seal"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/operation"
	"slipway/internal/tenant/site"
	"slipway/internal/wordpress/wordpress"
)

// blog stands in for the programs of WordPress sites: it answers our tasks, and counts how often it is woken.
type blog struct {
	woken   atomic.Int64
	version atomic.Value // string
	broken  atomic.Bool
	asleep  sync.Mutex // while it is locked, it is not awake yet
	content sync.Map   // of the host of a site to what it says of its content
}

// world is a dashboard of sites whose programs it stands in for.
func (p *blog) world(t *testing.T) *world {
	t.Helper()
	p.version.Store("6.1")
	sealer, err := seal.Load(filepath.Join(t.TempDir(), "key"))
	must(t, err)
	return newWorld(t, func(c *Config) {
		c.WordPress = wordpress.New(wordpress.Config{
			DB: c.DB, Sites: c.Sites, Databases: c.Databases, Seal: sealer, Operations: operation.New(operation.Config{DB: c.DB}),
			Programs: p, Source: "/nowhere",
		})
	})
}

// RoundTrip runs a task.
func (p *blog) RoundTrip(r *http.Request) (*http.Response, error) {
	content, ok := p.content.Load(strings.Split(r.Host, ".")[0])
	if !ok {
		content = "null"
	}
	answer := fmt.Sprintf(`{"content": %s, "version": %q, "phpVersion": "8.4.1", "title": "Harbor blog", "locale": "en_US", "adminUrl": "https://x.test/wp-admin/",
		"plugins": [{"slug": "shop", "name": "Shop", "version": "2.0", "active": true, "updateVersion": "2.1"}], "themes": []}`, content, p.version.Load())
	if p.broken.Load() {
		answer = `{"error": "the plugin Shop ended the request"}`
	}
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(answer)), Request: r}, nil
}

// Acquire wakes it.
func (p *blog) Acquire(context.Context, string) (*endpoint.Endpoint, error) {
	p.woken.Add(1)
	p.asleep.Lock() // waits while it is asleep
	defer p.asleep.Unlock()
	return &endpoint.Endpoint{Tasks: p, Release: func() {}}, nil
}

// Awake is for wordpress.Programs.
func (p *blog) Awake(string) (*endpoint.Endpoint, bool) { return nil, false }

// Note is the same.
func (p *blog) Note(string, string) {}

// Renew is the same.
func (p *blog) Renew(string) {}

// FatalErrors is the same.
func (p *blog) FatalErrors(context.Context, string, db.Time) []string { return nil }

// liveWordPress makes a WordPress whose program is p.
func (w *world) liveWordPress(u account.User, b *browser) string {
	return w.liveWordPressNamed(u, b, "Press")
}

func (w *world) liveWordPressNamed(u account.User, b *browser, name string) string {
	w.t.Helper()
	to := b.wordpress(w.t.(*testing.T), name)
	s, err := w.dash.Sites.Get(w.t.Context(), u.Owner, site.ID(strings.TrimPrefix(to, "/sites/")))
	must(w.t, err)
	w.live(s, w.deployment(s))
	return to + "/wordpress"
}

// old makes what is stored of every WordPress an hour old.
func (w *world) old() {
	w.t.Helper()
	must(w.t, w.db.Write(w.t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(w.t.Context(), `UPDATE wordpress_sites SET facts_at = facts_at - 3600000`)
		return err
	}))
}

// The page of a WordPress shows what is stored and wakes nothing; what is old is asked for behind it.
func TestWordPressPageWakesNothing(t *testing.T) {
	t.Parallel()
	var p blog
	w := p.world(t)
	u := w.user("ada@example.test", false)
	b := w.as(u.Email)
	at := w.liveWordPress(u, b)
	woken := func(want int64, when string) {
		t.Helper()
		if n := p.woken.Load(); n != want {
			t.Errorf("%s: woken %d times, want %d", when, n, want)
		}
	}
	live := `data-live="` + at + `/state/follow"`
	b.get(at).want(t, 200, "Reading the current state", live).lacks(t, `data-test="wordpress-login"`)
	woken(0, "the first visit")
	b.get(at+"/state/follow").want(t, 200, "event: end")
	woken(1, "behind the first visit")
	b.get(at).want(t, 200, "Harbor blog", "PHP 8.4.1", "Shop 2.1", "As of", `data-test="wordpress-login"`).lacks(t, live)
	woken(1, "the second visit")

	w.old()
	p.version.Store("6.2")
	b.get(at).want(t, 200, "WordPress 6.1", "Reading the current state", live)
	woken(1, "a visit an hour later")
	b.get(at+"/state/follow").want(t, 200, "event: end")
	b.get(at).want(t, 200, "WordPress 6.2").lacks(t, live)
	woken(2, "behind that visit")

	p.version.Store("6.3")
	b.get(at+"?refresh=1").want(t, 200, "WordPress 6.3")
	woken(3, "a refresh without scripts")
	p.broken.Store(true)
	b.get(at+"?refresh=1").want(t, 200, "WordPress 6.3", "the plugin Shop ended the request").lacks(t, live)
}

// contentOf is what a WordPress says of its content.
func contentOf(posts, newer int, blogname string) string {
	return fmt.Sprintf(`{"posts": [{"type": "post", "name": "Posts", "count": %d, "changed": 1700000000, "newer": %d}, {"type": "shop_order", "name": "Orders", "count": %d, "newer": %d}],
		"comments": {"count": 4}, "users": {"count": 2, "changed": 1700000000}, "options": {"blogname": %q, "<b>hostile</b>": %q}}`, posts, newer, newer, newer/4, blogname, blogname)
}

// Before a push the page says what the target has that is newer than the copy, as both say now, and what differs.
func TestPushShowsWhatDiffers(t *testing.T) {
	t.Parallel()
	var p blog
	w := p.world(t)
	u := w.user("ada@example.test", false)
	b := w.as(u.Email)
	staging, shop := w.liveWordPressNamed(u, b, "Shop staging"), w.liveWordPressNamed(u, b, "Shop")
	id := strings.Split(shop, "/")[2]
	p.content.Store("shop-staging", contentOf(20, 0, "a"))
	p.content.Store("shop", contentOf(28, 12, "b"))
	at := staging + "/push?to=" + id
	b.get(at).want(t, 200, `data-test="push-unrelated"`, "Orders", "28").lacks(t, `data-test="push-newer"`, "<b>hostile")
	must(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), `UPDATE wordpress_sites SET origin = $1, synced_at = 1700000000000 WHERE site_id <> $1`, id)
		return err
	}))
	woken := p.woken.Load()
	b.get(at).want(
		t, 200, "Shop has 12 posts and 3 orders changed since the copy of", "14 November 2023", "12 changed in the target",
		"2 different", "&lt;b&gt;hostile&lt;/b&gt;",
	)
	if n := p.woken.Load() - woken; n != 2 {
		t.Errorf("%d were asked, want both", n)
	}
	p.content.Store("shop", contentOf(20, 0, "a"))
	b.get(at).want(t, 200, `data-test="push-clean"`, "are as they were").lacks(t, `data-test="push-newer"`)
	p.broken.Store(true)
	b.get(at).want(t, 200, "Not everything could be compared", "the plugin Shop ended the request").lacks(t, `data-test="push-clean"`)
}
