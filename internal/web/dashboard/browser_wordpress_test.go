//go:build browser

package dashboard

import "testing"

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
