package edge

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"slipway/internal/platform/id"

	"slipway/internal/edge/fastpath"
	"slipway/internal/platform/visit"
)

// Names of package access's cookies, and a visitor's limit of guesses per minute.
const (
	accessCookie = "__Host-slipway_access"
	memberCookie = "__Host-slipway_member"
	nonceCookie  = "__Host-slipway_nonce"
	accessField  = "slipway_password"
	guesses      = 10
)

// standInMembers writes as plain JSON what the real Members encrypts.
type standInMembers struct{}

func (standInMembers) Ask(q visit.Question) string {
	text, _ := json.Marshal(q)
	return "https://slipway.test/access?ask=" + url.QueryEscape(string(text))
}

func (standInMembers) Granted(grant string) (q visit.Question, until time.Time, ok bool) {
	ok = json.Unmarshal([]byte(grant), &q) == nil
	return q, time.Now().Add(time.Hour), ok
}

func (standInMembers) Pass(q visit.Question, host string, _ time.Time) string {
	text, _ := json.Marshal(sealedCookie{q.Site, host})
	return url.QueryEscape(string(text))
}

func (standInMembers) Passes(_ context.Context, value string, site id.Site, host string) bool {
	text, _ := url.QueryUnescape(value)
	var c sealedCookie
	return json.Unmarshal([]byte(text), &c) == nil && c == sealedCookie{site, host}
}

type sealedCookie struct {
	Site id.Site
	Host string
}

func cookies(t *testing.T, a answer) map[string]*http.Cookie {
	t.Helper()
	out := map[string]*http.Cookie{}
	for _, line := range a.header["Set-Cookie"] {
		c, err := http.ParseSetCookie(line)
		if err != nil || !c.Secure || !c.HttpOnly || c.Path != "/" || c.Domain != "" || c.SameSite != http.SameSiteLaxMode {
			t.Fatalf("cookie %q: %v", line, err)
		}
		out[c.Name] = c
	}
	return out
}

// An address for members shows nothing before sign-in. The browser that asked returns with a grant to the path it
// requested on the same host, and the grant works only in that browser.
func TestMembers(t *testing.T) {
	t.Parallel()
	w := start(t, func(c *Config) {
		c.Members = standInMembers{}
		c.Password = func(hash, given string) bool { return hash == "hash of "+given }
	})
	id := w.publish(map[string]string{"index.html": "home", "a.js": script, ".slipway/sign-in": "theirs"})
	w.live("s1", "blog", stateLive, id)
	w.live("s2", "other", stateLive, id)
	const host = "https://blog.sites.test"
	w.settle("s1", `{"signIn":"previews"}`)
	w.get(host+"/").want(t, 200, "home")
	w.settle("s1", `{"signIn":"all"}`)
	w.settle("s2", `{"signIn":"all"}`)
	for _, path := range []string{"/", "/a.js", "/nothing", "//x", "/.slipway/granted", "/.slipway/granted?grant=x"} {
		w.get(host+path).want(t, 401, "Sign in").head(t, "Cache-Control", "no-store").head(t, "Location", "").head(t, "Refresh", "")
	}
	w.do("HEAD", host+"/").want(t, 401, "")
	w.do("PUT", host+"/").want(t, 401, "")
	w.do("POST", host+"/").want(t, 401, "")

	ask := func(path string) (visit.Question, *http.Cookie) {
		t.Helper()
		a := w.get(host+path, "Accept: text/html,*/*").want(t, 401, "Only members")
		to, found := strings.CutPrefix(a.header.Get("Refresh"), "0; url=")
		if !found {
			to = a.header.Get("Location")
		}
		u, err := url.Parse(to)
		if err != nil || u.Host != "slipway.test" {
			t.Fatalf("leads to %q", to)
		}
		var q visit.Question
		if err := json.Unmarshal([]byte(u.Query().Get("ask")), &q); err != nil {
			t.Fatal(err)
		}
		c := cookies(t, a)[nonceCookie]
		if c == nil || c.Value != q.Nonce || len(q.Nonce) != 22 || q.Site != "s1" {
			t.Fatalf("asked %+v with cookie %v", q, c)
		}
		return q, c
	}
	grant := func(q visit.Question) string {
		text, _ := json.Marshal(q)
		return "/.slipway/granted?grant=" + url.QueryEscape(string(text))
	}
	q, nonce := ask("/a.js?x=1")
	if fastpath.Hostname(q.Host) != "blog.sites.test" || q.Path != "/a.js?x=1" {
		t.Errorf("asked %+v", q)
	}
	if again, c := ask("/.slipway/x"); again.Path != "/" || c.Value == nonce.Value {
		t.Errorf("a path of ours: %+v", again)
	}
	browser := "Cookie: " + nonceCookie + "=" + nonce.Value
	for name, bad := range map[string]struct {
		host, path, cookie string
	}{
		"another browser": {host, grant(q), "Cookie: " + nonceCookie + "=" + strings.Repeat("x", 22)},
		"no nonce": {
			host,
			grant(visit.Question{Site: q.Site, Host: q.Host, Path: q.Path, Nonce: ""}),
			"Cookie: " + nonceCookie + "=",
		},
		"a grant of no one": {host, "/.slipway/granted?grant=x", browser},
		"another site's":    {host, grant(visit.Question{Site: "s2", Host: q.Host, Path: q.Path, Nonce: q.Nonce}), browser},
		"another host's": {
			host,
			grant(visit.Question{Site: q.Site, Host: "pr-1--blog.sites.test", Path: q.Path, Nonce: q.Nonce}),
			browser,
		},
		"on another site": {"https://other.sites.test", grant(q), browser},
	} {
		if a := w.get(bad.host+bad.path, bad.cookie); a.status != 401 || a.header.Get("Set-Cookie") != "" {
			t.Errorf("%s: %d %v", name, a.status, a.header)
		}
	}
	for path, want := range map[string]string{
		"/a.js?x=1":          "/a.js?x=1",
		"//evil.test/":       "/evil.test/",
		"/\\evil.test":       "/evil.test",
		`\\evil.test`:        "/evil.test",
		"https://evil.test/": "/https://evil.test/",
		"":                   "/",
	} {
		q := q
		q.Path = path
		w.get(host+grant(q), browser).want(t, 303, "").head(t, "Location", want).head(t, "Referrer-Policy", "no-referrer")
	}
	pass := cookies(t, w.get(host+grant(q), browser))[memberCookie]
	cookie := "Cookie: " + memberCookie + "=" + pass.Value
	w.get(host+"/", cookie).want(t, 200, "home").head(t, "Cache-Control", "private, max-age=0, must-revalidate")
	w.get(host+"/a.js", cookie).want(t, 200, "")
	w.get(host+"/", cookie+"x").want(t, 401, "")
	w.get("https://other.sites.test/", cookie).want(t, 401, "")
	w.get(host+"/.slipway/sign-in", cookie).want(t, 303, "")

	w.settle("s1", `{"signIn":"all","protection":"all","hash":"hash of right horse"}`)
	w.get(host+"/", "Accept: text/html").want(t, 401, "Enter the password, or sign in").head(t, "Refresh", "")
	w.get(host+"/", cookie).want(t, 200, "home")
	a := w.send("POST", host+"/", strings.NewReader(accessField+"=right+horse"), "Content-Type: application/x-www-form-urlencoded").want(
		t,
		303,
		"",
	)
	w.get(host+"/", "Cookie: "+accessCookie+"="+cookies(t, a)[accessCookie].Value).want(t, 200, "home")
	w.settle("s1", `{"signIn":"none","protection":"all","hash":"hash of right horse"}`)
	w.get(host+"/", cookie).want(t, 401, "Enter the password to continue")
}
