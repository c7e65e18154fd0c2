package mirror_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"slipway/internal/edge/front"
	"slipway/internal/web/mirror"
)

// The mirror serves its protocol's files once they exist, and no other file of the data directory.
func TestMirror(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	h := mirror.Handler(data, front.Proxies{})
	ask := func(method, path string) (int, string, string) {
		t.Helper()
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
		return w.Code, w.Header().Get("Content-Type"), w.Body.String()
	}
	const at = "/terraform/slipway.internal/slipway/slipway/"
	if status, _, text := ask("GET", at+"index.json"); status != 404 || !strings.Contains(text, "doesn't have the Terraform provider") {
		t.Errorf("without the provider: %d %s", status, text)
	}
	dir := filepath.Join(data, mirror.Folder)
	if err := os.MkdirAll(filepath.Join(dir, "0.0.1.json"), 0o755); err != nil { // a directory with such a name
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"index.json": `{"versions": {"1.2.3": {}}}`, "1.2.3.json": `{"archives": {}}`, "notes.txt": "private",
		"terraform-provider-slipway_1.2.3_linux_amd64.zip": "PK", "../secrets.key": "private",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../secrets.key", filepath.Join(dir, "6.6.6.json")); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"index.json": "application/json", "1.2.3.json": "application/json", "terraform-provider-slipway_1.2.3_linux_amd64.zip": "application/zip",
	} {
		if status, kind, text := ask("GET", at+name); status != 200 || kind != want || text == "" {
			t.Errorf("%s: %d %s %q", name, status, kind, text)
		}
	}
	for _, path := range []string{
		"/terraform", "/terraform/", at, at + "notes.txt", at + "../index.json", at + "6.6.6.json", at + "0.0.1.json", at + "1.2.4.json",
		at + "..%2f..%2fsecrets.key", "/terraform/slipway.internal/slipway/other/index.json",
		at + "terraform-provider-slipway_1.2.3_linux_arm64.zip", at + "terraform-provider-slipway_..%2f_linux_amd64.zip",
	} {
		if status, _, text := ask("GET", path); status != 404 || strings.Contains(text, "private") {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
	if status, _, _ := ask("POST", at+"index.json"); status != 405 {
		t.Errorf("POST: %d", status)
	}
	for path, want := range map[string]bool{"/terraform": true, at: true, "/terraforming": false, "/docs/guides/terraform": false} {
		if mirror.Serves(path) != want {
			t.Errorf("Serves(%q) is %t", path, !want)
		}
	}
}

// held is a response that blocks until until is closed.
type held struct {
	*httptest.ResponseRecorder
	begun chan<- struct{}
	until <-chan struct{}
}

func (h held) Write(b []byte) (int, error) {
	h.begun <- struct{}{}
	<-h.until
	return len(b), nil
}

// One network gets at most eight slow downloads at a time. Other networks are served meanwhile, and so is it once they
// have ended.
func TestMirrorIsShared(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	if err := os.MkdirAll(filepath.Join(data, mirror.Folder), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(data, mirror.Folder, "index.json"), []byte(`{"versions": {}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	h := mirror.Handler(data, front.Proxies{})
	ask := func(w http.ResponseWriter, from string) {
		r := httptest.NewRequest("GET", "/terraform/slipway.internal/slipway/slipway/index.json", nil)
		r.RemoteAddr = from + ":1234"
		h.ServeHTTP(w, r)
	}
	status := func(from string) int {
		w := httptest.NewRecorder()
		ask(w, from)
		if w.Code == http.StatusTooManyRequests && w.Header().Get("Retry-After") == "" {
			t.Error("429 without Retry-After")
		}
		return w.Code
	}
	begun, until := make(chan struct{}, 8), make(chan struct{})
	var slow sync.WaitGroup
	for range 8 {
		slow.Go(func() { ask(held{httptest.NewRecorder(), begun, until}, "192.0.2.1") })
	}
	for range 8 {
		<-begun
	}
	if one, other := status("192.0.2.1"), status("192.0.2.2"); one != 429 || other != 200 {
		t.Errorf("amid eight downloads: %d, and from elsewhere %d", one, other)
	}
	close(until)
	slow.Wait()
	if one := status("192.0.2.1"); one != 200 {
		t.Errorf("afterwards: %d", one)
	}
}
