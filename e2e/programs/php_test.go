package programs

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"slipway/e2e/world"
)

// A Composer project with a path repository and a front controller is deployed from Git,
// updated, rolled back, stopped, started, and survives the end of its workers.
func TestPHPApplication(t *testing.T) {
	t.Parallel()
	h := installSite(t, "shop", shop("one"))
	h.answers("GET", "/", "", 200, "one / 0 hello from a package https on")
	h.answers("GET", "/products/7?x=1", "", 200, "one /products/7?x=1 0 hello from a package https on")
	h.answers("POST", "/buy", strings.Repeat("x", 100_000), 200, "one /buy 100000 hello")
	h.answers("GET", "/info.php/extra", "", 200, "info /extra /app/public/info.php")
	h.answers("GET", "/style.css", "", 200, "body{}")
}

// shop is a project as Composer makes them.
func shop(version string) map[string]string {
	return map[string]string{
		"composer.json":                `{"name": "acme/shop", "require": {"php": "^8.1", "acme/greet": "*"}, "repositories": [{"type": "path", "url": "packages/*"}, {"packagist": false}]}`,
		"packages/greet/composer.json": `{"name": "acme/greet", "version": "1.0.0", "autoload": {"psr-4": {"Acme\\": "src/"}}}`,
		"packages/greet/src/Greet.php": `<?php namespace Acme; class Greet { static function text() { return "hello from a package"; } }`,
		"public/index.php": `<?php require __DIR__ . "/../vendor/autoload.php";
printf("%s %s %d %s %s %s", "` + version + `", $_SERVER["REQUEST_URI"], strlen(file_get_contents("php://input")), Acme\Greet::text(), $_SERVER["REQUEST_SCHEME"], $_SERVER["HTTPS"]);`,
		"public/info.php":  `<?php echo "info ", $_SERVER["PATH_INFO"], " ", $_SERVER["SCRIPT_FILENAME"];`,
		"public/style.css": "body{}",
	}
}

func (h *installation) answers(method, path, body string, status int, want string) {
	h.t.Helper()
	req, err := http.NewRequestWithContext(h.t.Context(), method, h.URL+path, strings.NewReader(body))
	if err != nil {
		h.t.Fatal(err)
	}
	a, err := world.Read(h.browser.Do(req))
	if err != nil {
		h.t.Fatal(err)
	}
	if a.Status != status || !strings.Contains(string(a.Body), want) {
		h.t.Errorf("%s %s: %d %.300q, want %d %q", method, path, a.Status, a.Body, status, want)
	}
}

// installSite is install for a repository of its own.
func installSite(t *testing.T, name string, files map[string]string) *installation {
	t.Helper()
	w, err := world.New(binary, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the program's last words:\n%s", w.Log(3000))
		}
	})
	h := &installation{World: w, t: t}
	if h.key, err = w.User("ada@example.test"); err != nil {
		t.Fatal(err)
	}
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if h.browser, err = w.Browser(); err != nil {
		t.Fatal(err)
	}
	h.site(name, files)
	return h
}

// site makes a site of files and waits until they are live.
func (h *installation) site(name string, files map[string]string) {
	h.t.Helper()
	h.commitFiles(name, files)
	var made struct{ Data struct{ ID, URL string } }
	h.call("POST", "/sites", map[string]any{"name": name, "type": "static", "repository": "git.test/acme/" + name, "branch": "main"}, &made)
	h.ID, h.URL = made.Data.ID, made.Data.URL
	var list struct{ Data []struct{ ID string } }
	h.until("the first deployment", func() (bool, error) {
		err := h.Call(h.t.Context(), h.key, "GET", "/sites/"+h.ID+"/deployments", nil, &list)
		return len(list.Data) > 0, err
	})
	h.ended(list.Data[0].ID)
}

func (h *installation) commitFiles(name string, files map[string]string) {
	h.t.Helper()
	dir := h.t.TempDir()
	if err := world.WriteFiles(dir, files); err != nil {
		h.t.Fatal(err)
	}
	if _, err := h.Git.Commit("acme/"+name, "main", dir, fmt.Sprint(len(files))); err != nil {
		h.t.Fatal(err)
	}
}
