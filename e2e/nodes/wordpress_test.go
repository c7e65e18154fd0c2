package nodes

import (
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"slipway/e2e/world"
)

// With shared storage and an operator's MariaDB (over TLS), WordPress survives the failure of either node: content
// written through one node is served by the other after the first was killed, and the other way round. The object cache
// is on the operator's Redis.
func TestWordPressSurvivesItsNode(t *testing.T) {
	i, _ := mounted(t)
	a, b := i.nodes[0], i.nodes[1]
	core := filepath.Join(t.TempDir(), "wordpress")
	if err := world.DebianWordPress(core, "6.1.90"); err != nil {
		t.Fatal(err)
	}
	server := operators(t, world.MariaDB, a.Hooks)
	objects := operators(t, world.Redis, a.Hooks)
	for _, w := range i.nodes {
		w.Flags = append(w.Flags, "--mariadb", server, "--redis", objects, "--wordpress-source", core)
	}
	i.start(a, b)
	var made struct{ Data struct{ ID string } }
	err := b.Call(t.Context(), i.key, "POST", "/sites", map[string]any{"name": "blog", "type": "wordpress"}, &made)
	if err != nil {
		t.Fatal(err)
	}
	var site struct{ Status, StatusReason string }
	i.until("it is installed", func() bool {
		err := a.Call(t.Context(), i.key, "GET", "/sites/"+made.Data.ID, nil, &site)
		if site.Status == "error" {
			t.Fatal(site.StatusReason)
		}
		return err == nil && site.Status == "active"
	})
	blog := &blog{i: i, id: made.Data.ID, host: "blog.localhost"}
	blog.shows(a, "<title>blog</title>")
	blog.shows(b, "<title>blog</title>")
	if err := a.Call(t.Context(), i.key, "PATCH", "/sites/"+made.Data.ID+"/wordpress", map[string]any{"objectCache": true}, nil); err != nil {
		t.Fatal(err)
	}
	blog.caches(a)
	blog.caches(b)
	if n := redisKeys(t, objects); n == "0" {
		t.Error("the operator's Redis holds nothing of an active object cache")
	}

	home, other := i.stays(made.Data.ID)
	blog.publishes(other, "Written before")
	home.Kill()
	died := time.Now()
	answer := blog.ask(other, nil, "GET", "/?after=death", "")
	took := time.Since(died)
	if answer.Status != 200 || !strings.Contains(string(answer.Body), "Written before") || took > world.Patience(20*time.Second) {
		t.Errorf("after the death of its node: %d %.300s after %s", answer.Status, answer.Body, took)
	}
	t.Logf("it was answered by the other node after %s", took.Round(100*time.Millisecond))
	blog.caches(other)
	i.start(home)
	blog.publishes(home, "Written after")
	blog.shows(other, "Written after")
	home, other = i.stays(made.Data.ID)
	home.Kill()
	answer = blog.ask(other, nil, "GET", "/?back", "")
	if answer.Status != 200 || !strings.Contains(string(answer.Body), "Written after") {
		t.Errorf("after the death of the other one: %d %.300s", answer.Status, answer.Body)
	}
}

// blog is a WordPress site. Its URL contains the port of the node that it runs on, because two nodes on one machine
// can't use the same port.
type blog struct {
	i        *installation
	id, host string
}

// ask sends a request to a node, with or without a user's cookies. It follows a redirect to WordPress's current port.
func (b *blog) ask(w *world.World, cookies http.CookieJar, method, path, body string, header ...string) world.Answer {
	b.i.t.Helper()
	browser, err := w.Browser()
	if err != nil {
		b.i.t.Fatal(err)
	}
	defer browser.CloseIdleConnections()
	browser.Jar = cookies
	for {
		r, err := http.NewRequestWithContext(b.i.t.Context(), method, "https://blog.localhost"+path, strings.NewReader(body))
		if err != nil {
			b.i.t.Fatal(err)
		}
		r.Host = b.host
		for n := 0; n+1 < len(header); n += 2 {
			r.Header.Set(header[n], header[n+1])
		}
		a, err := world.Read(browser.Do(r))
		if err != nil {
			b.i.t.Fatal(err)
		}
		to, err := url.Parse(a.Header.Get("Location"))
		if a.Status != http.StatusMovedPermanently || err != nil || to.Host == b.host {
			return a
		}
		b.host = to.Host
	}
}

// caches waits until a node reports that the object cache is active.
func (b *blog) caches(w *world.World) {
	b.i.t.Helper()
	var now struct{ ObjectCache struct{ Status string } }
	b.i.until("the object cache is active", func() bool {
		err := w.Call(b.i.t.Context(), b.i.key, "GET", "/sites/"+b.id+"/wordpress", nil, &now)
		return err == nil && now.ObjectCache.Status == "active"
	})
}

func (b *blog) shows(w *world.World, want string) {
	b.i.t.Helper()
	b.i.until("the front page has "+want, func() bool {
		a := b.ask(w, nil, "GET", "/", "")
		return a.Status == 200 && strings.Contains(string(a.Body), want)
	})
}

// publishes logs in with a login link at a node, and publishes a post.
func (b *blog) publishes(w *world.World, title string) {
	t := b.i.t
	t.Helper()
	var link struct{ URL string }
	if err := w.Call(t.Context(), b.i.key, "POST", "/sites/"+b.id+"/wordpress/login", nil, &link); err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(link.URL)
	if err != nil {
		t.Fatal(err)
	}
	cookies, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	if a := b.ask(w, cookies, "GET", u.RequestURI(), ""); a.Status != 302 {
		t.Fatalf("the link answers %d: %.300s", a.Status, a.Body)
	}
	nonce := b.ask(w, cookies, "GET", "/wp-admin/admin-ajax.php?action=rest-nonce", "")
	a := b.ask(w, cookies, "POST", "/wp-json/wp/v2/posts", `{"title": "`+title+`", "status": "publish"}`,
		"X-WP-Nonce", string(nonce.Body), "Content-Type", "application/json")
	if a.Status != 201 {
		t.Fatalf("a new post: %d %.300s", a.Status, a.Body)
	}
}
