package edge

import (
	"encoding/base64"
	"strconv"
	"testing"
)

// Redirects, rewrites, headers and passwords of a site's rules files apply to visitors' requests.
func TestRules(t *testing.T) {
	t.Parallel()
	w := start(t)
	id := w.publish(map[string]string{
		"index.html":       "home",
		"de/index.html":    "zuhause",
		"gone.html":        "it is gone",
		"secret/plan.html": "the plan",
		"a.js":             script,
		"404.html":         "nothing here",
		"_redirects":       "/old/* /new/:splat 302\n/ /de/ 302! Language=de\n/away /gone.html 410\n/app/* /index.html 200\n/out https://example.com/ 301\n/a /b\n/b /a\n/api/* https://api.example.com/:splat 200\n",
		"_headers": "/*\n  X-Frame-Options: DENY\n  X-Robots-Tag: all\n/a.js\n  Cache-Control: public, max-age=60\n  Content-Type: application/x-own\n/de/*\n  ! X-Frame-Options\n" +
			"/secret/*\n  Basic-Auth: anna:geheim ben:pw:with:colons\n",
	})
	w.live("s1", "blog", stateLive, id)
	const host = "https://blog.sites.test"
	w.get(host+"/old/a%20b?x=1").want(t, 302, "").head(t, "Location", "/new/a%20b?x=1").head(t, "Content-Length", "0")
	w.get(host+"/", "Accept-Language: de-AT, en;q=0.5").want(t, 302, "").head(t, "Location", "/de/").head(t, "Vary", "Accept-Language")
	w.get(host+"/", "Accept-Language: en").want(t, 200, "home").head(t, "Vary", "Accept-Language").head(t, "X-Frame-Options", "DENY").head(
		t,
		"X-Robots-Tag",
		"all",
	)
	w.get(host+"/de/").want(t, 200, "zuhause").head(t, "X-Frame-Options", "").head(t, "X-Content-Type-Options", "nosniff")
	w.get(host+"/away").want(t, 410, "it is gone").head(t, "Etag", "")
	w.get(host+"/app/users/7").want(t, 200, "home").head(t, "Content-Type", "text/html; charset=utf-8")
	w.get(host+"/out").want(t, 301, "").head(t, "Location", "https://example.com/")
	w.get(host+"/a").want(t, 404, "nothing here")
	w.get(host+"/a.js", "Accept-Encoding: gzip").want(t, 200, "").head(t, "Cache-Control", "public, max-age=60").head(t,
		"Content-Type", "application/x-own").head(t, "Vary", "Accept-Encoding")
	for _, path := range []string{"/_redirects", "/_headers", "/_redirects/", "/%5fheaders"} {
		w.get(host+path).want(t, 404, "nothing here")
	}
	// Every spelling of a protected path asks for the password.
	for _, path := range []string{"/secret/plan", "/secret//plan", "/%73ecret/plan", "/secret/plan.html", "/secret/nothing", "/secret"} {
		w.get(host+path).want(t, 401, "Password required").head(t, "WWW-Authenticate", `Basic realm="Protected", charset="UTF-8"`).head(
			t,
			"Cache-Control",
			"no-store",
		)
	}
	auth := func(pair string) string {
		return "Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(pair))
	}
	for _, pair := range []string{"anna:geheim", "ben:pw:with:colons"} {
		w.get(host+"/secret/plan", auth(pair)).want(t, 200, "the plan").head(t, "Cache-Control", "private, max-age=0, must-revalidate")
	}
	for _, pair := range []string{"anna:wrong", "ben:geheim", "anna:", ":", "none"} {
		w.get(host+"/secret/plan", auth(pair)).want(t, 401, "")
	}
	for range 3 * guesses {
		w.get(host+"/secret/plan", auth("anna:guess"))
	}
	locked := w.get(host+"/secret/plan", auth("anna:geheim")).want(t, 429, "")
	if wait, err := strconv.Atoi(locked.header.Get("Retry-After")); err != nil || wait < 1 || wait > 60 {
		t.Errorf("Retry-After is %q, want the rest of a minute", locked.header.Get("Retry-After"))
	}
	w.get(host+"/").want(t, 200, "home")

	// The fast path keeps only responses that are the same for all visitors, and finds that out without contacting
	// another host.
	w.settle("s1", `{"proxyHosts":["api.example.com"]}`)
	at := w.table.hosts().of("s1")
	for path, kept := range map[string]bool{
		"/a.js":        true,
		"/app/users/7": true,
		"/":            false,
		"/secret/plan": false,
		"/api/x":       false,
		"/old/x":       false,
		"/nothing":     false,
	} {
		if a := w.prepare(at, "blog.sites.test", path, 0); (a != nil) != kept {
			t.Errorf("%s: kept by the fast path: %v", path, a != nil)
		}
	}
}
