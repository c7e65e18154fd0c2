package pagecache

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"slipway/internal/platform/id"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// fill requests a page and stores this body as its response.
func fill(c *Cache, r *http.Request, body string, header ...string) {
	h := http.Header{"Content-Type": {"text/html; charset=UTF-8"}}
	for i := 0; i+1 < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	done := c.Filling("site", r)
	resp := &http.Response{StatusCode: 200, Header: h, Body: io.NopCloser(strings.NewReader(body))}
	c.Store("owner", "site", "site", r, resp, time.Now(), Everybodys)
	_, _ = io.ReadAll(resp.Body)
	done()
}

func request(path string, header ...string) *http.Request {
	r := httptest.NewRequest("GET", "https://blog.test"+path, nil)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return r
}

// After a purge, one visitor waits for the new page, and others get the old one until the new one is stored.
func TestCacheIsNoStampede(t *testing.T) {
	t.Parallel()
	c := New("")
	if p, _ := c.Lookup("site", request("/")); p != nil {
		t.Fatal("Lookup returned a page although none was stored")
	}
	fill(c, request("/"), "old")
	fill(c, request("/other"), "other")
	if p, how := c.Lookup("site", request("/")); p == nil || how != "HIT" || string(p.body) != "old" {
		t.Fatalf("got %v %s", p, how)
	}
	c.Purge("site", "/")
	if p, _ := c.Lookup("site", request("/")); p != nil {
		t.Error("the first visitor after a purge gets the old page")
	}
	for range 3 {
		if p, how := c.Lookup("site", request("/")); p == nil || how != "STALE" {
			t.Errorf("another gets %v %s", p, how)
		}
	}
	if _, how := c.Lookup("site", request("/other")); how != "HIT" {
		t.Errorf("another page is %s", how)
	}
	fill(c, request("/"), "new")
	if p, how := c.Lookup("site", request("/")); p == nil || how != "HIT" || string(p.body) != "new" {
		t.Errorf("got %v %s", p, how)
	}
	c.Purge("site", "*")
	if p, _ := c.Lookup("site", request("/other")); p != nil {
		t.Error("a purge of all leaves a page")
	}
}

// A visitor's own page is neither stored nor served from the cache.
func TestCachePassesBy(t *testing.T) {
	t.Parallel()
	c := New("")
	fill(c, request("/"), "page")
	for what, r := range map[string]*http.Request{
		"a login":         request("/", "Cookie", "wordpress_logged_in_x=1"),
		"a comment":       request("/", "Cookie", "a=b; comment_author_x=1"),
		"a shop":          request("/", "Cookie", "woocommerce_items_in_cart=1"),
		"a query":         request("/?s=x"),
		"a header":        request("/", "Authorization", "Basic x"),
		"another host":    httptest.NewRequest("GET", "https://other.test/", nil),
		"another method":  httptest.NewRequest("POST", "https://blog.test/", nil),
		"another's pages": nil,
	} {
		site := "site"
		if r == nil {
			r, site = request("/"), "another"
		}
		if p, _ := c.Lookup(id.Deployment(site), r); p != nil {
			t.Errorf("%s is answered from the cache", what)
		}
	}
	for i, header := range [][]string{
		{"Set-Cookie", "a=b"},
		{"Cache-Control", "private"},
		{"Cache-Control", "no-store"},
		{"Content-Type", "application/json"},
		{"Vary", "Cookie"},
		{"Content-Encoding", "gzip"},
	} {
		r := request("/own" + string(rune('a'+i)))
		fill(c, r, "mine", header...)
		if p, _ := c.Lookup("site", r); p != nil {
			t.Errorf("an answer with %v is stored", header)
		}
	}
}

// A page is sent in the encoding that the visitor accepts, from a single stored page.
func TestCachedPagesAreCompressed(t *testing.T) {
	t.Parallel()
	c := New("")
	page := "<html>" + strings.Repeat("<p>some words of a post</p>", 100)
	fill(c, request("/"), page)
	for accept, want := range map[string]string{
		"":                        "",
		"gzip, deflate, br, zstd": "br",
		"gzip":                    "gzip",
		"zstd;q=1, br;q=0.5":      "zstd",
		"identity, br;q=0":        "",
	} {
		r := request("/", "Accept-Encoding", accept)
		p, how := c.Lookup("site", r)
		if p == nil || how != "HIT" {
			t.Fatalf("%q: %v %s", accept, p, how)
		}
		w := httptest.NewRecorder()
		p.Write(w, r, how)
		got := w.Result()
		length, text := w.Body.Len(), new(strings.Builder)
		var body io.Reader = w.Body
		var err error
		switch got.Header.Get("Content-Encoding") {
		case "br":
			body = brotli.NewReader(body)
		case "gzip":
			body, err = gzip.NewReader(body)
		case "zstd":
			body, err = zstd.NewReader(body)
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(text, body); err != nil || text.String() != page {
			t.Errorf("%q: %v, %.100q", accept, err, text)
		}
		if got.Header.Get("Content-Encoding") != want || got.Header.Get("Vary") != "Accept-Encoding" ||
			got.Header.Get("Content-Length") != strconv.Itoa(length) ||
			want != "" && length > len(page)/2 {
			t.Errorf("%q: %d bytes, %v", accept, length, got.Header)
		}
	}
	fill(c, request("/small"), "too small to gain")
	r := request("/small", "Accept-Encoding", "br")
	p, how := c.Lookup("site", r)
	w := httptest.NewRecorder()
	p.Write(w, r, how)
	if w.Header().Get("Content-Encoding") != "" || w.Body.String() != "too small to gain" {
		t.Errorf("%v %q", w.Header(), w.Body)
	}
}

// A site that fills the cache loses its own oldest pages, not those of others. The cache counts its size correctly.
func TestCacheOfOneSiteIsBounded(t *testing.T) {
	t.Parallel()
	c := New("")
	fill(c, request("/"), "a page of another site")
	put := func(n, size int) {
		c.put("greedy", &Page{site: "greedy", key: "greedy " + strconv.Itoa(n), body: make([]byte, size), at: time.Now()})
	}
	for n := range 400 {
		put(n, 1<<20)
	}
	if p, how := c.Lookup("site", request("/")); p == nil || how != "HIT" {
		t.Errorf("the other site's page is %q", how)
	}
	if of := c.sites["greedy"]; of.bytes > maxSiteBytes || of.bytes < maxSiteBytes-2<<20 || c.pages["greedy 399"] == nil ||
		c.pages["greedy 0"] != nil {
		t.Errorf("the site has %d MiB", of.bytes>>20)
	}
	for n := range maxOfSite + 100 {
		put(1000+n, 10)
	}
	held, all := 0, 0
	for _, p := range c.pages {
		all += p.size()
		if p.site == "greedy" {
			held++
		}
	}
	if held != maxOfSite || c.sites["greedy"].ages.Len() != maxOfSite || c.bytes != all || c.owners["greedy"]+c.owners["owner"] != all {
		t.Errorf("the site has %d pages of %d; %d bytes are counted, %d held", held, len(c.pages), c.bytes, all)
	}
	c.Purge("greedy", "*")
	c.Forget("greedy")
	c.Forget("unknown")
	if p, how := c.Lookup("site", request("/")); p == nil || how != "HIT" || len(c.pages) != 1 || len(c.began) != 0 {
		t.Errorf("after the greedy site is gone there are %d pages, the other's is %q", len(c.pages), how)
	}
	c.Forget("site")
	if len(c.pages)+len(c.sites)+len(c.owners)+c.bytes != 0 {
		t.Errorf("an empty cache holds %d pages, %d sites, %d bytes", len(c.pages), len(c.sites), c.bytes)
	}
}

// If the cache is full, the owner with the most loses pages, however many sites it has. Other owners' pages stay.
func TestCacheOfOneOwnerIsBounded(t *testing.T) {
	t.Parallel()
	c := New("")
	fill(c, request("/"), "a page of another owner")
	for n := range 2 * maxBytes >> 20 {
		c.put("greedy", &Page{site: id.Site("greedy" + strconv.Itoa(n%20)), key: strconv.Itoa(n), body: make([]byte, 1<<20), at: time.Now()})
	}
	if p, how := c.Lookup("site", request("/")); p == nil || how != "HIT" {
		t.Errorf("the other owner's page is %q", how)
	}
	if c.bytes > maxBytes || c.owners["greedy"] < maxBytes-2<<20 {
		t.Errorf("%d MiB are held, the greedy owner's are %d", c.bytes>>20, c.owners["greedy"]>>20)
	}
}

// A page's header fields count towards its size, and a page with too many isn't stored.
func TestCacheCountsFields(t *testing.T) {
	t.Parallel()
	c := New("")
	fill(c, request("/"), "page", "X-Long", strings.Repeat("x", 12<<10))
	if c.bytes < 12<<10 {
		t.Errorf("a page with 12 KiB of fields counts as %d bytes", c.bytes)
	}
	fill(c, request("/other"), "page", "X-Long", strings.Repeat("x", 60<<10))
	if p, _ := c.Lookup("site", request("/other")); p != nil {
		t.Error("a page with 60 KiB of header fields was stored")
	}
}

// Requests whose host isn't in a browser's notation, and requests with a body, neither use nor fill the cache.
func TestCacheKeys(t *testing.T) {
	t.Parallel()
	c := New("")
	c.port = ":8443"
	for host, want := range map[string]bool{
		"blog.test":      true,
		"blog.test:8443": true,
		"Blog.test":      false,
		"blog.test.":     false,
		"blog.test:9999": false,
		"blog.test:":     true,
		"":               false,
	} {
		r := request("/")
		if r.Host = host; (c.keyOf("site", r) != "") != want {
			t.Errorf("%q is a page's host: %v", host, !want)
		}
	}
	r := request("/")
	if r.ContentLength = 3; c.keyOf("site", r) != "" {
		t.Error("a request with a body has a cache key")
	}
}

// Every cookie that PHP may read as a session's keeps a page from being stored for others.
func TestSessionsOfPHP(t *testing.T) {
	t.Parallel()
	for _, cookie := range []string{
		"wordpress_logged_in_x=a", "a=b; comment_author_email_x=c", "a=b;comment_author_x=c",
		"comment.author_email_x=c", "comment[author_email_x=c", "comment author_x=c", "a=b;  wp-postpass.x=c",
		"comment_author_x=a\\b", `comment_author_x="a`, "comment_author_x=é", "woocommerce.items_in_cart=1",
		"comment_author_x", "comment%5fauthor_x=c", "\twordpress.sec_x=1",
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Cookie", cookie)
		if New("").keyOf("site_1", r) != "" {
			t.Errorf("a page for %q is stored for everybody", cookie)
		}
	}
	for _, cookie := range []string{"", "a=b", "consent=comment_author_x; b.c=d", "my_wordpress_logged_in=1", ";;=;"} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Cookie", cookie)
		if New("").keyOf("site_1", r) == "" {
			t.Errorf("%q is no session's", cookie)
		}
	}
}

// A purged path may be in a browser's percent-encoding.
func TestPurgeOfEncodedPath(t *testing.T) {
	t.Parallel()
	c := New("")
	fill(c, request("/%e4%bd%a0/"), "old")
	fill(c, request("/"), "old")
	c.Purge("site", "/%E4%BD%A0/")
	if p, _ := c.Lookup("site", request("/%e4%bd%a0/")); p != nil {
		t.Error("the purge left the page fresh")
	}
	if p, how := c.Lookup("site", request("/")); p == nil || how != "HIT" {
		t.Errorf("another page: %q", how)
	}
}
