package edge

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"slipway/internal/platform/id"
)

// settle changes a site's serving settings and waits until the edge uses them.
func (w *world) settle(site id.Site, settings string) {
	w.t.Helper()
	if err := w.DB.Admin(w.t.Context(),
		`INSERT INTO site_serving (site_id, settings) VALUES ('`+string(site)+`', '`+settings+`') ON CONFLICT (site_id) DO UPDATE SET settings = excluded.settings`); err != nil {
		w.t.Fatal(err)
	}
	of := w.table.hosts().of(site)
	w.live(site, of.label, of.state, of.release)
	w.until("the settings are in force", func() bool { return w.table.hosts().of(site).settings == settings })
}

// A rule forwards requests only to hosts that the settings allow. Headers are cleaned in both directions.
func TestProxied(t *testing.T) {
	t.Parallel()
	var got *http.Request
	var body string
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got, body = r.Clone(r.Context()), string(b)
		for _, c := range []string{
			"own=1", "host=1; Domain=blog.sites.test", "shared=1; Domain=sites.test", "dotted=1; Domain=.sites.test",
			"parent=1; Domain=test", "neighbour=1; Domain=other.sites.test",
		} {
			w.Header().Add("Set-Cookie", c)
		}
		w.Header().Set("Alt-Svc", `h3=":443"`)
		w.Header().Set("X-Api", "1")
		w.WriteHeader(201)
		fmt.Fprint(w, "from the API")
	}))
	t.Cleanup(api.Close)
	upstream, _ := url.Parse(api.URL)
	w := start(t, func(c *Config) { c.Out = http.DefaultTransport })
	id := w.publish(map[string]string{
		"index.html":     "home",
		"api/there.html": "a file",
		"_redirects":     "/api/* " + api.URL + "/v1/:splat 200\n/other/* http://127.0.0.1:1/:splat 200\n",
		"_headers":       "/*\n  X-Rule: 1\n",
	})
	w.live("s1", "blog", stateLive, id)
	const host = "https://blog.sites.test"
	w.get(host+"/api/users").want(t, 404, "")
	w.do("POST", host+"/api/users").want(t, 404, "")
	if got != nil {
		t.Fatal("forwarded although no setting allows it")
	}
	w.settle("s1", `{"proxyHosts":["`+upstream.Host+`"]}`)
	a := w.do("POST", host+"/api/users%2Fx/a%20b?q=1", "X-Forwarded-For: 6.6.6.6", "Forwarded: for=6.6.6.6",
		"Cookie: a=1", "X-Own: 1").want(t, 201, "from the API").
		head(t, "X-Api", "1").head(t, "Alt-Svc", "").head(t, "X-Rule", "")
	if c := a.header["Set-Cookie"]; len(c) != 2 || !strings.HasPrefix(c[0], "own=") || !strings.HasPrefix(c[1], "host=") {
		t.Errorf("cookies: %q", c)
	}
	if got.URL.RequestURI() != "/v1/users/x/a%20b?q=1" || got.Host != upstream.Host || got.Header.Get("X-Forwarded-For") != "127.0.0.1" || got.Header.Get("X-Forwarded-Host") == "" ||
		got.Header.Get("Forwarded") != "" || got.Header.Get("X-Own") != "1" || got.Header.Get("Cookie") != "a=1" ||
		!strings.Contains(got.Header.Get("Via"), "slipway") {
		t.Errorf("what arrived: %s %s %v", got.Host, got.URL, got.Header)
	}
	_ = body
	w.get(host+"/api/there").want(t, 200, "a file").head(t, "X-Rule", "1")
	w.do("POST", host+"/").want(t, 405, "")
	w.get(host+"/other/x").want(t, 404, "") // another port counts as another host
	w.get(host+"/api/x", "Via: 1.1 slipway, 1.1 slipway, 1.1 slipway").want(t, 508, "")
	api.Close()
	w.get(host+"/api/x").want(t, 502, "")
}

// A protected site shows nothing without the password, at any address and for any method. The cookie is valid for its
// host only, and until the password changes.
func TestProtected(t *testing.T) {
	t.Parallel()
	w := start(t, func(c *Config) { c.Password = func(hash, given string) bool { return hash == "hash of "+given } })
	id := w.publish(map[string]string{
		"index.html": "home",
		"404.html":   "nothing",
		"a.js":       script,
		"_redirects": "/old /new\n",
		"_headers":   "/a.js\n  Cache-Control: public, max-age=60\n",
	})
	w.live("s1", "blog", stateLive, id)
	const host = "https://blog.sites.test"
	w.settle("s1", `{"protection":"previews","hash":"hash of right horse"}`)
	w.get(host+"/").want(t, 200, "home")
	w.settle("s1", `{"protection":"all","hash":"hash of right horse"}`)
	for _, path := range []string{"/", "/a.js", "/old", "/nothing", "/.env", "//x", "/%00"} {
		w.get(host+path).want(t, 401, "This site is protected").head(t, "Cache-Control", "no-store").head(t, "Location", "")
	}
	w.do("HEAD", host+"/").want(t, 401, "")
	w.do("PUT", host+"/").want(t, 401, "")
	login := func(password string) answer {
		return w.send("POST", host+"/a.js?x=1", strings.NewReader(url.Values{accessField: {password}}.Encode()),
			"Content-Type: application/x-www-form-urlencoded")
	}
	login("wrong horse").want(t, 401, "Wrong password").head(t, "Set-Cookie", "")
	a := login("right horse").want(t, 303, "").head(t, "Location", "/a.js?x=1")
	c, err := http.ParseSetCookie(a.header.Get("Set-Cookie"))
	if err != nil || !c.Secure || !c.HttpOnly || c.Path != "/" || c.Domain != "" {
		t.Fatalf("cookie %q: %v", a.header.Get("Set-Cookie"), err)
	}
	cookie := "Cookie: " + accessCookie + "=" + c.Value
	w.get(host+"/", cookie).want(t, 200, "home").head(t, "Cache-Control", "private, max-age=0, must-revalidate")
	w.get(host+"/a.js", cookie).want(t, 200, script).head(t, "Cache-Control", "private, max-age=60")
	w.get(host+"/old", cookie).want(t, 301, "").head(t, "Cache-Control", "private, max-age=0, must-revalidate")
	w.get(host+"/", cookie+"x").want(t, 401, "")
	w.get(host+"/", strings.Replace(cookie, "=", "=z", 1)).want(t, 401, "")
	w.live("s2", "other", stateLive, id)
	w.settle("s2", `{"protection":"all","hash":"hash of right horse"}`)
	w.get("https://other.sites.test/", cookie).want(t, 401, "")
	w.settle("s1", `{"protection":"all","hash":"hash of another"}`)
	w.get(host+"/", cookie).want(t, 401, "")
	w.settle("s1", `not JSON`)
	w.get(host+"/").want(t, 401, "")
	w.settle("s1", `{"protection":"all","hash":"hash of right horse"}`)
	limited := false
	for range guesses + 1 {
		limited = limited || login("guess of a horse").status == 429
	}
	if !limited {
		t.Error("guesses have no limit")
	}
	if a := login("right horse"); a.status != 429 {
		t.Errorf("after too many guesses: %d", a.status)
	}
}
