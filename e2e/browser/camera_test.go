//go:build browser

package browser

import (
	"bytes"
	"image/jpeg"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"slipway/internal/deploy/screenshot"
	"slipway/internal/platform/sandbox"
)

// The browser draws the page and can reach only the hosts of its site: no other host, no loopback address of the
// machine, and no file.
func TestCamera(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	asked := map[string]bool{}
	note := func(r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		asked[r.Host+r.URL.Path] = true
	}
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { note(r) }))
	t.Cleanup(other.Close)
	edge := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		note(r)
		switch r.URL.Path {
		case "/home":
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			w.Write([]byte(`<!doctype html><title>Harbor</title><body style="background:#1e5aa8"><img src="/logo.png"><iframe src="file:///etc/passwd"></iframe>` +
				`<img src="` + other.URL + `/stolen"><img src="https://elsewhere.example/stolen"><script>fetch('` + other.URL + `/fetched', {mode: 'no-cors'})</script>`))
		}
	}))
	t.Cleanup(edge.Close)
	dir, err := os.MkdirTemp("", "screenshot-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	runner, err := sandbox.New(sandbox.Config{Dir: filepath.Join(dir, "sandbox")})
	if err != nil {
		t.Fatal(err)
	}
	c := &screenshot.Camera{Runner: runner, Browser: screenshot.Find(""), Dir: filepath.Join(dir, "shots"), Edge: strings.TrimPrefix(edge.URL, "https://")}
	hosts := []string{"harbor.localhost", "www.harbor.example"}
	const page = "https://www.harbor.example/home"
	b, err := c.Take(t.Context(), 231_007, page, hosts)
	if err != nil {
		t.Fatal(err)
	}
	img, err := jpeg.Decode(bytes.NewReader(b))
	if err != nil || img.Bounds().Dx() != screenshot.Width || img.Bounds().Dy() != screenshot.Height || len(b) > 200<<10 {
		t.Fatalf("%d bytes, %v: %v", len(b), img.Bounds(), err)
	}
	if r, g, blue, _ := img.At(screenshot.Width-20, screenshot.Height-20).RGBA(); r>>8 > 60 || g>>8 < 70 || blue>>8 < 140 {
		t.Errorf("the ground is %d %d %d", r>>8, g>>8, blue>>8)
	}
	mu.Lock()
	defer mu.Unlock()
	if !asked["www.harbor.example/logo.png"] {
		t.Errorf("the page's own picture was not loaded: %v", asked)
	}
	for at := range asked {
		if strings.Contains(at, "stolen") || strings.Contains(at, "fetched") {
			t.Errorf("the browser reached %s", at)
		}
	}
	if left, _ := os.ReadDir(c.Dir); len(left) > 0 {
		t.Errorf("%d files stay", len(left))
	}
}
