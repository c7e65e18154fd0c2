//go:build browser

package dashboard

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"slipway/internal/platform/db"
)

// The page shows the stored state at once, and WordPress's current state without a reload once it is awake.
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

// The comparison before a push is readable on a phone and accessible, and nothing is pushed before the target's name is
// typed.
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
	b.Click("@do-push") // the required field is empty, so nothing is sent
	if got := b.Path(); !strings.HasPrefix(got, staging+"/push") {
		t.Errorf("it went to %s", got)
	}
}

// Plugins, themes and users can be managed by keyboard and on a phone. Deletions ask for confirmation.
func TestBrowserWordPressManage(t *testing.T) {
	t.Parallel()
	var p blog
	w := p.world(t)
	u := w.user("ada@example.test", false)
	as := w.as(u.Email)
	at := w.liveWordPressNamed(u, as, "Press")
	p.content.Store("press", contentOf(1280, 12, "b"))
	p.users.Store(`{"users": [{"id": 1, "login": "ada", "email": "ada@example.test", "name": "Ada", "roles": ["administrator"], "registered": 1700000000},
		{"id": 7, "login": "grace", "email": "grace.with.a.long.name@example.test", "name": "Grace", "roles": ["editor"], "registered": 1600000000}], "total": 2}`)
	as.get(at+"?refresh=1").want(t, 200, `data-test="plugins"`)
	b := w.window("wordpress-manage", w.srv.URL)
	signIn(b, u.Email)
	b.Go(at)
	b.Sees("@import-replaces", "This replaces 1,280 posts")
	b.Look("manage")
	b.Click("#plugin-old-one")
	b.Press(`form:has([data-test="plugins"]) button[value="delete"]`)
	b.Sees("@to-delete", "<i>Old</i>", "1.0")
	b.Look("delete")
	b.Press("@do-delete")
	b.Sees("@wordpress-operations", "Plugins and themes")
	b.Go(at + "/users")
	b.Sees("@wordpress-users", "grace", "administrator")
	b.Look("users")
	b.Click("#u-7")
	b.Expect(409)
	b.Press("@reset-password")
	b.Sees("@problem", "operation of this kind is already running")
}

// An archive's upload shows its progress, and errors are shown beside it.
func TestBrowserWordPressUpload(t *testing.T) {
	t.Parallel()
	var p blog
	w := p.world(t)
	u := w.user("ada@example.test", false)
	as := w.as(u.Email)
	at := w.liveWordPressNamed(u, as, "Press")
	as.get(at+"?refresh=1").want(t, 200, `data-test="wordpress-upload"`)
	dir := t.TempDir()
	empty, archive := filepath.Join(dir, "empty.zip"), filepath.Join(dir, "site.tar.gz")
	must(t, os.WriteFile(empty, nil, 0o600))
	must(t, os.WriteFile(archive, bytes.Repeat([]byte("data"), 1<<20), 0o600))
	b := w.window("wordpress-upload", w.srv.URL)
	signIn(b, u.Email)
	b.Go(at)
	b.Type("#f-upload-confirm", "Press")
	b.Run(chromedp.SetUploadFiles("#f-archive", []string{empty}, chromedp.ByQuery))
	b.Expect(http.StatusUnprocessableEntity)
	b.Click("@wordpress-upload")
	b.Sees("@upload-says", "Upload failed", "it is empty")
	b.Run(chromedp.SetUploadFiles("#f-archive", []string{archive}, chromedp.ByQuery))
	b.Press("@wordpress-upload")
	b.Sees("@wordpress-operations", "Import")
	if got := w.operations(u, strings.Split(at, "/")[2]); len(got) != 1 || got[0] != "wordpress.import" {
		t.Errorf("operations: %v", got)
	}
}
