package admin

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"slipway/internal/operator/installation"
)

// The list shows installable and installed runtimes, and an unused runtime can be removed.
func TestRuntimes(t *testing.T) {
	t.Parallel()
	s := installation.Store{DataDir: t.TempDir()}
	d, _, err := s.Open(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	d.Close()
	dir := s.Path("builds", "roots", "kept", "php8.4-123456")
	if err := os.MkdirAll(filepath.Join(dir, "tree"), 0o700); err != nil {
		t.Fatal(err)
	}
	text := `{"Kind": "php8.4", "Made": "2026-01-02T03:04:05Z", "Size": 314572800}`
	if err := os.WriteFile(filepath.Join(dir, "root.json"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	list := func() string {
		t.Helper()
		var out strings.Builder
		if err := ListRuntimes(s, &out); err != nil {
			t.Fatal(err)
		}
		return strings.Join(strings.Fields(out.String()), " ")
	}
	if got := list(); !strings.Contains(got, "php8.4 PHP 8.4 Debian 13 2030-06-30 2026-01-02 ") ||
		!strings.Contains(got, "php8.2 PHP 8.2 Debian 12 2028-06-30 no - -") {
		t.Errorf("%s", got)
	}
	var out strings.Builder
	if err := InstallRuntimes(t.Context(), s, []string{"php8.3"}, "", &out); err == nil || !strings.Contains(err.Error(), "choose from php8.4") {
		t.Errorf("an unknown one: %v", err)
	}
	if err := InstallRuntimes(t.Context(), s, []string{"php8.4"}, "file:///srv", &out); err == nil || !strings.Contains(err.Error(), "--debian-mirror") {
		t.Errorf("an invalid mirror: %v", err)
	}
	r, err := runtimes(s, "")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := RemoveRuntime(t.Context(), s, "php8.2", &out); err == nil {
		t.Error("what isn't installed was removed")
	}
	if err := RemoveRuntime(t.Context(), s, "php8.4", &out); err != nil || !strings.Contains(list(), "php8.4 PHP 8.4 Debian 13 2030-06-30 no - -") {
		t.Errorf("%v: %s", err, list())
	}
}
