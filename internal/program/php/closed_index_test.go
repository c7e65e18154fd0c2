package php

import (
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"slipway/internal/build/htaccess"
	"slipway/internal/platform/wait"
)

// A closed index.php must not answer for its folder either; the front controller must answer instead.
func TestClosedIndex(t *testing.T) {
	t.Parallel()
	s := site(t, "public", "public/index.php", "public/admin/index.php", "public/open/index.php")
	s.Closed = []string{"admin/index.php"}
	for p, want := range map[string]string{
		"/admin/index.php": "", "/admin/": "index.php", "/admin": "index.php", "/admin/index.php/x": "", "/open/": "open/index.php", "/": "index.php",
	} {
		if got, _, _ := s.script(p); got != want {
			t.Errorf("%s runs %q, want %q", p, got, want)
		}
	}
}

// orders has the rules of known folders.
type orders struct{}

// Rules implements Folders.
func (orders) Rules(folder string) *htaccess.Rules {
	if folder == "uploads/orders" {
		return htaccess.Closed()
	}
	return nil
}

// Soon after a .htaccess file that closes a folder was written, the folder's files must not be served, and neither must
// those of a known folder that has no such file. A folder that is opened again must be served.
func TestObeysFilesOfApache(t *testing.T) {
	t.Parallel()
	s := site(t, "public")
	dir := t.TempDir()
	for _, folder := range []string{"uploads/a/b", "uploads/orders", "other"} {
		if err := os.MkdirAll(filepath.Join(dir, "public", folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "public", name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"uploads/a/x.pdf", "uploads/a/b/x.png", "uploads/orders/x.pdf", "other/x.pdf"} {
		write(name, name)
	}
	s.Open = func(name string) (*os.File, bool, error) {
		f, err := os.Open(filepath.Join(dir, name))
		return f, true, err
	}
	s.Obeys = &Obeyed{Below: "uploads", Known: orders{}}
	serves := func(name string) bool {
		rec := httptest.NewRecorder()
		return s.Serve(rec, httptest.NewRequest("GET", "/"+name, nil)) && rec.Code == 200
	}
	becomes := func(name string, want bool) {
		t.Helper()
		wait.Until(t, fmt.Sprintf("%s is served: %v", name, want), func() bool { return serves(name) == want })
	}
	becomes("uploads/a/x.pdf", true)
	becomes("uploads/orders/x.pdf", false)
	write("uploads/a/.htaccess", "Deny from all")
	becomes("uploads/a/x.pdf", false)
	becomes("uploads/a/b/x.png", false)
	write("uploads/orders/.htaccess", "Options -Indexes")
	becomes("uploads/orders/x.pdf", true)
	write("uploads/a/.htaccess", "Deny from all\n<FilesMatch \"\\.png$\">\nAllow from all\n</FilesMatch>")
	becomes("uploads/a/b/x.png", true)
	becomes("uploads/a/x.pdf", false)
	write("other/.htaccess", "Deny from all")
	becomes("other/x.pdf", true)
	if err := os.Remove(filepath.Join(dir, "public/uploads/a/.htaccess")); err != nil {
		t.Fatal(err)
	}
	becomes("uploads/a/x.pdf", true)
	if err := os.Mkdir(filepath.Join(dir, "public/uploads/a/.htaccess"), 0o755); err != nil {
		t.Fatal(err)
	}
	becomes("uploads/a/x.pdf", false)
}
