package edge

import (
	"crypto/tls"
	"io"
	"net/http"
	"strings"
	"testing"
)

// asker returns a client for the site "app" that follows no redirect.
func (p *programs) asker() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			TLSClientConfig:    &tls.Config{RootCAs: p.roots, ServerName: "app.sites.test"},
			DisableCompression: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func (p *programs) askWith(t *testing.T, c *http.Client, path string, header map[string]string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+p.https+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = "app.sites.test"
	for name, value := range header {
		req.Header.Set(name, value)
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(text)
}

// A response that depends on one visitor's headers is never served to another: the edge doesn't store a program's
// responses, whatever their Cache-Control (the class of CVE-2026-44572).
func TestProgramPoisonsNobody(t *testing.T) {
	t.Parallel()
	p := startProgram(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
		for _, values := range r.Header {
			for _, v := range values {
				if strings.Contains(v, "poison") {
					http.Redirect(w, r, "https://evil.test/"+v, http.StatusPermanentRedirect)
					return
				}
			}
		}
		io.WriteString(w, "clean")
	})
	c := p.asker()
	for _, path := range []string{"/", "/_next/data/x.json", "/style.css", "/index.php"} {
		for _, name := range []string{
			"X-Nextjs-Data", "X-Middleware-Prefetch", "Rsc", "X-Host", "X-Original-Url", "X-Rewrite-Url", "Accept",
			"Accept-Language", "User-Agent", "Origin", "Cookie", "Range", "X-Custom",
		} {
			if resp, _ := p.askWith(t, c, path, map[string]string{name: "poison"}); resp.StatusCode != http.StatusPermanentRedirect {
				t.Errorf("%s with %s: %d", path, name, resp.StatusCode)
			}
			for range 2 {
				if resp, text := p.askWith(t, c, path, nil); resp.StatusCode != 200 || text != "clean" {
					t.Errorf("after %s with %s another visitor gets %d %q", path, name, resp.StatusCode, text)
				}
			}
		}
	}
}

// Response headers meant for a server in front, such as X-Sendfile, are removed and not obeyed.
func TestProgramServerHeaders(t *testing.T) {
	t.Parallel()
	p := startProgram(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Accel-Redirect", "/etc/passwd")
		w.Header().Set("X-Accel-Buffering", "no")
		w.Header().Set("X-Sendfile", "/etc/passwd")
		w.Header().Set("X-Own", "stays")
		io.WriteString(w, "itself")
	})
	resp, text := p.askWith(t, p.asker(), "/", nil)
	if text != "itself" || resp.Header.Get("X-Own") != "stays" ||
		resp.Header.Get("X-Accel-Redirect")+resp.Header.Get("X-Accel-Buffering")+resp.Header.Get("X-Sendfile") != "" {
		t.Errorf("%q %v", text, resp.Header)
	}
}
