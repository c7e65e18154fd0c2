package dashboard

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"slipway/internal/platform/id"

	"slipway/internal/edge/endpoint"
	"slipway/internal/platform/db"
	"slipway/internal/platform/seal"
	"slipway/internal/platform/wait"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/operation"
	"slipway/internal/tenant/site"
	"slipway/internal/wordpress/wordpress"
)

// blog fakes the programs of WordPress sites: it answers tasks and counts how often it is woken.
type blog struct {
	woken   atomic.Int64
	dir     string       // WordPress's directory
	version atomic.Value // string
	broken  atomic.Bool
	users   atomic.Value // string: the answer to the users task
	asleep  sync.Mutex   // locked while the program is still waking up
	content sync.Map     // by host: the answer about a site's content
}

// world returns a dashboard whose WordPress programs are p.
func (p *blog) world(t *testing.T, with ...func(*Config)) *world {
	t.Helper()
	p.version.Store("6.1")
	p.dir = t.TempDir()
	sealer, err := seal.Load(filepath.Join(t.TempDir(), "key"))
	must(t, err)
	return newWorld(t, append(with, func(c *Config) {
		c.WordPress = wordpress.New(wordpress.Config{
			DB: c.DB, Sites: c.Sites, Databases: c.Databases, Seal: sealer, Operations: operation.New(operation.Config{DB: c.DB}),
			Programs: p, Source: "/nowhere", Backups: c.Backups, Dir: p.dir,
		})
	})...)
}

// RoundTrip runs a task.
func (p *blog) RoundTrip(r *http.Request) (*http.Response, error) {
	content, ok := p.content.Load(strings.Split(r.Host, ".")[0])
	if !ok {
		content = "null"
	}
	answer := fmt.Sprintf(`{"content": %s, "version": %q, "phpVersion": "8.4.1", "title": "Harbor blog", "locale": "en_US", "adminUrl": "https://x.test/wp-admin/",
		"plugins": [{"slug": "shop", "name": "Shop", "version": "2.0", "active": true, "updateVersion": "2.1", "autoUpdate": true}, {"slug": "old-one", "name": "<i>Old</i>", "version": "1.0", "active": false}],
		"themes": [{"slug": "harbor", "name": "Harbor", "version": "3.0", "active": true}]}`, content, p.version.Load())
	users, _ := p.users.Load().(string)
	if strings.HasPrefix(r.URL.Path, "/users") {
		answer = users
	}
	if p.broken.Load() {
		answer = `{"error": "the plugin Shop ended the request"}`
	}
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(answer)), Request: r}, nil
}

// Acquire wakes the program.
func (p *blog) Acquire(context.Context, id.Deployment) (*endpoint.Endpoint, error) {
	p.woken.Add(1)
	p.asleep.Lock() // waits until it is awake
	defer p.asleep.Unlock()
	return &endpoint.Endpoint{Tasks: p, Release: func() {}}, nil
}

// Awake implements wordpress.Programs.
func (p *blog) Awake(id.Deployment) (*endpoint.Endpoint, bool) { return nil, false }

// Note implements wordpress.Programs.
func (p *blog) Note(site.ID, string) {}

// Renew implements wordpress.Programs.
func (p *blog) Renew(site.ID) {}

func (p *blog) Quiet(site.ID, time.Duration) (release func()) { return func() {} }

// FatalErrors implements wordpress.Programs.
func (p *blog) FatalErrors(context.Context, site.ID, db.Time) []string { return nil }

// liveWordPress creates a live WordPress whose program is p.
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

// old makes the stored state of every WordPress an hour old.
func (w *world) old() {
	w.t.Helper()
	must(w.t, w.db.Write(w.t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(w.t.Context(), `UPDATE wordpress_sites SET facts_at = facts_at - 3600000`)
		return err
	}))
}

// A WordPress page shows the stored state and doesn't wake the program. An old state is refreshed in the background.
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
	b.get(at).want(t, 200, "Reading the current state", live).lacks(t, `data-test="wordpress-purge"`)
	woken(0, "the first visit")
	b.get(at+"/state/follow").want(t, 200, "event: end")
	woken(1, "behind the first visit")
	b.get(at).want(t, 200, "Harbor blog", "PHP 8.4.1", "Shop 2.1", "As of", `data-test="wordpress-purge"`).lacks(t, live)
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

// The live page of a WordPress that fails shows the error and retries until it answers.
func TestWordPressPageAsksAgain(t *testing.T) {
	t.Parallel()
	var p blog
	w := p.world(t)
	u := w.user("ada@example.test", false)
	b := w.as(u.Email)
	at := w.liveWordPress(u, b)
	p.broken.Store(true)
	ended := make(chan reply, 1)
	go func() { ended <- b.get(at + "/state/follow") }()
	wait.Until(t, "it is asked again", func() bool { return p.woken.Load() >= 2 })
	p.broken.Store(false)
	(<-ended).want(t, 200, "the plugin Shop ended the request", "event: end")
	b.get(at).want(t, 200, "Harbor blog").lacks(t, "the plugin Shop ended the request")
}

// contentOf returns a WordPress's answer about its content.
func contentOf(posts, newer int, blogname string) string {
	return fmt.Sprintf(`{"posts": [{"type": "post", "name": "Posts", "count": %d, "changed": 1700000000, "newer": %d}, {"type": "shop_order", "name": "Orders", "count": %d, "newer": %d}],
		"comments": {"count": 4}, "users": {"count": 2, "changed": 1700000000}, "options": {"blogname": %q, "<b>hostile</b>": %q}}`, posts, newer, newer, newer/4, blogname, blogname)
}

// Before a push the page shows, from both sites' current state, what is newer in the target than the copy, and what
// differs.
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

// operations returns the kinds of a site's operations, newest first.
func (w *world) operations(u account.User, id string) (kinds []string) {
	w.t.Helper()
	list, err := w.dash.WordPress.Operations(w.t.Context(), u.Owner, site.ID(id))
	must(w.t, err)
	for _, o := range list {
		kinds = append(kinds, o.Kind)
	}
	return kinds
}

// Buttons change the selected plugins and themes. Impossible actions are explained, and deletions ask for confirmation.
func TestExtensionsPage(t *testing.T) {
	t.Parallel()
	var p blog
	w := p.world(t)
	u := w.user("ada@example.test", false)
	b := w.as(u.Email)
	at := w.liveWordPressNamed(u, b, "Press")
	id := strings.Split(at, "/")[2]
	p.content.Store("press", contentOf(1280, 0, "a"))
	b.get(at+"?refresh=1").want(
		t, 200, `data-test="plugins"`, "2.1 available", "&lt;i&gt;Old&lt;/i&gt;", "Disable automatic updates",
		"This replaces 1,280 posts, 4 comments and 2 users", "last changed",
	).lacks(t, "<i>Old", "update and delete them there")
	b.post(at+"/plugins", "action", "activate").want(t, 422, "No plugin is selected")
	b.post(at+"/plugins", "action", "explode", "slug", "shop").want(t, 422, "Invalid action")
	b.post(at+"/themes", "action", "deactivate", "slug", "harbor").want(t, 422, "Invalid action")
	b.post(at+"/plugins", "action", "activate", "slug", "../../etc").want(t, 422, "Invalid plugin or theme")
	b.post(at+"/plugins", "action", "delete", "slug", "old-one").want(t, 200, "Delete 1 plugin?", "&lt;i&gt;Old&lt;/i&gt;", `name="confirmed"`).lacks(t, "<i>Old")
	b.post(at+"/plugins", "action", "delete", "slug", "shop").want(t, 409, "Shop is active", "Nothing was deleted")
	b.post(at+"/themes", "action", "delete", "slug", "harbor").want(t, 409, "Harbor is active")
	if got := w.operations(u, id); len(got) != 0 {
		t.Fatalf("refused or unconfirmed actions started %v", got)
	}
	b.post(at+"/plugins", "action", "delete", "slug", "old-one", "confirmed", "1").to(t, at)
	if got := w.operations(u, id); len(got) != 1 || got[0] != "wordpress.extensions" {
		t.Errorf("operations: %v", got)
	}
	b.post(at+"/plugins", "action", "activate", "slug", "old-one").want(t, 409) // one at a time
	b.get("/account/audit").want(t, 200, "Plugins or themes changed", "delete: plugin old-one")
}

// Users are listed as WordPress reports them, escaped, and changed one at a time.
func TestWordPressUsersPage(t *testing.T) {
	t.Parallel()
	var p blog
	w := p.world(t)
	u := w.user("ada@example.test", false)
	b := w.as(u.Email)
	at := w.liveWordPressNamed(u, b, "Press")
	id := strings.Split(at, "/")[2]
	p.users.Store(`{"users": [{"id": 1, "login": "ada", "email": "ada@example.test", "name": "<script>x</script>", "roles": ["administrator"], "registered": 1700000000},
		{"id": 7, "login": "grace", "email": "g@example.test", "name": "Grace", "roles": ["shop_manager"], "registered": 0}], "total": 2}`)
	at += "/users"
	b.get(at).want(t, 200, "2 users", "&lt;script&gt;x", "<option>shop_manager", `value="7"`).lacks(t, "<script>x")
	b.post(at, "action", "role", "role", "editor").want(t, 422, "No user is selected")
	b.post(at, "action", "explode", "user", "7").want(t, 422, "Invalid action")
	b.post(at, "action", "role", "user", "7", "role", "no such role").want(t, 422, "Invalid role")
	b.post(at+"/create", "login", "x", "email", "x@example.test", "role", "editor").want(t, 422, "Invalid username")
	b.post(at+"/create", "login", "grace", "email", "nowhere", "role", "editor").want(t, 422, "Invalid email")
	if got := w.operations(u, id); len(got) != 0 {
		t.Fatalf("refused actions started %v", got)
	}
	b.post(at, "action", "reset", "user", "7").to(t, at)
	if got := w.operations(u, id); len(got) != 1 || got[0] != "wordpress.user" {
		t.Errorf("operations: %v", got)
	}
	b.get(at).want(t, 200, at+"/follow")
	b.get("/account/audit").want(t, 200, "WordPress user changed", "password reset of user 7")
	p.broken.Store(true)
	b.get(at).want(t, 200, "WordPress didn't respond", "the plugin Shop ended the request")
}

// upload submits a form with a file, as a browser does without scripts.
func (b *browser) upload(path, confirm, name, text string) reply {
	b.w.t.Helper()
	var body bytes.Buffer
	m := multipart.NewWriter(&body)
	must(b.w.t, m.WriteField("confirm", confirm))
	f, err := m.CreateFormFile("archive", name)
	must(b.w.t, err)
	_, err = io.WriteString(f, text)
	must(b.w.t, err)
	must(b.w.t, m.Close())
	r, err := http.NewRequestWithContext(b.w.t.Context(), http.MethodPost, b.w.srv.URL+path, &body)
	must(b.w.t, err)
	r.Header.Set("Content-Type", m.FormDataContentType())
	resp, err := b.client.Do(r)
	must(b.w.t, err)
	defer resp.Body.Close()
	said, err := io.ReadAll(resp.Body)
	must(b.w.t, err)
	return reply{resp.StatusCode, resp.Header, string(said)}
}

// An archive is read only after the site's name was typed, and kept only if its import starts.
func TestUploadArchive(t *testing.T) {
	t.Parallel()
	var p blog
	w := p.world(t)
	u := w.user("ada@example.test", false)
	b := w.as(u.Email)
	at := w.liveWordPressNamed(u, b, "Press")
	id := strings.Split(at, "/")[2]
	imports := filepath.Join(p.dir, "imports")
	kept := func() int {
		list, _ := os.ReadDir(imports)
		return len(list)
	}
	b.get(at+"?refresh=1").want(t, 200, `enctype="multipart/form-data"`, at+"/upload")
	b.upload(at+"/upload", "press", "site.tar.gz", "data").want(t, 422, "type Press to confirm")
	b.upload(at+"/upload", "Press", "", "").want(t, 422, "No archive is selected")
	b.upload(at+"/upload", "Press", "site.tar.gz", "").want(t, 422, "It is empty")
	b.upload(at+"/upload", strings.Repeat("x", 100_000), "site.tar.gz", "data").want(t, 422, "A field is too long")
	b.post(at+"/upload", "confirm", "Press").want(t, 422, "No archive is selected")
	w.user("eve@example.test", false)
	if r := w.as("eve@example.test").upload(at+"/upload", "Press", "site.tar.gz", "data"); r.status != 404 {
		t.Errorf("another user's site: %d", r.status)
	}
	if n := kept(); n != 0 || len(w.operations(u, id)) != 0 {
		t.Fatalf("refused uploads left %d archives", n)
	}
	b.upload(at+"/upload", "Press", "site.tar.gz", "data").to(t, at)
	if got := w.operations(u, id); len(got) != 1 || got[0] != "wordpress.import" || kept() != 1 {
		t.Errorf("operations %v, %d archives", got, kept())
	}
	b.upload(at+"/upload", "Press", "site.tar.gz", "data").want(t, 409, "already running")
	if n := kept(); n != 1 {
		t.Errorf("%d archives are kept, want that of the import", n)
	}
}

// Root files are added, edited and deleted on their own page without waking the program. The page cache's settings are
// saved with the site's other settings.
func TestWordPressRootFiles(t *testing.T) {
	t.Parallel()
	var p blog
	w := p.world(t)
	u := w.user("ada@example.test", false)
	b := w.as(u.Email)
	at := w.liveWordPress(u, b)
	root := at + "/root"
	b.get(root).want(t, 200, "No root files")
	b.post(root, "path", "/ads.txt", "content", "one\r\ntwo").to(t, root)
	b.post(root, "path", "_redirects", "content", "/old /new 301").to(t, root)
	b.post(root, "path", "x.php", "content", "<?php").want(t, 422, "Invalid root file")
	b.post(root, "path", "_headers", "content", "X-Frame-Options: DENY").want(t, 422, "can&#39;t be applied")
	b.get(root+"?path=ads.txt").want(t, 200, "_redirects", "one\ntwo", "7 bytes")
	b.post(root, "path", "ads.txt", "action", "delete").to(t, root)
	b.get(root).want(t, 200, "_redirects").lacks(t, "7 bytes")
	if n := p.woken.Load(); n != 0 {
		t.Errorf("woken %d times", n)
	}
	b.get(at + "/state/follow")
	b.post(at+"/settings", "excluded_cookies", "currency\r\nlang", "excluded_paths", "/prices/*", "ignored_query", "ref").to(t, at)
	b.get(at).want(t, 200, "currency\nlang", "/prices/*")
	b.post(at+"/settings", "excluded_paths", "prices").want(t, 422, "Invalid pageCache.excludedPaths")
}
