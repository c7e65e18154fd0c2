package fileserver

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"slipway/internal/build/release"
	"slipway/internal/edge/response"
	"slipway/internal/platform/blob"
)

var script = strings.Repeat("console.log('hello');\n", 200)

// world serves the files of one release by their paths.
type world struct {
	t   *testing.T
	url string
}

func start(t *testing.T) *world {
	t.Helper()
	blobs, err := blob.OpenDir(filepath.Join(t.TempDir(), "blobs"))
	if err != nil {
		t.Fatal(err)
	}
	releases := release.New(release.Config{Blobs: blobs})
	wr, err := releases.Begin(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{"app.js": script, "big.bin": strings.Repeat("0123456789", Largest/10+1000)} {
		if err := wr.Add(t.Context(), path, "", strings.NewReader(text)); err != nil {
			t.Fatal(err)
		}
	}
	sealed, err := wr.Seal(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	tree, err := releases.Load(t.Context(), sealed.ID)
	if err != nil {
		t.Fatal(err)
	}
	s := New(Config{Blobs: blobs, Log: slog.New(slog.DiscardHandler), Bytes: 16 << 20, Looked: func(bool) {}})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f, ok := tree.Lookup(strings.TrimPrefix(r.URL.Path, "/"))
		if !ok {
			http.NotFound(w, r)
			return
		}
		if err := s.Serve(&response.Recorder{
			ResponseWriter: w,
		}, r, &release.Answer{Kind: release.Found, Status: http.StatusOK, File: f}); err != nil {
			t.Error(r.URL, err)
		}
	}))
	t.Cleanup(srv.Close)
	return &world{t, srv.URL}
}

// answer holds a response.
type answer struct {
	status int
	header http.Header
	body   string
}

func (w *world) get(path string, headers ...string) answer {
	return w.do(http.MethodGet, path, headers...)
}

func (w *world) do(method, path string, headers ...string) answer {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, w.url+path, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Add(name, value)
	}
	resp, err := (&http.Transport{DisableCompression: true, DisableKeepAlives: true}).RoundTrip(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatalf("%s %s: %v", method, path, err)
	}
	return answer{resp.StatusCode, resp.Header, string(b)}
}

// want fails the test unless the answer has this status and a body that contains text.
func (a answer) want(t *testing.T, status int, text string) answer {
	t.Helper()
	if a.status != status || !strings.Contains(a.body, text) {
		t.Errorf("status %d, want %d; body %.300q, want %q in it", a.status, status, a.body, text)
	}
	return a
}

func (a answer) head(t *testing.T, name, value string) answer {
	t.Helper()
	if got := strings.Join(a.header.Values(name), " | "); got != value {
		t.Errorf("%s is %q, want %q", name, got, value)
	}
	return a
}
