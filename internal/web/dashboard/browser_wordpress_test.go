//go:build browser

package dashboard

import (
	"strings"
	"testing"

	"slipway/internal/platform/db"
)

// The page shows what is stored at once, and what WordPress says now once it is awake, without a reload.
func TestBrowserWordPress(t *testing.T) {
	t.Parallel()
	var p blog
	w := p.world(t)
	u := w.user("ada@example.test", false)
	at := w.liveWordPress(u, w.as(u.Email))
	b := w.window("wordpress", w.srv.URL)
	signIn(b, u.Email)
	b.Go(at)
	b.Sees("@wordpress-facts", "Harbor blog", "PHP 8.4.1")
	b.Sees("@wordpress-as-of", "As of")
	w.old()
	p.version.Store("6.2")
	p.asleep.Lock()
	b.Go(at)
	b.Sees("h2", "WordPress 6.1")
	b.Sees("@wordpress-as-of", "1 hour ago", "Reading the current state")
	b.Eval(`void (window.same = true)`, nil)
	p.asleep.Unlock()
	b.Until("the version is not updated", `document.querySelector('[data-fresh="wordpress"] h2').innerText === 'WordPress 6.2' && window.same`)
	b.Sees("@wordpress-as-of", "just now")
	b.Look("wordpress")
}

// The comparison before a push can be read on a phone and by everybody, and nothing is pushed before the name of the
// target was typed.
func TestBrowserPushComparison(t *testing.T) {
	t.Parallel()
	var p blog
	w := p.world(t)
	u := w.user("ada@example.test", false)
	as := w.as(u.Email)
	staging, shop := w.liveWordPressNamed(u, as, "Shop staging"), w.liveWordPressNamed(u, as, "Shop")
	id := strings.Split(shop, "/")[2]
	p.content.Store("shop-staging", contentOf(20, 0, "a"))
	p.content.Store("shop", contentOf(1280, 12, "b"))
	must(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), `UPDATE wordpress_sites SET origin = $1, synced_at = 1700000000000 WHERE site_id <> $1`, id)
		return err
	}))
	as.get(staging+"?refresh=1").want(t, 200, "Compare and push")
	b := w.window("push-comparison", w.srv.URL)
	signIn(b, u.Email)
	b.Go(staging)
	b.Sees("@push-to", "Shop (cloned from it)")
	b.Press("@wordpress-push")
	b.Sees("@push-newer", "12 posts and 3 orders", "14 November 2023")
	b.Sees("@push-differences", "1,280", "12 changed in the target")
	b.Look("push-comparison")
	b.Click("@push-database")
	b.Click("@do-push") // the field is required: nothing is sent
	if got := b.Path(); !strings.HasPrefix(got, staging+"/push") {
		t.Errorf("it went to %s", got)
	}
}
