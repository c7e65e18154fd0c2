package guard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"slipway/internal/build/release"
	"slipway/internal/edge/endpoint"
	"slipway/internal/edge/response"
	"slipway/internal/platform/id"
	"slipway/internal/program/relay"
	"slipway/internal/tenant/site"
	"slipway/internal/wordpress/pagecache"
)

// awake implements Programs with programs that all run.
type awake struct{}

func (awake) Acquire(context.Context, id.Deployment) (*endpoint.Endpoint, error) {
	return &endpoint.Endpoint{Release: func() {}}, nil
}

func (a awake) Awake(deployment id.Deployment) (*endpoint.Endpoint, bool) {
	e, err := a.Acquire(context.Background(), deployment)
	return e, err == nil
}

// fill requests a page and stores this body as its response.
func fill(c *pagecache.Cache, r *http.Request, body string) {
	h := http.Header{"Content-Type": {"text/html; charset=UTF-8"}}
	defer c.Filling("site", r)()
	resp := &http.Response{StatusCode: 200, Header: h, Body: io.NopCloser(strings.NewReader(body))}
	c.Store("owner", "site", "site", r, resp, time.Now(), pagecache.Everybodys)
	_, _ = io.ReadAll(resp.Body)
}

func request(path string, header ...string) *http.Request {
	r := httptest.NewRequest("GET", "https://blog.test"+path, nil)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return r
}

// Page returns what the guard would respond: fresh pages, for visitors without a session.
func TestCachedPage(t *testing.T) {
	t.Parallel()
	cache := pagecache.New("")
	w := New(Config{Cache: cache})
	w.known.Store("site", Served{Site: "site"})
	w.known.Store("other", Served{Site: "site"})
	r := request("/post/", "Accept-Encoding", "gzip")
	fill(cache, r, "<html>"+strings.Repeat("<p>some words of a post</p>", 100))
	of, answer := w.Page("site", r.Host, "/post/")
	if of == nil {
		t.Fatal("the page was not found")
	}
	p, how := cache.Lookup("site", r)
	rec := httptest.NewRecorder()
	p.Write(rec, r, how)
	header, body := answer("gzip")
	if of != any(p) || !bytes.Equal(
		body,
		rec.Body.Bytes(),
	) || !reflect.DeepEqual(header, rec.Header()) || header.Get("Content-Encoding") != "gzip" {
		t.Errorf("%v and %v", header, rec.Header())
	}
	for _, no := range [][3]string{
		{"other", r.Host, "/post/"},
		{"unknown", r.Host, "/post/"},
		{"site", "elsewhere.test", "/post/"},
		{"site", r.Host, "/post"},
	} {
		if of, _ := w.Page(id.Deployment(no[0]), no[1], no[2]); of != nil {
			t.Errorf("%v has a page", no)
		}
	}
	rules, _ := (&release.Tree{}).WithRules(map[string]string{"_redirects": "/post/ /other/ 301"})
	w.known.Store("site", Served{Site: "site", Rules: rules})
	if of, _ := w.Page("site", r.Host, "/post/"); of != nil {
		t.Error("Page returned a page without checking the site's rules")
	}
	w.known.Store("site", Served{Site: "site"})
	cache.Purge("site", "/post/")
	if of, _ := w.Page("site", r.Host, "/post/"); of != nil {
		t.Error("Page returned a stale page")
	}
	if p, _ := cache.Lookup("site", r); p != nil {
		t.Error("Lookup returned a stale page")
	}
}

// The edge may serve a program's files without the guard only if they are visible to visitors and the deployment is
// known to be a WordPress's.
func TestFilesOfPrograms(t *testing.T) {
	t.Parallel()
	held := 0
	w := New(Config{Programs: awake{}, Cache: pagecache.New("")})
	w.known.Store("dep_1", Served{Site: "site", Address: "https://shop.test", Former: []string{"old.test"}})
	w.known.Store("dep_2", Served{})
	for _, tt := range []struct {
		deployment id.Deployment
		host, path string
		want       bool
	}{
		{"dep_1", "shop.test", "/wp-includes/style.css", true},
		{"dep_1", "old.test", "/wp-includes/style.css", false},
		{"dep_1", "shop.test", "/wp-content/debug.log", false},
		{"dep_1", "shop.test", "/wp-content/plugins/a.sql", false},
		{"dep_1", "shop.test", "/index.php", false},
		{"dep_1", "shop.test", "/a/page/", false},
		{"dep_2", "shop.test", "/wp-includes/style.css", false},
		{"dep_3", "shop.test", "/wp-includes/style.css", false},
	} {
		e, ok := w.File(tt.deployment, tt.host, tt.path)
		if ok != tt.want {
			t.Errorf("%s %s: a file may answer: %v", tt.deployment, tt.path, ok)
		}
		if ok {
			e.Release()
			held++
		}
	}
	if held != 1 {
		t.Errorf("%d programs were held", held)
	}
	// All other requests go through the guard.
	e, ok := w.Awake("dep_1")
	if !ok || e.Upstream != nil {
		t.Fatal("requests bypass the guard")
	}
	rec := httptest.NewRecorder()
	if !e.Serve(rec, request("/wp-config.php")) || rec.Code != http.StatusNotFound {
		t.Errorf("the guard let %d through", rec.Code)
	}
	e.Release()
	if _, ok := w.Awake("dep_3"); ok {
		t.Error("Awake returned an endpoint of an unknown deployment")
	}
}

func TestClosed(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]bool{
		"/":                                  false,
		"/wp-login.php":                      false,
		"/wp-admin/":                         false,
		"/wp-admin/admin-ajax.php":           false,
		"/wp-json/wp/v2/posts":               false,
		"/wp-content/uploads/a.png":          false,
		"/wp-content/uploads/j.phillips.png": false,
		"/wp-content/uploads/php.png":        false,
		"/wp-content/uploads/a.phpx/b.png":   false,
		"/wp-content/uploads/x.php.png":      true,
		"/wp-content/uploads/x.phar":         true,
		"/wp-content/uploads/x.pht":          true,
		"/wp-content/uploads/x.php~":         true,
		"/.well-known/acme-challenge/x":      false,
		"/wp-includes/css/x.css":             false,
		"/wp-admin/load-scripts.php":         false,
		"/hello-world/":                      false,
		"/wp-config.php":                     true,
		"/wp-admin/install.php":              true,
		"/wp-admin/install.php/x":            true,
		"//wp-admin/./install.php":           true,
		"/x/../wp-config.php":                true,
		"/WP-CONFIG.PHP":                     true,
		"/xmlrpc.php":                        true,
		"/xmlrpc.php/x":                      true,
		"/wp-content/uploads/x.php":          true,
		"/wp-content/uploads/x.PHP7":         true,
		"/wp-content/uploads/x.phtml/y.png":  true,
		"/wp-content/plugins/a/b.php":        true,
		"/wp-includes/version.php":           true,
		"/wp-includes/version.php/x":         true,
		"/.env":                              true,
		"/wp-content/.git/config":            true,
		"/wp-content/debug.log":              true,
		"/wp-content/themes/x/auth.json":     true,
		"/wp-content/themes/x/Dockerfile":    true,
		"/wp-content/plugins/x/compose.yaml": true,
		"/wp-content/themes/x/theme.json":    false,
		"/dockerfile":                        false,
		"/dump.sql":                          true,
		"/wp-content/updraft/x":              true,
	} {
		r := request("/")
		r.URL.Path = path
		if got := closed(r.URL.Path, false); got != want {
			t.Errorf("closed(%q) = %v", path, got)
		}
	}
	r := request("/xmlrpc.php")
	if closed(r.URL.Path, true) {
		t.Error("xmlrpc.php stays closed")
	}
}

// Folders in which plugins store sold or received files are closed even without a .htaccess, also in a multisite
// network. Other folders aren't.
func TestKnownFolders(t *testing.T) {
	t.Parallel()
	for folder, want := range map[string]bool{
		"wp-content/uploads/woocommerce_uploads":        true,
		"wp-content/uploads/sites/2/wpcf7_uploads":      true,
		"wp-content/uploads/WooCommerce_Uploads":        true,
		"wp-content/uploads/backwpup-8f3a-backups":      true,
		"wp-content/uploads/edd":                        true,
		"wp-content/uploads/2026":                       false,
		"wp-content/uploads/2026/edd":                   false,
		"wp-content/plugins/woocommerce_uploads":        false,
		"wp-content/uploads":                            false,
		"wp-content/uploads/woocommerce_uploads_public": false,
	} {
		if got := (Folders{}).Rules(folder) != nil; got != want {
			t.Errorf("%s is known: %v", folder, got)
		}
	}
}

// A visitor's login attempts are limited, whatever path leads to the script. Attempts after a refusal don't lock out
// other visitors.
func TestThrottle(t *testing.T) {
	t.Parallel()
	x := newThrottle()
	post := func(site id.Site, path, from string) bool {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.URL.Path, r.RemoteAddr = path, from
		return x.take(site, "", r.URL.Path, r) == 0
	}
	paths := []string{"/wp-login.php", "/wp-login.php/x", "//wp-login.php/./y", "/a/../wp-login.php", "/wp-login.php/"}
	for i := range loginsOfVisitor {
		if !post("site", paths[i%len(paths)], "203.0.113.1:1234") {
			t.Fatalf("attempt %d is refused", i)
		}
	}
	for _, path := range paths {
		for range loginsOfSite / 5 {
			if post("site", path, "203.0.113.1:99") {
				t.Fatalf("%s: an attempt over the limit was accepted", path)
			}
		}
	}
	if !post(
		"site",
		"/wp-login.php",
		"198.51.100.1:1",
	) || !post("other", "/wp-login.php", "203.0.113.1:1") || !post("site", "/wp-comments-post.php", "203.0.113.1:1") {
		t.Error("an attempt from another address, at another site or at another form was refused")
	}
	for i := range 2 * remoteMore * loginsOfVisitor {
		if let := post("site", "/xmlrpc.php/x", "203.0.113.1:1"); let != (i < remoteMore*loginsOfVisitor) {
			t.Fatalf("request %d of XML-RPC: let through %v", i, let)
		}
	}
}

// moving is a program whose first nodes are gone when a request arrives, or fail after having received part of it.
type moving struct {
	gone     int // number of nodes that are gone
	reads    bool
	dies     error // error after it has received a part
	acquired int
	released int
}

func (m *moving) Acquire(context.Context, id.Deployment) (*endpoint.Endpoint, error) {
	m.acquired++
	ended := make(chan struct{})
	if m.acquired <= m.gone {
		close(ended)
	}
	return &endpoint.Endpoint{Ended: ended, Transport: m, Release: func() { m.released++ }}, nil
}

func (m *moving) Awake(id.Deployment) (*endpoint.Endpoint, bool) { return nil, false }

func (m *moving) RoundTrip(r *http.Request) (*http.Response, error) {
	defer r.Body.Close()
	if m.acquired <= m.gone {
		if m.dies != nil {
			return nil, fmt.Errorf("read: %w", m.dies)
		}
		if m.reads {
			r.Body.Read(make([]byte, 1))
		}
		return nil, fmt.Errorf("dial: %w", relay.ErrUnreached)
	}
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	return plain(r, http.StatusOK, string(text)), nil
}

// If a node is gone before it received any of a request, the request is sent to the next node with its body. A request
// that may have been processed is only repeated if it is idempotent, and the attempts are limited. All programs are
// released.
func TestRequestFindsTheNextNode(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		moving
		method string
		want   string // empty means an error
		asks   int
	}{
		"at once":            {moving{}, "POST", "a body", 1},
		"twice gone":         {moving{gone: 2}, "POST", "a body", 3},
		"always gone":        {moving{gone: 9}, "POST", "", mostTries},
		"partly read":        {moving{gone: 1, reads: true}, "POST", "", 1},
		"may be done":        {moving{gone: 1, dies: io.ErrUnexpectedEOF}, "POST", "", 1},
		"idempotent":         {moving{gone: 1, dies: io.ErrUnexpectedEOF}, "PUT", "a body", 2},
		"reset":              {moving{gone: 1, dies: syscall.ECONNRESET}, "GET", "a body", 2},
		"broken":             {moving{gone: 1, dies: syscall.EPIPE}, "PUT", "a body", 2},
		"may be done, reset": {moving{gone: 1, dies: syscall.ECONNRESET}, "POST", "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := &test.moving
			gs := New(Config{Programs: m, Cache: pagecache.New("")})
			e := gs.Endpoint(Served{Site: "site_a"}, "dep_a")
			r := httptest.NewRequest(test.method, "https://a.test/", strings.NewReader("a body"))
			resp, err := e.Transport.RoundTrip(r)
			e.Release()
			if m.acquired != test.asks || m.released != test.asks {
				t.Errorf("%d programs asked, %d released, want %d", m.acquired, m.released, test.asks)
			}
			if test.want == "" {
				if !errors.Is(err, relay.ErrUnreached) && (m.dies == nil || !errors.Is(err, m.dies)) {
					t.Errorf("the error is %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if text, err := io.ReadAll(resp.Body); err != nil || string(text) != test.want {
				t.Errorf("the answer is %q, %v", text, err)
			}
		})
	}
}

// Wrong passwords from many addresses only lock the attacked user, and not on a device on which the user has logged in.
// Passwords of protected posts don't count as logins.
func TestLoginsOfMany(t *testing.T) {
	t.Parallel()
	x, key := newThrottle(), Device([]byte("key"))
	from := func(i int) string { return fmt.Sprintf("203.%d.%d.1:1", i/250, i%250) }
	post := func(i int, body, kind, cookie, query string) bool {
		t.Helper()
		r := httptest.NewRequest(http.MethodPost, "/wp-login.php"+query, strings.NewReader(body))
		r.RemoteAddr = from(i)
		r.Header.Set("Content-Type", kind)
		if cookie != "" {
			r.AddCookie(&http.Cookie{Name: DeviceCookie, Value: cookie})
		}
		let := x.take("site", key, r.URL.Path, r) == 0
		if text, err := io.ReadAll(r.Body); err != nil || string(text) != body {
			t.Errorf("the form is %.100q afterwards, %v", text, err)
		}
		return let
	}
	const form = "application/x-www-form-urlencoded"
	cookie := func(until time.Time, names ...string) string {
		text := strconv.FormatInt(until.Unix(), 10)
		for _, n := range names {
			text += "." + nameDigest(key, n)
		}
		return text + "-" + digest(key, text)
	}
	known := cookie(time.Now().Add(time.Hour), "ada", "ada@example.test")

	// An attack on one name in various spellings.
	let := 0
	for i := range 200 {
		body := []string{"log=ada&pwd=x", "log=bob&+log=Ada&pwd=x", "log%5B%5D=ADA&pwd=x", "log=bob&log=ada+"}[i%4]
		if post(i, body, form, "", "") {
			let++
		}
	}
	if let != loginsOfName {
		t.Errorf("%d tries of a name from many addresses", let)
	}
	if !post(201, "log=ben&pwd=x", form, "", "") {
		t.Error("another member is refused")
	}
	if post(202, "log=ada&pwd=right", form, cookie(time.Now().Add(-time.Hour), "ada"), "") || post(203, "log=ada&pwd=right", form,
		strings.Replace(known, "-", "-0", 1), "") || post(204, "log=ada&pwd=right", form, cookie(time.Now().Add(time.Hour), "ben"), "") {
		t.Error("a cookie that is old, forged or another's lets in")
	}
	for i := range loginsOfDevice {
		if !post(205, "log=ada%40example.test&pwd=right", form, known, "") {
			t.Fatalf("a known device is kept out the %dth time", i)
		}
	}
	if post(206, "log=ada&pwd=right", form, known, "") {
		t.Error("a known device has unlimited attempts")
	}

	// Forms that can't be parsed have their own limit.
	let = 0
	for i := range 100 {
		body, kind := "--x\r\nContent-Disposition: form-data; name=log\r\n\r\nada\r\n--x--", "multipart/form-data; boundary=x"
		if i%2 == 0 {
			body, kind = "log=ada&"+strings.Repeat("a=b&", 200)+"log=carl", form
		}
		if post(300+i, body, kind, "", "") {
			let++
		}
	}
	if let != loginsOfName {
		t.Errorf("%d tries by forms that aren't understood", let)
	}

	// Many visitors from one office open a protected post. The URL alone doesn't make a request a login.
	for i := range 100 {
		if !post(500, "post_password=x&Submit=Enter", form, "", "?action=postpass") {
			t.Fatalf("visitor %d of a protected post is kept out", i)
		}
	}
	if post(501, "log=ada&action=login", form, "", "?action=postpass") {
		t.Error("a login counts as an attempt at a protected post")
	}
}

// Visitors of all campaigns share a cached page, and redirects keep their campaign parameters. Other queries have their
// own pages.
func TestCampaignsShareAPage(t *testing.T) {
	t.Parallel()
	var asked []string
	program := answering(func(r *http.Request) (*http.Response, error) {
		asked = append(asked, r.URL.RequestURI())
		h := http.Header{"Content-Type": {"text/html"}, "X-Slipway-Cache": {"page"}}
		if r.URL.Path == "/moved" {
			h.Set("Location", "https://blog.test/moved/")
			return &http.Response{StatusCode: 301, Header: h, Body: http.NoBody}, nil
		}
		return &http.Response{StatusCode: 200, Header: h, Body: io.NopCloser(strings.NewReader("page"))}, nil
	})
	gs := New(Config{Programs: program, Cache: pagecache.New("")})
	served := Served{Site: "site", Owner: "own", Pages: PageCache{Query: []string{"ref"}}}
	get := func(path string) (location string, hit bool) {
		t.Helper()
		e, rec := gs.Endpoint(served, "dep"), httptest.NewRecorder()
		defer e.Release()
		if e.Serve(rec, request(path)) {
			return "", true
		}
		resp, err := e.Transport.RoundTrip(request(path))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(resp.Body); err != nil {
			t.Fatal(err)
		}
		return resp.Header.Get("Location"), false
	}
	for _, tt := range []struct {
		path, location string
		hit            bool
		asks           string
	}{
		{"/a/?utm_source=x&utm_medium=y", "", false, "/a/"},
		{"/a/", "", true, ""},
		{"/a/?gclid=1&fbclid=2", "", true, ""},
		{"/a/?ref=friend&fbclid=2", "", true, ""},
		{"/a/?referrer=friend", "", false, "/a/?referrer=friend"},
		{"/a/?utm_source=x&s=word", "", false, "/a/?utm_source=x&s=word"},
		{"/a/?page=2", "", false, "/a/?page=2"},
		{"/a/?UTM_source=x", "", false, "/a/?UTM_source=x"},
		{"/moved?utm_source=x", "https://blog.test/moved/?utm_source=x", false, "/moved"},
	} {
		asked = nil
		location, hit := get(tt.path)
		got := strings.Join(asked, " ")
		if location != tt.location || hit != tt.hit || got != tt.asks {
			t.Errorf("%s: to %q, hit %v, asked %q", tt.path, location, hit, got)
		}
	}
}

// answering implements Programs with a function as the transport.
type answering func(*http.Request) (*http.Response, error)

// Acquire implements Programs.
func (a answering) Acquire(context.Context, id.Deployment) (*endpoint.Endpoint, error) {
	return &endpoint.Endpoint{Transport: a, Release: func() {}}, nil
}

// Awake implements Programs.
func (a answering) Awake(deployment id.Deployment) (*endpoint.Endpoint, bool) {
	e, err := a.Acquire(context.Background(), deployment)
	return e, err == nil
}

// RoundTrip implements http.RoundTripper.
func (a answering) RoundTrip(r *http.Request) (*http.Response, error) { return a(r) }

// heard records what a site reports.
type heard struct{ changed, at string }

func (*heard) Served(context.Context, id.Deployment) (Served, error) {
	return Served{Site: "site", Own: Mark([]byte("key"))}, nil
}

func (h *heard) PagesChanged(_ context.Context, id site.ID)        { h.changed = string(id) }
func (h *heard) Scheduled(_ context.Context, _ site.ID, at string) { h.at = at }

// changing is a site whose settings change while they are read.
type changing struct {
	heard
	during func()
}

func (c *changing) Served(context.Context, id.Deployment) (Served, error) {
	before := Served{Site: "site", Root: map[string]string{"ads.txt": "before"}}
	if c.during != nil {
		c.during()
	}
	return before, nil
}

// If settings change while they are read, the old ones aren't cached.
func TestForgetDuringRead(t *testing.T) {
	t.Parallel()
	c := &changing{}
	gs := New(Config{Cache: pagecache.New(""), Sites: c})
	c.during = gs.Forget
	for n, kept := range []bool{false, true} {
		if _, err := gs.served(t.Context(), "dep"); err != nil {
			t.Fatal(err)
		}
		if _, ok := gs.known.Load("dep"); ok != kept {
			t.Errorf("read %d: kept %v, want %v", n, ok, kept)
		}
		c.during = nil
	}
}

// A site reports changes made after its response began in a separate request. Requests without the site's mark are
// ignored.
func TestToldByRequest(t *testing.T) {
	t.Parallel()
	cache := pagecache.New("")
	page := request("/post/")
	fill(cache, page, "<html>")
	sites := &heard{}
	gs := New(Config{Programs: awake{}, Cache: cache, Sites: sites})
	now := strconv.FormatInt(time.Now().Unix(), 10)
	for mark, want := range map[string]bool{
		"":          false,
		now + ".00": false,
		now + "." + digest(Mark([]byte("other")), now): false,
		now + "." + digest(Mark([]byte("key")), now):   true,
	} {
		e, err := gs.Acquire(t.Context(), "site")
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest("POST", "https://blog.test/", nil)
		for name, value := range map[string]string{"Slipway-Told": "1", loopback: mark, "X-Slipway-Purge": "/post/", "X-Slipway-Cron": "99"} {
			r.Header.Set(name, value)
		}
		*sites = heard{}
		answered := e.Serve(httptest.NewRecorder(), r)
		e.Release()
		if answered != want || (sites.changed == "site") != want || (sites.at == "99") != want {
			t.Errorf("%q: it is heard: %v, %+v", mark, answered, sites)
		}
		if fresh := cache.Fresh("site", page.Host, "/post/") != nil; want && fresh {
			t.Error("the page is fresh")
		}
	}
}

const (
	phoneAgent   = "Mozilla/5.0 (iPhone; CPU iPhone OS 17_0 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.0 Mobile/15E148 Safari/604.1"
	tabletAgent  = "Mozilla/5.0 (iPad; CPU OS 17_0 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.0 Mobile/15E148 Safari/604.1"
	desktopAgent = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/130.0 Safari/537.36"
)

// A theme that checks the visitor's device has one cached page per kind of device. Pages that the owner excludes from
// the cache aren't cached.
func TestWhoGetsACachedPage(t *testing.T) {
	t.Parallel()
	asked := 0
	program := answering(func(r *http.Request) (*http.Response, error) {
		asked++
		h := http.Header{"Content-Type": {"text/html"}, "X-Slipway-Cache": {"page"}}
		text := "for everybody"
		if strings.HasPrefix(r.URL.Path, "/device") {
			h.Set("X-Slipway-Cache", "page device")
			text = r.UserAgent() + r.Header.Get("Sec-Ch-Ua-Mobile")
		}
		return &http.Response{StatusCode: 200, Header: h, Body: io.NopCloser(strings.NewReader(text))}, nil
	})
	cache := pagecache.New("")
	gs := New(Config{Programs: program, Cache: cache})
	served := Served{Site: "site", Owner: "own", Pages: PageCache{Cookies: []string{"currency"}, Paths: []string{"/prices/", "/shop/*"}}}
	gs.known.Store("dep", served)
	get := func(path string, header ...string) (text string, hit bool) {
		t.Helper()
		e, rec := gs.Endpoint(served, "dep"), httptest.NewRecorder()
		defer e.Release()
		if e.Serve(rec, request(path, header...)) {
			return rec.Body.String(), true
		}
		resp, err := e.Transport.RoundTrip(request(path, header...))
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(b), false
	}
	for _, tt := range []struct {
		path   string
		header []string
		want   bool // whether the second request gets a cached page
	}{
		{"/", nil, true},
		{"/", []string{"User-Agent", phoneAgent}, true},
		{"/", []string{"Cookie", "currency_1=EUR"}, false},
		{"/", []string{"Cookie", "other=1"}, true},
		{"/prices/", nil, false},
		{"/prices/a/", nil, true},
		{"/shop/a/", nil, false},
		{"/device/", []string{"User-Agent", phoneAgent}, true},
		{"/device/", []string{"User-Agent", desktopAgent}, true},
		{"/device/", []string{"User-Agent", tabletAgent}, true},
		{"/device/", []string{"User-Agent", desktopAgent, "Sec-Ch-Ua-Mobile", "?1"}, true},
		{"/device/", []string{"User-Agent", desktopAgent, "Sec-Ch-Ua-Mobile", "?0"}, true},
	} {
		first, _ := get(tt.path, tt.header...)
		again, hit := get(tt.path, tt.header...)
		if hit != tt.want || again != first {
			t.Errorf("%s %q: hit %v, want %v", tt.path, tt.header, hit, tt.want)
		}
		if strings.HasPrefix(tt.path, "/device") && again != strings.Join(append(tt.header[1:2], tt.header[min(len(tt.header), 3):]...), "") {
			t.Errorf("%q gets the page of %q", tt.header, again)
		}
	}
	if of, _ := gs.Page("dep", "blog.test", "/device/"); of != nil {
		t.Error("one device's page is given to whoever asks")
	}
	if of, _ := gs.Page("dep", "blog.test", "/"); of == nil {
		t.Error("a page for everybody is not given")
	}
	if names := gs.SessionCookies("dep"); !slices.Contains(names, "currency") || !slices.Contains(names, "wordpress_logged_in") {
		t.Errorf("visitors with %q get no ready page", names)
	}
}

// The owner's files for the root take precedence over WordPress, and browsers may keep files whose URL contains a
// version.
func TestFilesAtTheRoot(t *testing.T) {
	t.Parallel()
	files := serving(func(w http.ResponseWriter, r *http.Request) bool {
		return strings.HasPrefix(r.URL.Path, "/wp-content/a.")
	})
	gs := New(Config{Programs: files, Cache: pagecache.New(""), Sites: &heard{}})
	served := Served{Site: "site", Root: map[string]string{"ads.txt": "google.com, pub-1", ".well-known/x": "x", "wp-config.php": "<?php"}}
	gs.known.Store("dep", served)
	for _, tt := range []struct {
		method, path string
		served       bool
		status       int
		text, cache  string
	}{
		{"GET", "/ads.txt", true, 200, "google.com, pub-1", response.Revalidate[0]},
		{"HEAD", "/ads.txt", true, 200, "", response.Revalidate[0]},
		{"GET", "/.well-known/x", true, 200, "x", response.Revalidate[0]},
		{"GET", "/wp-config.php", true, 404, "Not found\n", "no-store"},
		{"POST", "/ads.txt", false, 200, "", ""},
		{"GET", "/other.txt", false, 200, "", ""},
		{"GET", "/wp-content/a.css", true, 200, "", ""},
		{"GET", "/wp-content/a.css?ver=6.1-x", true, 200, "", "public, max-age=31536000"},
		{"GET", "/wp-content/a.css?ver=6.1&x=1", true, 200, "", ""},
	} {
		e, rec := gs.Endpoint(served, "dep"), httptest.NewRecorder()
		r := request(tt.path)
		r.Method = tt.method
		got := e.Serve(rec, r)
		e.Release()
		if got != tt.served || rec.Code != tt.status || rec.Body.String() != tt.text || rec.Header().Get("Cache-Control") != tt.cache {
			t.Errorf("%s %s: %v, %d %q %v", tt.method, tt.path, got, rec.Code, rec.Body, rec.Header())
		}
	}
	if _, ok := gs.File("dep", "blog.test", "/ads.txt"); ok {
		t.Error("a program's file may answer for a root file")
	}
	if _, ok := gs.File("dep", "blog.test", "/other.txt"); !ok {
		t.Error("a program's file may not answer")
	}
}

// serving implements Programs with a function that serves files.
type serving func(http.ResponseWriter, *http.Request) bool

// Acquire implements Programs.
func (s serving) Acquire(context.Context, id.Deployment) (*endpoint.Endpoint, error) {
	return &endpoint.Endpoint{Serve: s, Release: func() {}}, nil
}

// Awake implements Programs.
func (s serving) Awake(deployment id.Deployment) (*endpoint.Endpoint, bool) {
	e, err := s.Acquire(context.Background(), deployment)
	return e, err == nil
}

// bedrock maps URLs below /app, which the content of a Bedrock site contains, to wp-content.
func TestBedrockAddresses(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"/app/uploads/2026/a%20b.jpg?x=1": "/wp-content/uploads/2026/a%20b.jpg?x=1",
		"/app/themes/ours/a.css":          "/wp-content/themes/ours/a.css",
		"/app/":                           "",
		"/app/uploads/":                   "",
		"/app/uploads/x.php":              "",
		"/app/store/a.png":                "",
		"/my/app/uploads/a.jpg":           "",
	} {
		if got := bedrock(request(path)); got != want {
			t.Errorf("%s leads to %q, want %q", path, got, want)
		}
	}
	r := request("/app/uploads/a.jpg")
	r.Method = "POST"
	if to := bedrock(r); to != "" {
		t.Errorf("POST leads to %s", to)
	}
}

// A blog of a network that is a folder has the same doors as the site itself.
func TestClosedInNetworks(t *testing.T) {
	t.Parallel()
	network := Served{Network: true, Folders: true}
	for path, want := range map[string]bool{
		"/news/wp-config.php":                    true,
		"/news/wp-admin/install.php":             true,
		"/news//WP-CONFIG.PHP":                   true,
		"/news/xmlrpc.php":                       true,
		"/news/wp-cron.php":                      true,
		"/news/wp-content/uploads/x.php":         true,
		"/news/wp-includes/version.php":          true,
		"/wp-admin/wp-config.php":                true,
		"/wp-config.php":                         true,
		"/news/":                                 false,
		"/news/wp-login.php":                     false,
		"/news/wp-admin/network/":                false,
		"/news/wp-content/uploads/sites/2/a.png": false,
		"/wp-activate.php":                       false,
		"/news/wp-signup.php":                    false,
	} {
		if got := network.closes(path); got != want {
			t.Errorf("%s is closed: %v, want %v", path, got, want)
		}
	}
	if !network.closes(strings.Repeat("/a", 1000)) {
		t.Error("a path of a thousand folders is looked at")
	}
	if one := (Served{}); one.closes("/news/wp-config.php/x") || !one.closes("/wp-activate.php") || !one.closes("/wp-signup.php") {
		t.Error("a single site has the doors of a network")
	}
	for path, want := range map[string]string{"/news/wp-login.php": "/wp-login.php", "/a/b/wp-login.php/x": "/wp-login.php/x", "/wp-login.php": "/wp-login.php", "/n.x/wp-login.php": "/n.x/wp-login.php", "/": "/"} {
		if got := network.inner(path); got != want {
			t.Errorf("%s is %s within its blog, want %s", path, got, want)
		}
	}
}
