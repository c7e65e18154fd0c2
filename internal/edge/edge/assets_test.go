package edge

import (
	"net/http"
	"strings"
	"testing"

	"slipway/internal/build/release"
	"slipway/internal/edge/response"
	"slipway/internal/platform/db"
)

// switchTo makes a release the one whose static files are served for the site "app".
func (p *programs) switchTo(id release.ID) {
	p.t.Helper()
	err := p.DB.Write(p.t.Context(), func(tx *db.Tx) error {
		tx.Notify("live")
		_, err := tx.Exec(p.t.Context(), `UPDATE live SET release = $1, version = $2 WHERE host_label = 'app'`, id, p.version.Add(1))
		return err
	})
	if err != nil {
		p.t.Fatal(err)
	}
	p.until("the release is in force", func() bool { return p.table.hosts().find("app").release == id })
}

// A program's static files are served without asking the program, by their exact paths. Immutable assets of earlier
// releases stay available to pages that still refer to them.
func TestProgramAssets(t *testing.T) {
	t.Parallel()
	p := startProgram(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusTeapot)
		w.Write([]byte(r.URL.Path))
	})
	first := p.publish(map[string]string{
		"_next/static/chunks/a.js": "first a",
		"robots.txt":               "first robots",
		"only.txt":                 "first only",
		"styles.css":               strings.Repeat("a { color: red }\n", 1000),
		"index.html":               "<p>",
		"about/index.html":         "<p>",
	})
	p.switchTo(first)
	check := func(method, path string, status int, body, cache string) {
		t.Helper()
		a := p.do(method, "https://app.sites.test"+path)
		if a.status != status || body != "" && a.body != body || a.header.Get("Cache-Control") != cache {
			t.Errorf("%s %s: %d %q, Cache-Control %q; want %d %q %q", method, path, a.status, a.body,
				a.header.Get("Cache-Control"), status, body, cache)
		}
	}
	check("GET", "/_next/static/chunks/a.js", 200, "first a", "public, max-age=31536000, immutable")
	check("HEAD", "/_next/static/chunks/a.js", 200, "", "public, max-age=31536000, immutable")
	check("GET", "/robots.txt", 200, "first robots", response.Revalidate[0])
	if a := p.get("https://app.sites.test/styles.css",
		"Accept-Encoding: gzip, br"); a.status != 200 || a.header.Get("Content-Encoding") != "br" ||
		a.header.Get("Vary") != "Accept-Encoding" || len(a.body) > 1000 {
		t.Errorf("a style sheet is not compressed: %d, %d bytes, %v", a.status, len(a.body), a.header)
	}
	for _, path := range []string{"/", "/about", "/about/", "/robots", "/missing.txt", "//robots.txt", "/x/../robots.txt"} {
		if a := p.get("https://app.sites.test" + path); a.status != http.StatusTeapot {
			t.Errorf("%s: %d, although it is no file's own path", path, a.status)
		}
	}
	check("POST", "/robots.txt", http.StatusTeapot, "/robots.txt", "")
	second := p.publish(map[string]string{"_next/static/chunks/b.js": "second b", "robots.txt": "second robots"})
	p.switchTo(second)
	check("GET", "/robots.txt", 200, "second robots", response.Revalidate[0])
	check("GET", "/_next/static/chunks/b.js", 200, "second b", "public, max-age=31536000, immutable")
	check("GET", "/_next/static/chunks/a.js", 200, "first a", "public, max-age=31536000, immutable")
	check("GET", "/only.txt", http.StatusTeapot, "/only.txt", "")
	p.switchTo(first) // rollback
	check("GET", "/_next/static/chunks/b.js", 200, "second b", "public, max-age=31536000, immutable")
	check("GET", "/robots.txt", 200, "first robots", response.Revalidate[0])
	for i := range earlierMost {
		p.switchTo(p.publish(map[string]string{"n": string(rune('a' + i))}))
	}
	check("GET", "/_next/static/chunks/b.js", http.StatusTeapot, "/_next/static/chunks/b.js", "")
	check("GET", "/_next/static/chunks/a.js", 200, "first a", "public, max-age=31536000, immutable")
	if held := p.held.Load(); held != 0 {
		t.Errorf("%d programs are held", held)
	}
}
