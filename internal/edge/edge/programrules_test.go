package edge

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"slipway/internal/build/release"
	"slipway/internal/platform/id"
)

// ruled is a program with a cached page to which a release's rules apply, such as WordPress.
type ruled struct {
	*pages
	own *release.Tree
}

func (p *ruled) Rules(context.Context, id.Deployment) (*release.Tree, error) { return p.own, nil }

func (p *ruled) Vouches(_ context.Context, _ id.Deployment, r *http.Request) bool {
	return r.Header.Get("Own") != ""
}

// A release's redirects and headers apply to some kinds of programs, and the site's own rules take precedence.
func TestProgramRules(t *testing.T) {
	t.Parallel()
	p := &ruled{pages: &pages{}}
	text := "page one"
	p.page.Store(&text)
	p.programs = startProgram(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/admin":
			w.Header().Set("Cache-Control", "no-cache, must-revalidate")
		case "/broken":
			w.WriteHeader(http.StatusInternalServerError)
		}
		_, _ = w.Write([]byte("program " + r.URL.Path + r.Header.Get("Authorization")))
	}, func(c *Config) {
		p.programs = c.Programs["node"].(*programs)
		c.Programs["node"] = p
	})
	files := map[string]string{
		"ads.txt": "ads", "gone.html": "it is gone",
		"_redirects": "/old/* /new/:splat 301\n/page /elsewhere 302\n/nice /index.php 200\n/away /gone.html 410\n/list /ads.txt 200\n/closed/* /gone.html 404!\n/shut.php /gone.html 403!\n",
		"_headers":   "/*\n  X-Frame-Options: DENY\n  Cache-Control: public, max-age=60\n  CDN-Cache-Control: max-age=60\n/secret/*\n  Basic-Auth: anna:geheim\n",
	}
	const at = "https://app.sites.test"
	plain := p.publish(map[string]string{"ads.txt": "ads"})
	p.switchTo(plain)
	p.get(at+"/page").want(t, 200, "page one")
	p.switchTo(p.publish(files))
	p.get(at+"/old/a?x=1").want(t, 301, "").head(t, "Location", "/new/a?x=1").head(t, "X-Frame-Options", "DENY")
	p.get(at+"/page").want(t, 302, "").head(t, "Location", "/elsewhere")
	if a := p.do("POST", at+"/old/a"); a.status != 301 {
		t.Errorf("POST: %d", a.status)
	}
	p.get(at+"/nice").want(t, 200, "program /nice").head(t, "Cache-Control", "public, max-age=60").head(t, "X-Frame-Options", "DENY")
	p.get(at+"/away").want(t, 410, "it is gone")
	p.get(at+"/list").want(t, 200, "ads")
	if a := p.do("POST", at+"/list"); a.body != "program /list" {
		t.Errorf("POST to a file: %d %q", a.status, a.body)
	}
	p.get(at+"/ads.txt").want(t, 200, "ads").head(t, "X-Frame-Options", "DENY")
	p.get(at+"/admin").want(t, 200, "program /admin").head(t, "Cache-Control", "no-cache, must-revalidate").head(t, "Cdn-Cache-Control", "")
	p.get(at+"/broken").want(t, 500, "program /broken").head(t, "Cache-Control", "")
	p.get(at+"/secret/x").want(t, 401, "Password required")
	p.get(at+"/secret//x").want(t, 401, "Password required")
	p.get(at+"/secret/x", "Own: 1").want(t, 200, "program /secret/x")
	p.get(at+"/old/a", "Own: 1").want(t, 200, "program /old/a")
	// A path that PHP resolves to another path is protected like that one.
	for path, status := range map[string]int{
		"/./secret/x": 401, "/x/../secret/x": 401, "/x/%2e%2e/secret/x": 401, "/index.php/secret/x": 401, "/a/index.PHP//secret/x": 401,
		"/secret/x%C2%85": 404, "/%C2%85/../secret/x": 401, "/index.php/closed/x": 404, "/./closed/x": 404, "/shut.php/x": 403, "/shut.php": 403,
		strings.Repeat("/a.php", 20) + "/secret/x": 404,
		"/index.php/open":                          200, "/open/index.php": 200, "/x/../open": 200,
	} {
		if a := p.get(at + path); a.status != status {
			t.Errorf("%s: %d %.60q, want %d", path, a.status, a.body, status)
		}
	}
	p.get(at+"/secret/x", "Authorization: Basic YW5uYTpnZWhlaW0=").want(t, 200, "program /secret/x")

	p.own, _ = (&release.Tree{}).WithRules(map[string]string{"_redirects": "/old/a /mine 302\n/extra /mine 302\n", "_headers": "/*\n  X-Frame-Options: SAMEORIGIN\n"})
	p.get(at+"/old/a").want(t, 302, "").head(t, "Location", "/mine").head(t, "X-Frame-Options", "SAMEORIGIN")
	p.get(at+"/old/b").want(t, 301, "").head(t, "Location", "/new/b")
	p.switchTo(plain)
	p.get(at+"/extra").want(t, 302, "").head(t, "Location", "/mine")
	p.get(at+"/old/b").want(t, 200, "program /old/b").head(t, "X-Frame-Options", "SAMEORIGIN")

	p.own = nil
	p.switchTo(release.Empty) // a release that this store doesn't have
	p.get(at+"/old/b").want(t, 200, "program /old/b").head(t, "X-Frame-Options", "")
}
