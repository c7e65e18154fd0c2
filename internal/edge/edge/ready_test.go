package edge

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"slipway/internal/edge/fastpath"
	"slipway/internal/edge/fileserver"
	"slipway/internal/platform/visit"
)

// withoutFastPath serves the same edge on a second listener with net/http only.
func (w *world) withoutFastPath() (addr string) {
	w.t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	srv := w.Server(w.HTTPS())
	go srv.ServeTLS(ln, "", "")
	w.t.Cleanup(func() { srv.Close() })
	return ln.Addr().String()
}

// The fast path gives the same responses as the files backend: for every file, with and without compressed variants,
// for rules that depend on the request, for several hosts of a site, for previews, and after each switch.
func TestFastPathSaysTheSame(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	w := start(t, func(c *Config) { c.Metrics = reg })
	slow := w.withoutFastPath()
	files := map[string]string{
		"index.html":      "<h1>home</h1>" + script,
		"about.html":      "about",
		"docs/index.html": "docs",
		"app.js":          script,
		"empty.txt":       "",
		"photo.jpg":       "jpg",
		"big.bin":         strings.Repeat("0123456789", fileserver.Largest/10+1000),
		"404.html":        "not here",
		"de.html":         "deutsch",
		"beta.html":       "beta",
		"secret/x.html":   "secret",
		"a b.txt":         "blank",
		"_headers":        "/app.js\n  X-Rule: yes\n  Cache-Control: public, max-age=60\n/secret/*\n  Basic-Auth: joe:pass\n",
		"_redirects":      "/lang /de 200 Language=de\n/lang /about 200\n/cookie /beta 200 Cookie=beta\n/old /about 301\n/q x=:x /about?y=:x 302\n",
	}
	w.live("s1", "blog", stateLive, w.publish(files))
	w.live("s2", "shop", stateEmpty, "")
	if err := w.DB.Admin(t.Context(), `INSERT INTO custom_hosts (host, site_id, redirect_to, state, version) VALUES ('www.example.test', 's1', '', 'active', 1000), ('example.test', 's1', 'www.example.test', 'active', 1001)`); err != nil {
		t.Fatal(err)
	}
	w.until("custom hosts are known", func() bool { return w.table.hosts().claim("example.test") != nil })

	fast := w.client()
	ask := func(c *http.Client, method, url string, headers []string) answer {
		r, err := http.NewRequest(method, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range headers {
			name, value, _ := strings.Cut(h, ": ")
			r.Header.Add(name, value)
		}
		resp, err := c.Do(r)
		if err != nil {
			t.Fatalf("%s %s: %v", method, url, err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		h := maps.Clone(resp.Header)
		h.Del("Date")
		return answer{resp.StatusCode, h, withoutID(h, string(b))}
	}
	slowClient := w.client()
	slowClient.Transport.(*http.Transport).DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, slow)
	}
	compare := func() {
		t.Helper()
		for _, host := range []string{
			"blog.sites.test", "www.example.test", "example.test", "shop.sites.test", "nobody.sites.test",
			"abcdefghijkl--blog.sites.test", "panel.test",
		} {
			for _, path := range []string{
				"/", "/about", "/about.html", "/docs", "/docs/", "/app.js", "/empty.txt", "/photo.jpg", "/big.bin",
				"/nothing", "/lang", "/cookie", "/old", "/q?x=1", "/app.js?v=1", "/secret/x", "/a%20b.txt",
				"/_headers", "//about", "/%2e%2e/app.js", "/index.html",
			} {
				if strings.HasPrefix(host, "www") && path == "/big.bin" {
					continue
				}
				for _, headers := range [][]string{
					nil,
					{"Accept-Encoding: br, gzip"},
					{"Accept-Encoding: gzip, deflate, br, zstd", "Cookie: beta=1", "Accept-Language: de"},
					{"Authorization: Basic am9lOnBhc3M="},
					{"Range: bytes=0-1"},
					{"If-None-Match: TAG"},
					{"If-None-Match: TAG", "Accept-Encoding: gzip, br"},
					{`If-None-Match: "other"`},
				} {
					for _, method := range []string{"GET", "HEAD"} {
						url := "https://" + host + path
						if len(headers) > 0 && strings.HasSuffix(headers[0], "TAG") {
							tag := ask(slowClient, "GET", url, headers[1:]).header.Get("Etag")
							headers = append([]string{"If-None-Match: " + tag}, headers[1:]...)
						}
						got, want := ask(fast, method, url, headers), ask(slowClient, method, url, headers)
						if fmt.Sprint(got) != fmt.Sprint(want) {
							t.Errorf("%s %s %v:\nwith the fast path %.600v\nwithout %.600v", method, url, headers, got, want)
						}
					}
				}
			}
		}
	}
	compare()
	compare() // now from memory
	if metricsOf(t, reg)["slipway_edge_cache_total answer hit"] == 0 {
		t.Error("nothing was answered by the fast path")
	}
	files["app.js"], files["about.html"] = script+"// new", "about, again"
	delete(files, "_redirects")
	w.live("s1", "blog", stateLive, w.publish(files))
	compare()
	w.live("s1", "blog", stateStopped, "")
	compare()
}

// A ready answer is found without an allocation, and its visits are counted.
func TestReady(t *testing.T) { // not parallel: it counts allocations
	var mu sync.Mutex
	var pages int64
	w := start(t, func(c *Config) {
		c.Metrics = prometheus.NewRegistry()
		c.VisitsEvery = 10 * time.Millisecond
		c.Visits = visitsTo(func(_ context.Context, _ visit.Batch, group []visit.Counts) error {
			mu.Lock()
			defer mu.Unlock()
			for _, v := range group {
				pages += v.Pages
			}
			return nil
		})
	})
	w.live("s1", "blog", stateLive, w.publish(map[string]string{"index.html": "hello", "app.js": script}))
	path, at := []byte("/"), &fastpath.Place{Host: "blog.sites.test"}
	if w.ready(at, path, 0) == nil {
		t.Fatal("not ready")
	}
	if n := testing.AllocsPerRun(100, func() { w.ready(at, path, 0) }); n >= 1 {
		t.Errorf("%v allocations", n)
	}
	for range 5 {
		w.get("https://blog.sites.test/").want(t, 200, "hello")
	}
	w.do("HEAD", "https://blog.sites.test/")
	w.until("visits are counted", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return pages == 5
	})
}

func BenchmarkReady(b *testing.B) {
	w := start(b)
	w.live("s1", "blog", stateLive, w.publish(map[string]string{"index.html": "hello"}))
	path, at := []byte("/"), &fastpath.Place{Host: "blog.sites.test"}
	b.ReportAllocs()
	for b.Loop() {
		if w.ready(at, path, 0) == nil {
			b.Fatal("not ready")
		}
	}
}
