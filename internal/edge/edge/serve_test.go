package edge

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"slipway/internal/build/release"
	"slipway/internal/edge/fileserver"
	"slipway/internal/platform/visit"
)

var script = strings.Repeat("console.log('hello');\n", 200)

func site1(t *testing.T) (*world, release.ID) {
	w := start(t)
	id := w.publish(map[string]string{
		"index.html":                "<h1>home</h1>",
		"about.html":                "<h1>about</h1>",
		"docs/index.html":           "<h1>docs</h1>",
		"docs/404.html":             "<h1>no such page in docs</h1>",
		"app.js":                    script,
		"assets/index-BxYz12ab.js":  script + "1",
		"assets/main.abcdef12.css":  strings.Repeat("a{}\n", 300),
		"photo.jpg":                 strings.Repeat("jpeg", 100),
		"big.bin":                   strings.Repeat("0123456789", fileserver.Largest/10+1000),
		".well-known/security.txt":  "Contact: x",
		"a file ü.txt":              "odd name",
		"assets/page.abcdef12.html": "never for ever",
	})
	w.live("s1", "blog", stateLive, id)
	return w, id
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	w, _ := site1(t)
	const host = "https://blog.sites.test"
	w.get(host+"/").want(t, 200, "<h1>home</h1>").
		head(t, "Content-Type", "text/html; charset=utf-8").head(t, "X-Content-Type-Options", "nosniff").
		head(t, "Cache-Control", "public, max-age=0, must-revalidate").head(t, "Content-Length", "13").head(t, "Accept-Ranges", "bytes")
	w.get(host+"/about").want(t, 200, "<h1>about</h1>")
	w.get(host+"/about.html?x=1&y=%2F").want(t, 308, "").head(t, "Location", "/about?x=1&y=%2F")
	w.get(host+"/docs?q").want(t, 308, "").head(t, "Location", "/docs/?q").head(t, "Content-Length", "0")
	w.get(host+"/docs/x/y").want(t, 404, "no such page in docs").head(t, "Etag", "").head(t, "Cache-Control",
		"public, max-age=0, must-revalidate")
	w.get(host+"/nothing").want(t, 404, "This site has no page at this address").head(t, "Cache-Control", "no-store")
	w.get(host+"/a%20file%20%C3%BC.txt").want(t, 200, "odd name").head(t, "Content-Type", "text/plain; charset=utf-8")
	w.get(host+"/.well-known/security.txt").want(t, 200, "Contact")
	w.get(host+"//evil.test/..").want(t, 404, "")
	w.get(host+"/photo.jpg").want(t, 200, "jpeg").head(t, "Vary", "").head(t, "Content-Type", "image/jpeg")
	for path, want := range map[string]string{
		"/assets/index-BxYz12ab.js": "public, max-age=31536000, immutable",
		"/assets/main.abcdef12.css": "public, max-age=31536000, immutable",
		"/app.js":                   "public, max-age=0, must-revalidate",
		"/assets/page.abcdef12":     "public, max-age=0, must-revalidate",
	} {
		w.get(host+path).want(t, 200, "").head(t, "Cache-Control", want)
	}
	for _, method := range []string{"POST", "PUT", "DELETE", "PATCH", "BREW"} {
		w.do(method, host+"/").want(t, 405, "").head(t, "Allow", "GET, HEAD, OPTIONS")
	}
	for _, path := range []string{"/", "/app.js", "/big.bin", "/nothing", "/docs/zzz"} {
		get, head := w.get(host+path), w.do("HEAD", host+path)
		if head.status != get.status || head.body != "" {
			t.Errorf("HEAD %s: status %d with %d bytes, GET has %d", path, head.status, len(head.body), get.status)
		}
		for _, name := range []string{"Content-Length", "Content-Type", "Etag", "Cache-Control", "Vary"} {
			head.head(t, name, get.header.Get(name))
		}
		if get.header.Get("Content-Length") != fmt.Sprint(len(get.body)) {
			t.Errorf("%s: Content-Length %s, %d bytes", path, get.header.Get("Content-Length"), len(get.body))
		}
	}
}

// A file damaged on disk is answered with an error or an aborted response, never a complete one. If only a compressed
// variant is damaged, the file itself is served.
func TestDamage(t *testing.T) {
	t.Parallel()
	w, id := site1(t)
	tree, err := w.Releases.Load(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	damage := func(c release.Content, how func(path string) error) {
		t.Helper()
		name := c.Digest.String()
		if err := how(filepath.Join(w.dir, "blobs", name[:2], name)); err != nil {
			t.Fatal(err)
		}
	}
	flip := func(path string) error {
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		b[len(b)/2] ^= 1
		return os.WriteFile(path, b, 0o600)
	}
	file := func(path string) release.File {
		f, ok := tree.Lookup(path)
		if !ok {
			t.Fatal(path, fs.ErrNotExist)
		}
		return f
	}
	damage(file("app.js").Brotli, flip)
	a := w.get("https://blog.sites.test/app.js", "Accept-Encoding: br").head(t, "Content-Encoding", "")
	if a.status != 200 || a.body != script {
		t.Errorf("a damaged variant: status %d, %d bytes", a.status, len(a.body))
	}
	damage(file("photo.jpg").Body, func(p string) error { return os.Truncate(p, 100) })
	w.get("https://blog.sites.test/photo.jpg").want(t, 500, "internal error occurred").head(t, "Cache-Control", "no-store").head(
		t,
		"Etag",
		"",
	)
	damage(file("about.html").Body, os.Remove)
	w.get("https://blog.sites.test/about").want(t, 500, "internal error occurred")

	damage(file("big.bin").Body, flip)
	for range 2 {
		resp, err := w.client().Get("https://blog.sites.test/big.bin")
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(resp.Body); err == nil {
			t.Errorf("a damaged file was served as if whole: %d bytes", len(b))
		}
		resp.Body.Close()
	}
	damage(file("big.bin").Body, func(p string) error { return os.Truncate(p, 1000) })
	w.get("https://blog.sites.test/big.bin").want(t, 500, "internal error occurred")
	w.get("https://blog.sites.test/").want(t, 200, "home")
}

// During a hundred switches under load, every request succeeds, every response is of one release, and no visitor gets
// an older release after a newer one.
func TestFlips(t *testing.T) {
	t.Parallel()
	w := start(t)
	const flips = 100
	page := func(n int) map[string]string {
		files := map[string]string{}
		for _, name := range []string{"index.html", "a.js", "b.css", "c.png"} {
			files[name] = strings.Repeat(fmt.Sprintf("build %03d\n", n), 50+n%7)
		}
		return files
	}
	releases := make([]release.ID, flips+1)
	for i := range releases {
		releases[i] = w.publish(page(i))
	}
	w.live("s1", "blog", stateLive, releases[0])
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var requests atomic.Int64
	for v := range 6 {
		wg.Go(func() {
			client, last := w.client(), 0
			for i := v; ctx.Err() == nil; i++ {
				url := "https://blog.sites.test/" + []string{"", "a.js", "b.css", "c.png"}[i%4]
				resp, err := client.Get(url)
				if err != nil {
					t.Error(err)
					return
				}
				b, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if err != nil || resp.StatusCode != 200 {
					t.Errorf("%s: status %d, %v", url, resp.StatusCode, err)
					return
				}
				n := 0
				fmt.Sscanf(string(b), "build %d", &n)
				if want := strings.Repeat(fmt.Sprintf("build %03d\n", n), 50+n%7); string(b) != want {
					t.Errorf("%s: not of one release: %.60q", url, b)
				}
				if n < last {
					t.Errorf("%s: build %d after build %d", url, n, last)
				}
				last = n
				requests.Add(1)
			}
		})
	}
	for i := 1; i <= flips; i++ {
		before := requests.Load()
		w.live("s1", "blog", stateLive, releases[i])
		w.until("somebody has visited", func() bool { return requests.Load() > before || t.Failed() })
	}
	w.get("https://blog.sites.test/").want(t, 200, "build 100")
	stop()
	wg.Wait()
	t.Logf("%d requests during %d switches", requests.Load(), flips)
}

// metricsOf returns the metrics by their names and label values.
func metricsOf(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	m := map[string]float64{}
	for _, f := range families {
		for _, v := range f.Metric {
			name := f.GetName()
			for _, l := range v.Label {
				name += " " + l.GetValue()
			}
			m[name] = v.GetCounter().GetValue() + v.GetGauge().GetValue()
		}
	}
	return m
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	w := start(t, func(c *Config) { c.Metrics = reg })
	w.live("s1", "blog", stateLive, w.publish(map[string]string{"index.html": "12345"}))
	w.get("https://blog.sites.test/")
	w.get("https://blog.sites.test/")
	w.get("https://blog.sites.test/nothing")
	w.do("POST", "https://blog.sites.test/")
	w.get("https://unknown.sites.test/")
	// The handler counts after the response has reached the visitor.
	w.until("all is counted", func() bool {
		m := metricsOf(t, reg)
		return m["slipway_edge_requests_total 2xx"]+m["slipway_edge_requests_total 4xx"] == 5
	})
	m := metricsOf(t, reg)
	for name, want := range map[string]float64{
		"slipway_edge_requests_total 2xx": 2, "slipway_edge_requests_total 4xx": 3, "slipway_edge_requests_total 5xx": 0,
		"slipway_edge_cache_total answer hit": 1, "slipway_edge_cache_total asset miss": 1, "slipway_edge_cache_total tree miss": 1,
		"slipway_edge_hosts": 1,
	} {
		if m[name] != want {
			t.Errorf("%s is %v, want %v", name, m[name], want)
		}
	}
	if m["slipway_edge_response_bytes_total"] < 10 {
		t.Errorf("bytes: %v", m["slipway_edge_response_bytes_total"])
	}
}

// discard is a ResponseWriter with minimal cost.
type discard struct{ h http.Header }

func (d *discard) Header() http.Header         { return d.h }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }
func (d *discard) WriteHeader(int)             {}

func BenchmarkSmallAsset(b *testing.B) {
	w := start(b, func(c *Config) {
		c.Visits = visitsTo(func(context.Context, visit.Batch, []visit.Counts) error { return nil })
	})
	w.live("s1", "blog", stateLive, w.publish(map[string]string{"index.html": strings.Repeat("x", 4096), "app.js": script}))
	for name, accept := range map[string]string{"brotli": "gzip, deflate, br", "identity": "identity"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			r := httptest.NewRequest("GET", "/app.js", nil)
			r.Host = "blog.sites.test"
			r.Header.Set("Accept-Encoding", accept)
			h := w.HTTPS()
			out := &discard{h: http.Header{}}
			for b.Loop() {
				clear(out.h)
				h.ServeHTTP(out, r)
			}
		})
	}
}

// OPTIONS requests to a file are answered by the site's rules, so that CORS preflights work. Redirects apply to every
// method, so that forms and APIs can move.
func TestOtherMethods(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.live("s1", "blog", stateLive, w.publish(map[string]string{
		"data.json":         "{}",
		"closed/index.html": "closed",
		"_headers": "/*.json\n  Access-Control-Allow-Origin: *\n  Access-Control-Allow-Headers: X-Own\n" +
			"/closed/*\n  Basic-Auth: ada:secret\n",
		"_redirects": "/see /data.json 303\n/temporary /data.json 307\n/moved /data.json 308\n/old /data.json 301\n",
	}))
	const host = "https://blog.sites.test"
	a := w.do("OPTIONS", host+"/data.json", "Origin: https://other.test", "Access-Control-Request-Method: GET",
		"Access-Control-Request-Headers: X-Own").want(t, 204, "")
	a.head(t, "Access-Control-Allow-Origin", "*").head(t, "Access-Control-Allow-Headers", "X-Own").head(t, "Allow", "GET, HEAD, OPTIONS")
	if a.body != "" || a.header.Get("Etag") != "" {
		t.Errorf("OPTIONS is answered with %q and %v", a.body, a.header)
	}
	w.do("OPTIONS", host+"/nothing.json").want(t, 405, "").head(t, "Access-Control-Allow-Origin", "")
	w.do("OPTIONS", host+"/closed/").want(t, 401, "").head(t, "Allow", "")
	for path, status := range map[string]int{"/see": 303, "/temporary": 307, "/moved": 308, "/old": 301} {
		for _, method := range []string{"GET", "POST", "PUT", "DELETE", "OPTIONS"} {
			w.do(method, host+path).want(t, status, "").head(t, "Location", "/data.json")
		}
	}
	w.do("POST", host+"/data.json").want(t, 405, "").head(t, "Access-Control-Allow-Origin", "")
}
