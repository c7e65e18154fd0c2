// Package wordpress owns the end-to-end tests of WordPress sites, with the real program, WordPress, PHP-FPM and
// MariaDB: sites are installed without a public installer, logged into with a link, isolated from each other, and
// consistent after a kill.
package wordpress

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"slipway/e2e/world"
	"slipway/internal/platform/db"
	"slipway/internal/tenant/domain/dnstest"
	"slipway/internal/tenant/mail/mailtest"
)

var binary string

func TestMain(m *testing.M) {
	// These tests spend half of their time waiting for WordPress events and automatic updates, so run more of them in
	// parallel.
	if err := flag.Set("test.parallel", strconv.Itoa(2*runtime.GOMAXPROCS(0))); err != nil {
		panic(err)
	}
	os.Exit(world.Main(m, &binary))
}

// patience limits how long a condition may take. Only a broken program uses it up.
const patience = 10 * time.Minute

// installation is an installation with a user.
type installation struct {
	*world.World
	t    *testing.T
	key  string
	core string // Debian's WordPress with a version that the tests choose
	zone *dnstest.Zone
}

// offer makes Debian's WordPress, with this version, the core of new sites.
func (h *installation) offer(version string) {
	h.t.Helper()
	ok(h.t, world.DebianWordPress(h.core, version))
	languages := filepath.Join(h.core, "wp-content/languages")
	ok(h.t, os.MkdirAll(languages, 0o755))
	ok(
		h.t,
		os.WriteFile(
			filepath.Join(languages, "de_DE.mo"),
			translation([2]string{"", "Content-Type: text/plain; charset=UTF-8\n"}, [2]string{"Hello world!", "Hallo Welt!"}),
			0o644,
		),
	)
}

// story runs one part of a test as a subtest.
func (h *installation) story(t *testing.T, name string, tell func(h *installation)) {
	t.Run(name, func(t *testing.T) {
		begun := time.Now()
		own := *h
		own.t = t
		defer func() {
			if t.Failed() {
				t.Logf("the program's last words:\n%s", h.Log(2500))
			}
		}()
		tell(&own)
		t.Logf("%s took %s", name, time.Since(begun).Round(time.Millisecond))
	})
}

// A WordPress site works from its creation to its deletion, with everything that its owner can do to it.
func TestWordPress(t *testing.T) {
	t.Parallel()
	h := install(t)
	blog := h.ready(h.create("Blog").ID)
	h.story(t, "life", func(h *installation) { h.life(blog) })
	h.story(t, "network", func(h *installation) { h.network(blog) })
	if h.OwnServers() { // otherwise sites share the operator's Redis
		h.story(t, "objects", func(h *installation) { h.objects(blog) })
	}
	h.story(t, "update", func(h *installation) { h.updates(blog) })
	h.story(t, "replace", func(h *installation) { h.replaces(blog) })
	h.story(t, "copy", func(h *installation) { h.copies(blog) })
	h.story(t, "archives", func(h *installation) { h.archives(blog) })
	h.story(t, "domain", func(h *installation) { h.moves(blog) })
	h.story(t, "end", func(h *installation) { h.ends(blog) })
}

// Imported, pushed and deployed content arrives completely or not at all, even if the service or database is killed.
// Hostile archives do no harm.
func TestContentComes(t *testing.T) {
	t.Parallel()
	world.Long(t)
	h := install(t)
	blog, two := h.create("Blog"), h.create("Two")
	blog, two = h.ready(blog.ID), h.ready(two.ID)
	h.caches(blog)
	h.story(t, "tables", func(h *installation) { h.tables(two, blog) })
	h.story(t, "console", func(h *installation) { h.console(two) })
	h.story(t, "killed while copied", func(h *installation) { h.killedWhileCopied(blog, two) })
	h.story(t, "hostile", func(h *installation) { h.hostile(two, blog) })
	if h.OwnServers() { // otherwise sites share the operator's server
		h.story(t, "database killed", func(h *installation) { h.databaseKilled(blog) })
	}
	h.story(t, "repository", (*installation).repository)
	h.story(t, "example", (*installation).example)
	h.story(t, "extensions", (*installation).extensions)
	h.story(t, "gone", (*installation).gone)
}

// Languages, plugins, themes and updates can be installed into a WordPress, which works even if the service is killed
// meanwhile.
func TestInstalledIntoWordPress(t *testing.T) {
	t.Parallel()
	world.Long(t)
	h := install(t)
	two := h.ready(h.createIn("de_DE", "Two").ID)
	h.story(t, "language", func(h *installation) { h.language(two) })
	h.story(t, "manage", func(h *installation) { h.manages(two) })
	h.caches(two)
	h.story(t, "killed while updated", func(h *installation) { h.killedWhileUpdated(two) })
	h.story(t, "killed while installed", (*installation).killedWhileInstalled)
	h.story(t, "gone", (*installation).gone)
}

func install(t *testing.T) *installation {
	t.Helper()
	w, err := world.New(binary, t.TempDir())
	ok(t, err)
	h := &installation{World: w, t: t, core: filepath.Join(w.Dir, "core"), zone: dnstest.New(t)}
	h.offer("6.1.90")
	t.Cleanup(w.Close)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the program's last words:\n%s", w.Log(3000))
		}
	})
	w.Flags = append(w.Flags, "--wordpress-source", h.core, "--wp-cli", h.wpCLI(), "--dns-resolver", h.zone.Addr)
	h.key, err = w.User("ada@example.test")
	ok(t, err)
	ok(t, w.Start(t.Context()))
	return h
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// call sends an API request, and repeats it on 503, which a busy machine may cause.
func (h *installation) call(method, path string, body, out any) {
	h.t.Helper()
	var answer world.Answer
	var err error
	h.until("the answer to "+method+" "+path, func() bool {
		answer, err = h.Do(context.Background(), world.Request{Method: method, Path: path, Key: h.key, Body: body})
		return err != nil || answer.Status != http.StatusServiceUnavailable
	})
	if err == nil {
		err = answer.Err()
	}
	if err == nil && out != nil {
		err = answer.JSON(out)
	}
	if err != nil {
		h.t.Fatalf("%s %s: %v", method, path, err)
	}
}

func (h *installation) until(what string, look func() bool) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), patience)
	defer cancel()
	if err := world.Until(ctx, 50*time.Millisecond, func() (bool, error) { return look(), nil }); err != nil {
		h.t.Fatalf("it never came: %s", what)
	}
}

type siteBody struct {
	ID, Slug, Status, StatusReason, URL string
	DeploymentID                        string
}

// create creates a WordPress site and returns immediately.
func (h *installation) create(name string) siteBody {
	h.t.Helper()
	return h.createIn("", name)
}

// createIn creates a WordPress site in a language.
func (h *installation) createIn(locale, name string) siteBody {
	h.t.Helper()
	body := map[string]any{"name": name, "type": "wordpress"}
	if locale != "" {
		body["wordpress"] = map[string]any{"locale": locale}
	}
	var made struct{ Data siteBody }
	h.call("POST", "/sites", body, &made)
	if made.Data.Status != "pending" {
		h.t.Errorf("a new site is %s", made.Data.Status)
	}
	return made.Data
}

// ready waits until a site is provisioned, and fails the test if that fails.
func (h *installation) ready(id string) (s siteBody) {
	h.t.Helper()
	h.until("the site is provisioned", func() bool {
		_ = h.Call(context.Background(), h.key, "GET", "/sites/"+id, nil, &s)
		return s.Status == "active" || s.Status == "error"
	})
	if s.Status != "active" {
		h.t.Fatalf("the site is %s: %s", s.Status, s.StatusReason)
	}
	h.until("the edge knows the site", func() bool { // the edge learns of the site a moment later
		status, _, err := h.asks(s.URL + "/")
		return err == nil && status == 200
	})
	return s
}

// asks requests a page as a visitor. No response is returned as an error.
func (h *installation) asks(address string) (status int, text string, err error) {
	h.t.Helper()
	c, err := h.Browser()
	ok(h.t, err)
	defer c.CloseIdleConnections()
	a, err := world.Read(c.Get(address))
	return a.Status, string(a.Body), err
}

// visitor is a browser with its own cookies.
type visitor struct {
	h    *installation
	http *http.Client
	base string
}

func (h *installation) visitor(base string) *visitor {
	h.t.Helper()
	c, err := h.Browser()
	ok(h.t, err)
	c.Jar, err = cookiejar.New(nil)
	ok(h.t, err)
	return &visitor{h, world.Somewhere(c), base}
}

// do requests a path or a URL.
func (v *visitor) do(method, path string, body io.Reader, header ...string) (int, http.Header, string) {
	v.h.t.Helper()
	if !strings.HasPrefix(path, "https://") {
		path = v.base + path
	}
	r, err := http.NewRequestWithContext(v.h.t.Context(), method, path, body)
	ok(v.h.t, err)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	a, err := world.Read(v.http.Do(r))
	ok(v.h.t, err)
	return a.Status, a.Header, string(a.Body)
}

func (v *visitor) get(path string) (int, http.Header, string) {
	v.h.t.Helper()
	return v.do("GET", path, nil)
}

// login logs the owner in with a login link, and returns the browser and the link.
func (h *installation) login(s siteBody) (*visitor, string) {
	h.t.Helper()
	var l struct{ URL string }
	h.call("POST", "/sites/"+s.ID+"/wordpress/login", nil, &l)
	v := h.visitor(s.URL)
	status, header, _ := v.get(l.URL)
	if status != 302 || header.Get("Location") != s.URL+"/wp-admin/" {
		h.t.Fatalf("the link answers %d to %s", status, header.Get("Location"))
	}
	return v, l.URL
}

// rest calls WordPress's REST API as the logged-in user.
func (v *visitor) rest(method, path, kind string, body io.Reader, out any, header ...string) {
	v.h.t.Helper()
	_, _, nonce := v.get("/wp-admin/admin-ajax.php?action=rest-nonce")
	status, _, text := v.do(method, "/wp-json/wp/v2"+path, body, append([]string{"X-WP-Nonce", nonce, "Content-Type", kind}, header...)...)
	if status/100 != 2 {
		v.h.t.Fatalf("%s %s: %d %.300s", method, path, status, text)
	}
	ok(v.h.t, json.Unmarshal([]byte(text), out))
}

// picture is a PNG of one pixel.
var picture, _ = base64.StdEncoding.DecodeString(
	"iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
)

// life is the first part of a WordPress's life: the owner logs in with a link and publishes a post with a picture, and
// the page is cached and purged. Private paths are closed to visitors, and a deleted site leaves nothing behind.
func (h *installation) life(s siteBody) {
	t := h.t
	stranger := h.visitor(s.URL)
	if status, _, text := stranger.get("/"); status != 200 || !strings.Contains(text, "<title>Blog</title>") {
		t.Fatalf("the front page: %d %.300s", status, text)
	}

	owner, link := h.login(s)
	if status, _, text := owner.get("/wp-admin/"); status != 200 || !strings.Contains(text, "Dashboard") {
		t.Errorf("wp-admin: %d %.200s", status, text)
	}
	if status, _, text := owner.get("/wp-admin/options-permalink.php"); status != 200 || !strings.Contains(text, "/%postname%/") ||
		strings.Contains(text, "/index.php/") {
		t.Errorf("permalinks with index.php are proposed (%d)", status)
	}
	if status, _, _ := h.visitor(s.URL).get(link); status != 403 {
		t.Errorf("the link works twice: %d", status)
	}
	if status, _, _ := h.visitor(s.URL).get("/wp-login.php?slipway-login=" + strings.Repeat("A", 52)); status != 403 {
		t.Errorf("a made-up link: %d", status)
	}

	// A post with a picture, as visitors see it: from the cache, and after a purge.
	var image struct {
		Source string `json:"source_url"`
		ID     int
	}
	owner.rest(
		"POST",
		"/media",
		"image/png",
		strings.NewReader(string(picture)),
		&image,
		"Content-Disposition",
		`attachment; filename="dot.png"`,
	)
	if status, header, text := stranger.get(image.Source); status != 200 || header.Get("Content-Type") != "image/png" ||
		text != string(picture) {
		t.Errorf("the picture %s: %d %s", image.Source, status, header.Get("Content-Type"))
	}
	stranger.get("/")
	if _, header, _ := stranger.get("/"); header.Get("X-Cache") != "HIT" && h.Nodes() == 1 {
		t.Errorf("the front page is not cached: %v", header)
	}
	h.until("another node has heard of the picture", func() bool {
		_, header, _ := stranger.get("/")
		return header.Get("X-Cache") == "HIT"
	})
	if _, header, _ := owner.get("/"); header.Get("X-Cache") != "" {
		t.Errorf("a logged-in user gets a cached page: %v", header)
	}
	var post struct{ Link string }
	text, _ := json.Marshal(map[string]any{
		"title":   "News of the day",
		"content": "Hello <img src='" + image.Source + "'>",
		"status":  "publish",
	})
	owner.rest("POST", "/posts", "application/json", strings.NewReader(string(text)), &post)
	if post.Link != s.URL+"/news-of-the-day/" {
		t.Errorf("the post is at %s", post.Link)
	}
	h.renews(stranger, "/", "News of the day")
	if status, _, text := stranger.get("/news-of-the-day/"); status != 200 || !strings.Contains(text, "dot.png") {
		t.Errorf("the post: %d", status)
	}
	if _, header, _ := stranger.get("/news-of-the-day/"); header.Get("X-Cache") != "HIT" && h.Nodes() == 1 {
		t.Errorf("the post is not cached: %v", header)
	}
	h.call("POST", "/sites/"+s.ID+"/wordpress/purge-cache", map[string]any{"paths": []string{"/news-of-the-day/"}}, nil)
	h.renews(stranger, "/news-of-the-day/", "")
	owner.rest("POST", "/posts", "application/json", strings.NewReader(`{"title": "Not yet", "status": "draft"}`), &post)
	// Another node may purge the page only now, once.
	if _, header, _ := stranger.get("/"); header.Get("X-Cache") != "HIT" && h.Nodes() == 1 {
		t.Errorf("another page went with it, or with a draft: %v", header)
	}

	const styles = "/wp-includes/css/dist/block-library/style.css"
	_, whole, plain := stranger.do("GET", styles, nil, "Accept-Encoding", "identity")
	h.until("a style sheet goes out compressed, soon after it was unpacked", func() bool {
		status, header, text := stranger.do("GET", styles, nil, "Accept-Encoding", "gzip, br")
		return status == 200 && header.Get("Content-Encoding") == "br" && header.Get("Vary") == "Accept-Encoding" &&
			header.Get("Etag") != whole.Get("Etag") &&
			len(text) < len(plain)/4
	})

	h.closed(s, stranger)

	var info struct {
		Version, PHPVersion string
		Themes              []struct {
			Slug   string
			Active bool
		}
	}
	h.call("GET", "/sites/"+s.ID+"/wordpress", nil, &info)
	if info.Version == "" || info.PHPVersion == "" || len(info.Themes) == 0 {
		t.Errorf("the API describes the site as %+v", info)
	}
}

// renews waits until a page is made again, with a text. The node that made the change must do so immediately, another
// node soon.
func (h *installation) renews(v *visitor, path, want string) {
	h.t.Helper()
	var header http.Header
	var text string
	look := func() bool {
		_, header, text = v.get(path)
		return header.Get("X-Cache") == "MISS" && strings.Contains(text, want)
	}
	switch {
	case look():
	case h.Nodes() > 1:
		h.until(path+" is made anew", look)
	default:
		h.t.Errorf("%s after a change: %s, has %q: %v", path, header.Get("X-Cache"), want, strings.Contains(text, want))
	}
}

// ends kills the program, checks the site after the restart, and deletes it.
func (h *installation) ends(s siteBody) {
	t := h.t
	// After SIGKILL, the next request gets the site again. From now on there is a mail server.
	mails := mailtest.New(t, mailtest.Config{})
	h.Kill()
	h.Flags = append(h.Flags, "--smtp", mails.Addr, "--smtp-from", "Sites <sites@operator.test>", "--base-url", "http://"+h.Listen)
	ok(t, h.Start(t.Context()))
	if status, _, text := h.visitor(s.URL).get("/news-of-the-day/"); status != 200 || !strings.Contains(text, "News of the day") {
		t.Errorf("after a kill: %d", status)
	}
	h.resetsPassword(s, mails)
	h.mailsUsers(s, mails)
	h.gone()
}

// gone deletes all sites and checks that nothing remains of them.
func (h *installation) gone() {
	t := h.t
	var all struct{ Data []siteBody }
	h.call("GET", "/sites?limit=100", nil, &all)
	if n := h.uids(all.Data); n == 0 {
		t.Error("no site has a uid")
	}
	for _, x := range all.Data {
		h.call("DELETE", "/sites/"+x.ID, nil, nil)
	}
	for _, x := range all.Data {
		h.until("the deleted site is not served", func() bool {
			status, _, err := h.asks(x.URL + "/")
			return err != nil || status != 200
		})
	}
	var left []string
	defer func() {
		if len(left) > 0 {
			t.Logf("left of them:\n%s", strings.Join(left, "\n"))
		}
	}()
	h.until("nothing is left of the sites", func() bool {
		left = nil
		for _, x := range all.Data {
			left = append(left, h.left(x.ID)...)
		}
		return len(left) == 0
	})
	h.until("the uids of the sites are free", func() bool { return h.uids(all.Data) == 0 })
}

// uids returns the number of sites to which the host has assigned a uid.
func (h *installation) uids(sites []siteBody) (n int) {
	h.t.Helper()
	for _, s := range sites {
		n += h.count(`SELECT COUNT(*) FROM build_uids WHERE site_id = $1`, s.ID)
	}
	return n
}

// count runs a query on the installation's database.
func (h *installation) count(q string, args ...any) (n int) {
	h.t.Helper()
	d, err := db.Open(h.t.Context(), db.Config{URL: h.Database()})
	ok(h.t, err)
	defer d.Close()
	ok(h.t, d.QueryRow(h.t.Context(), q, args...).Scan(&n))
	return n
}

// closed checks paths that visitors can't access.
func (h *installation) closed(s siteBody, stranger *visitor) {
	t := h.t
	t.Helper()
	for name, text := range map[string]string{
		"uploads/evil.php":     "<?php echo 'owned';",
		"uploads/evil.phtml":   "<?php echo 'owned';",
		"plugins/x/direct.php": "<?php echo 'owned';",
		"debug.log":            "secret",
		"database/.ht.sqlite":  "secret",
		"backup-1/db.sql":      "secret",
		"uploads/dump.sql":     "secret",
		"uploads/.secret":      "secret",
		"uploads/evil.jpg/x":   "secret",

		"uploads/private/.htaccess":       "<IfModule mod_authz_core.c>\nRequire all denied\n</IfModule>",
		"uploads/private/deep/a.pdf":      "secret",
		"uploads/woocommerce_uploads/a":   "secret",
		"uploads/edd/2026/a.zip":          "secret",
		"plugins/x/log/.htaccess":         "Deny from all",
		"plugins/x/log/today.txt":         "secret",
		"uploads/edd/2026/a.png":          "a picture",
		"uploads/woocommerce_uploads.png": "a picture",
	} {
		h.plant(s, name, text)
	}
	for _, path := range []string{
		"/wp-config.php", "/wp-admin/install.php", "/wp-admin/install.php/x", "/WP-ADMIN/install.php",
		"//wp-admin//install.php", "/wp-admin/setup-config.php", "/wp-admin/upgrade.php", "/xmlrpc.php",
		"/wp-cron.php", "/wp-content/uploads/evil.php", "/wp-content/uploads/evil.php/x",
		"/wp-content/uploads/evil.phtml", "/wp-content/plugins/x/direct.php", "/wp-content/debug.log",
		"/wp-content/database/.ht.sqlite", "/wp-content/backup-1/db.sql", "/wp-content/uploads/dump.sql",
		"/wp-content/uploads/.secret", "/.env", "/.git/config", "/slipway/plugin.php", "/tasks/login.php",
		"/wp-includes/version.php", "/?author=1", "/wp-json/wp/v2/users", "/wp-json/wp/v2/users/1",
		"/wp-sitemap-users-1.xml", "/readme.html", "/wp-content/uploads/private/deep/a.pdf", "/wp-content/uploads/woocommerce_uploads/a",
		"/wp-content/uploads/edd/2026/a.zip", "/wp-content/plugins/x/log/today.txt",
	} {
		status, _, text := stranger.get(path)
		if status != 404 && status != 401 && status != 403 || strings.Contains(text, "owned") || strings.Contains(text, "secret") {
			t.Errorf("%s is open: %d %.100q", path, status, text)
		}
	}
	for _, path := range []string{"/wp-content/uploads/edd/2026/a.png", "/wp-content/uploads/woocommerce_uploads.png"} {
		if status, _, text := stranger.get(path); status != 200 || text != "a picture" {
			t.Errorf("%s is closed: %d", path, status)
		}
	}
	if status, _, text := stranger.get("/wp-json/?rest_route=/wp/v2/users"); status == 200 && strings.Contains(text, `"slug"`) {
		t.Errorf("users are named: %.200s", text)
	}
	// Login attempts are limited, whatever the password is.
	throttled := false
	for range 15 {
		form := url.Values{"log": {"ada"}, "pwd": {"wrong"}, "wp-submit": {"Log In"}}
		status, header, text := stranger.do(
			"POST",
			"/wp-login.php",
			strings.NewReader(form.Encode()),
			"Content-Type",
			"application/x-www-form-urlencoded",
		)
		if strings.Contains(text, "is not registered") || strings.Contains(text, "password you entered for") {
			t.Errorf("the answer names the user: %.300s", text)
		}
		if throttled = status == 429 && header.Get("Retry-After") != ""; throttled {
			break
		}
	}
	if !throttled {
		t.Error("logging in is not throttled")
	}
}

// left lists the files and databases that remain of a site.
func (h *installation) left(id string) (list []string) {
	for _, dir := range h.Holds() {
		_ = filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
			if err == nil && strings.Contains(filepath.Base(path), id) {
				list = append(list, path)
			}
			return nil
		})
	}
	schemas, _ := filepath.Glob(h.Schemas())
	if !h.OwnServers() { // after a kill, a database that was being loaded is dropped only a day later
		schemas = slices.DeleteFunc(schemas, func(dir string) bool {
			return h.count(`SELECT COUNT(*) FROM database_scratch WHERE schema_name = $1`, filepath.Base(dir)) > 0
		})
	}
	return append(list, schemas...)
}

// hostilePlugin tries to read files, open connections and fill its storage.
const hostilePlugin = `<?php
if (isset($_GET['hostile'])) add_action('init', function () {
	global $wpdb;
	$out = [];
	foreach (['/etc/shadow', '/home', '/root', $_GET['dir']] as $f) $out['read ' . $f] = @file_get_contents($f) !== false || @scandir($f) !== false;
	foreach (['wp-config.php', 'index.php', 'wp-includes/version.php', '../slipway/plugin.php'] as $f) $out['write ' . $f] = @file_put_contents(ABSPATH . $f, 'x') !== false;
	$out['databases'] = $wpdb->get_col("SHOW DATABASES");
	$out['users'] = $wpdb->get_col("SELECT user FROM mysql.user");
	$out['other'] = [];
	foreach (explode(',', $_GET['schemas']) as $s) if ($s !== DB_NAME) $out['other'] = array_merge($out['other'], $wpdb->get_col("SELECT option_value FROM $s.wp_options LIMIT 1"));
	$out['schema'] = DB_NAME;
	$m = mysqli_init();
	foreach (['root', 'slipway', 'mysql'] as $u) $out['as ' . $u] = @mysqli_connect('localhost', $u, '', '', 0, '/run/mysqld/mysqld.sock') !== false;
	foreach (explode(',', $_GET['ports']) as $port) $out['dial ' . $port] = @fsockopen('127.0.0.1', (int) $port, $e, $s, 1) !== false;
	foreach (explode(',', $_POST['sockets'] ?? '') as $path) if ($path) $out['socket ' . $path] = @stream_socket_client('unix://' . $path, $e, $s, 1) !== false;
	$n = 0; while ($n < 3000 && function_exists('proc_open') && ($p[] = @proc_open(['sleep', '30'], [], $pipes))) { if (!end($p)) break; $n++; }
	$out['processes'] = $n;
	foreach ($p ?? [] as $x) if ($x) proc_terminate($x, 9);
	if (isset($_GET['fill'])) wp_mkdir_p(WP_CONTENT_DIR . '/uploads');
	if (isset($_GET['fill'])) for ($i = 0; $i < 100; $i++) file_put_contents(WP_CONTENT_DIR . '/uploads/fill' . $i, str_repeat('x', 8 << 20));
	echo json_encode($out); exit;
});
`

// hostile checks that code in a WordPress can't reach another site or the host.
func (h *installation) hostile(a, b siteBody) {
	t := h.t
	h.plant(a, "mu-plugins/hostile.php", hostilePlugin)
	var schemas []string // of all sites
	found, _ := filepath.Glob(h.Schemas())
	for _, dir := range found {
		schemas = append(schemas, filepath.Base(dir))
	}
	if len(schemas) < 2 {
		t.Fatalf("there are only the databases %v", schemas)
	}
	_, port, _ := strings.Cut(h.Listen, ":")
	query := url.Values{"hostile": {"1"}, "dir": {h.Data}, "schemas": {strings.Join(schemas, ",")}, "ports": {port}}
	sockets := url.Values{"sockets": {strings.Join(h.sockets(), ",")}}
	status, _, text := h.visitor(a.URL).do(
		"POST",
		"/?"+query.Encode(),
		strings.NewReader(sockets.Encode()),
		"Content-Type",
		"application/x-www-form-urlencoded",
	)
	var out map[string]any
	if err := json.Unmarshal([]byte(text), &out); err != nil || status != 200 {
		t.Fatalf("%d %.500s", status, text)
	}
	for what, got := range out {
		switch {
		case what == "databases":
			for _, name := range got.([]any) {
				if name != out["schema"] && name != "information_schema" {
					t.Errorf("the site can see the database %v", name)
				}
			}
		case what == "users" || what == "other":
			if len(got.([]any)) > 0 {
				t.Errorf("%s: %v", what, got)
			}
		case what == "processes":
			if n := got.(float64); n < 10 || n > 512 {
				t.Errorf("the site started %v processes of 512", n)
			}
		case got == true:
			t.Errorf("the site could %s", what)
		}
	}
	if status, _, _ := h.visitor(b.URL).get("/?h=1"); status != 200 {
		t.Errorf("the other site answers %d", status)
	}

	// It fills its storage: the limit stops it, and other sites aren't affected.
	h.call("PATCH", "/sites/"+a.ID, map[string]any{"run": map[string]any{"storageMiB": 100}}, nil)
	h.restart(a)
	query.Set("fill", "1")
	status, _, _ = h.visitor(a.URL).get("/?" + query.Encode())
	if status == 200 {
		t.Error("it may write 800 MiB")
	}
	var size int64
	_ = filepath.WalkDir(h.content(a, ""), func(_ string, e os.DirEntry, err error) error {
		if info, e := e.Info(); err == nil && e == nil {
			size += info.Size()
		}
		return nil
	})
	if size > 400<<20 { // more may be written between two checks of the limit
		t.Errorf("the site has stored %d MiB of 100", size>>20)
	}
	if status, _, _ := h.visitor(b.URL).get("/?h=2"); status != 200 {
		t.Errorf("the other site answers %d", status)
	}
	h.until("the site answers again", func() bool {
		status, _, _ := h.visitor(a.URL).get("/?h=3")
		return status == 200
	})
	h.logged(a, "Storage is full")
}

// sockets lists the installation's Unix sockets: those of the sites' PHP and databases.
func (h *installation) sockets() (list []string) {
	h.t.Helper()
	for _, dir := range h.Holds() {
		_ = filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
			if err == nil && e.Type()&os.ModeSocket != 0 {
				list = append(list, path)
			}
			return nil
		})
	}
	if len(list) < 3 {
		h.t.Errorf("there are only the sockets %q", list)
	}
	return list
}

// databaseKilled kills MariaDB during requests. It is back within seconds, no truncated page has status 200, and the
// site's log says why.
func (h *installation) databaseKilled(s siteBody) {
	t := h.t
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var visitors sync.WaitGroup
	var pages, odd atomic.Int64
	for n := range 4 {
		v := h.visitor(s.URL)
		visitors.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				r, err := http.NewRequestWithContext(ctx, "GET", fmt.Sprintf("%s/?load=%d-%d", s.URL, n, i), nil)
				if err != nil {
					return
				}
				a, err := world.Read(v.http.Do(r))
				if err != nil {
					continue
				}
				pages.Add(1)
				if a.Status == 200 && !strings.Contains(string(a.Body), "</html>") {
					odd.Add(1)
				}
			}
		})
	}
	h.until("visitors are there", func() bool { return pages.Load() > 8 })
	bound := world.Patience(5 * time.Second)
	killed := time.Now()
	for pid := range h.servers() {
		ok(t, syscall.Kill(pid, syscall.SIGKILL))
	}
	v, n := h.visitor(s.URL), 0
	h.until("WordPress answers again", func() bool {
		n++
		status, _, text := v.get(fmt.Sprintf("/?nocache=%d", n))
		return status == 200 && strings.Contains(text, "<title>Blog</title>") && len(h.servers()) > 0
	})
	took := time.Since(killed)
	stop()
	visitors.Wait()
	t.Logf("it was back after %s, under %d requests", took.Round(time.Millisecond), pages.Load())
	if took > bound {
		t.Errorf("the database was back after %s, want %s", took, bound)
	}
	if odd.Load() > 0 {
		t.Errorf("%d pages were half", odd.Load())
	}
	h.until("the site reads why", func() bool {
		var logs struct{ Logs []struct{ Message string } }
		h.call("GET", "/sites/"+s.ID+"/logs", nil, &logs)
		for _, l := range logs.Logs {
			if strings.Contains(l.Message, "The database server is back") {
				return true
			}
		}
		return false
	})
}

// servers returns the pids of this installation's MariaDB servers.
func (h *installation) servers() map[int]bool {
	out := map[int]bool{}
	var own []os.FileInfo
	dirs, err := filepath.Glob(filepath.Join(h.Data, "mariadb/owners/*"))
	ok(h.t, err)
	for _, dir := range dirs {
		info, err := os.Stat(dir)
		ok(h.t, err)
		own = append(own, info)
	}
	entries, err := os.ReadDir("/proc")
	ok(h.t, err)
	for _, e := range entries {
		line, _ := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		if !strings.HasPrefix(string(line), "mariadbd\x00") {
			continue
		}
		if st, err := os.Stat("/proc/" + e.Name() + "/root/build"); err == nil && slices.ContainsFunc(own, func(dir os.FileInfo) bool {
			return os.SameFile(
				dir,
				st,
			)
		}) {
			var pid int
			fmt.Sscan(e.Name(), &pid)
			out[pid] = true
		}
	}
	return out
}

// killedWhileInstalled kills the service at several points of a WordPress installation. Afterwards the site is
// completely installed.
func (h *installation) killedWhileInstalled() {
	t := h.t
	const tables = "tables" // some tables exist, and WordPress answers 500 to all requests
	for _, point := range []string{"Starting PHP-FPM", "Installing", tables} {
		made := func() []string {
			list, err := filepath.Glob(filepath.Join(h.Schemas(), "wp_options.frm"))
			ok(t, err)
			return list
		}
		before := made() // some may be temporary databases that compare a backup, and disappear
		s := h.create("Site " + point)
		h.soon(point, func() bool {
			if point == tables {
				return slices.ContainsFunc(made(), func(name string) bool { return !slices.Contains(before, name) })
			}
			var list struct{ Data []struct{ ID string } }
			h.call("GET", "/sites/"+s.ID+"/deployments", nil, &list)
			if len(list.Data) == 0 {
				return false
			}
			var logs struct{ Logs []struct{ Message string } }
			h.call("GET", "/deployments/"+list.Data[0].ID+"/logs", nil, &logs)
			for _, l := range logs.Logs {
				if strings.Contains(l.Message, point) {
					return true
				}
			}
			return false
		})
		h.Kill()
		ok(t, h.Start(t.Context()))
		s = h.ready(s.ID)
		if status, text := h.answers(s, "/"); status != 200 || !strings.Contains(text, "<title>Site "+point) {
			t.Errorf("killed at %q: %d %.200s", point, status, text)
		}
		owner, _ := h.login(s)
		if status, _, _ := owner.get("/wp-admin/"); status != 200 {
			t.Errorf("killed at %q: wp-admin answers %d", point, status)
		}
	}
}
