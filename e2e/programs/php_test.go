package programs

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"slipway/e2e/world"
)

// A Composer project with a path repository and a front controller is deployed from Git, updated, rolled back, stopped,
// started, and restarted after a crash of its workers and of the service. Its storage survives all of that, and
// uploaded files are served but never executed.
func TestPHPApplication(t *testing.T) {
	t.Parallel()
	h := installSite(t, "shop", shop("one"))
	h.answers("GET", "/", "", 200, "one / 0 hello from a package https on 127.0.0.1")
	h.answers("GET", "/products/7?x=1", "", 200, "one /products/7?x=1 0 hello from a package")
	h.answers("POST", "/buy", strings.Repeat("x", 100_000), 200, "one /buy 100000 hello")
	h.answers("GET", "/info.php/extra", "", 200, "info /extra /app/public/info.php")
	h.answers("GET", "/style.css", "", 200, "body{}")

	// Storage: files that PHP writes are stored and, below the document root, served, but never executed.
	h.answers("GET", "/store.php?name=public/uploads/photo.txt&text=photo", "", 200, "stored")
	h.answers("GET", "/store.php?name=public/uploads/evil.php&text=%3C%3Fphp+echo+6*7%3B", "", 200, "stored")
	h.answers("GET", "/store.php?name=public/uploads/evil.php.jpg&text=%3C%3Fphp+echo+6*7%3B", "", 200, "stored")
	h.answers("GET", "/store.php?name=public/new.php&text=x", "", 200, "refused") // the release is read-only
	h.answers("GET", "/uploads/photo.txt", "", 200, "photo")
	h.answers("GET", "/send.php?file=/app/public/uploads/photo.txt", "", 200, "photo")
	h.answers("GET", "/send.php?file=/etc/passwd", "", 404, "Not found")

	// Paths that must never be executed or served.
	for _, path := range []string{
		"/uploads/evil.php", "/uploads/evil.php/x.php", "/uploads/photo.txt/x.php", "/uploads/evil.php%00.txt",
		"/uploads/evil.php%0a", "/uploads/evil.PHP", "/uploads/evil.php.jpg/x.php", "/uploads%2fevil.php",
		"/uploads/..%2f..%2fcomposer.json", "/x.phtml", "/vendor/autoload.php", "/composer.json", "/.env",
		"/.git/config", "/notes.php.bak", "/..%2f.env", "/%2e%2e/composer.json", "/style.css/x.php", "/info.php%20",
		"/info.php.", "/info%2ephp.bak",
	} {
		a := h.get(path)
		if text := string(a.Body); strings.Contains(
			text,
			"42",
		) || strings.Contains(
			text,
			"<?php",
		) || strings.Contains(text, "secret") || strings.Contains(text, "acme/greet") || strings.HasPrefix(text, "info ") {
			t.Errorf("%s: %d %.200q", path, a.Status, text)
		}
	}
	// Forwarding headers from visitors are ignored, cookies for a parent domain are dropped, and headers that nginx
	// would act on don't reach visitors.
	req, _ := http.NewRequestWithContext(t.Context(), "GET", h.URL+"/headers.php", nil)
	for name, value := range map[string]string{
		"X-Forwarded-For":   "6.6.6.6",
		"X-Real-IP":         "6.6.6.6",
		"Proxy":             "http://evil",
		"X-Forwarded-Proto": "http",
		"X_Forwarded_For":   "6.6.6.6",
		"X.Forwarded.For":   "6.6.6.6",
		"X-Real.IP":         "6.6.6.6",
		"Content-Type":      "a/b",
	} {
		req.Header.Set(name, value)
	}
	a, err := world.Read(h.browser.Do(req))
	if err != nil {
		t.Fatal(err)
	}
	if text := string(a.Body); strings.Contains(
		text,
		"6.6.6.6",
	) || strings.Contains(text, "evil") || !strings.Contains(text, "HTTPS=on") || !strings.Contains(text, "CONTENT_TYPE=a/b") {
		t.Errorf("headers: %s", text)
	}
	if a.Header.Get("X-Accel-Expires") != "" || a.Header.Get("X-LiteSpeed-Location") != "" || len(a.Header["Set-Cookie"]) != 1 ||
		a.Header.Get("X-Powered-By") != "" ||
		a.Status != 418 {
		t.Errorf("%d %v", a.Status, a.Header)
	}

	// An update, a rollback, a stop and a start.
	h.redeploy("shop", shop("two"))
	h.shows("two / 0 hello")
	h.answers("GET", "/uploads/photo.txt", "", 200, "photo")
	h.call("POST", "/sites/"+h.ID+"/rollback", map[string]any{"deploymentId": h.versions[0]}, nil)
	h.shows("one")
	h.call("POST", "/sites/"+h.ID+"/stop", nil, nil)
	h.until("the stop", func() (bool, error) { return len(fpm(h)) == 0 && h.get("/").Status == 503, nil })
	h.call("POST", "/sites/"+h.ID+"/start", nil, nil)
	h.until("the start", func() (bool, error) { return h.get("/").Status == 200, nil })

	// A worker's crash fails only its own request. The log contains the error of a broken script.
	if a := h.get("/die.php"); a.Status != 502 {
		t.Errorf("a worker that died: %d", a.Status)
	}
	h.answers("GET", "/", "", 200, "one /")
	if a := h.get("/broken.php"); a.Status != 500 {
		t.Errorf("a broken script: %d", a.Status)
	}
	h.until("the log of it", func() (bool, error) {
		var log struct {
			Logs []struct{ Message, Stream string }
		}
		err := h.Call(t.Context(), h.key, "GET", "/sites/"+h.ID+"/logs", nil, &log)
		for _, l := range log.Logs {
			if strings.Contains(l.Message, "undefined_function") && l.Stream == "stderr" {
				return true, err
			}
		}
		return false, errors.Join(err, fmt.Errorf("%+v", log.Logs))
	})

	// A deployment whose pages fail never goes live.
	broken := shop("three")
	broken["public/index.php"] = "<?php syntax error"
	if why := h.fails(
		"shop",
		broken,
	); !strings.Contains(why, "answers / with 500: PHP Parse error:") || !strings.Contains(why, "public/index.php on line 1") {
		t.Errorf("a broken deployment: %s", why)
	}
	broken = shop("four")
	broken["composer.json"] = strings.Replace(broken["composer.json"], "^8.1", "^99.0", 1)
	if why := h.fails("shop", broken); !strings.Contains(why, "PHP ^99.0 is not available on this server") {
		t.Errorf("another version: %s", why)
	}
	h.answers("GET", "/", "", 200, "one /")

	// A kill of Slipway leaves no PHP process behind. After the restart, the live release and its storage are served.
	for range 3 {
		h.Kill()
		h.again(func() []string { return fpm(h) })
		h.answers("GET", "/", "", 200, "one /")
		h.answers("GET", "/uploads/photo.txt", "", 200, "photo")
	}

	// A plain PHP site beside it: without Composer or a build, with folder indexes and its own 404 pages.
	h.site("plain", map[string]string{
		"index.php":       `<?php echo "plain ", $_SERVER["REQUEST_URI"];`,
		"admin/index.php": `<?php echo "admin";`,
		"logo.svg":        "<svg/>",
		".env":            "secret",
		"config.inc":      "secret",
		"hidden/a.txt":    "secret",
		"_redirects":      "/moved /admin/ 302\n",
		"_headers":        "/*\n  X-From: headers\n",
		".htaccess": "RewriteEngine On\nRewriteRule ^v[0-9]+/(.*)$ $1 [L]\nRewriteRule ^product/([0-9]+)$ index.php?id=$1 [L]\n" +
			"RewriteRule ^hidden/.*\\.txt$ - [F]\nRedirect 301 /old /admin/\nHeader set X-A b\n",
	})
	h.answers("GET", "/product/5?x=1", "", 200, "plain /product/5?x=1")
	h.answers("GET", "/v17/logo.svg", "", 200, "<svg/>")
	h.answers("GET", "/hidden/a.txt", "", 403, "Forbidden")
	if a := h.get("/old?x=1"); a.Status != 301 || a.Header.Get("Location") != "/admin/?x=1" {
		t.Errorf("a redirect of .htaccess: %d %v", a.Status, a.Header)
	}
	if a := h.get("/moved"); a.Status != 302 || a.Header.Get("Location") != "/admin/" || h.get("/admin/").Header.Get("X-From") != "headers" {
		t.Errorf("rules of _redirects and _headers: %d %v", a.Status, a.Header)
	}
	h.answers("GET", "/", "", 200, "plain /")
	h.answers("GET", "/admin/", "", 200, "admin")
	if a := h.get("/admin"); a.Status != 301 || a.Header.Get("Location") != "/admin/" {
		t.Errorf("a folder without its slash: %d %v", a.Status, a.Header)
	}
	h.answers("GET", "/nothing", "", 404, "Not found")
	h.answers("GET", "/nothing.php", "", 404, "Not found")
	h.answers("GET", "/logo.svg", "", 200, "<svg/>")
	h.answers("GET", "/config.inc", "", 404, "Not found")

	h.idles()

	// Deleting a site deletes its storage.
	h.call("DELETE", "/sites/"+h.ID, nil, nil)
}

// becomes waits until the site's program is in a state, and returns its message and restarts.
func (h *installation) becomes(want string) (message string, restarts int) {
	h.t.Helper()
	var s struct {
		Process struct {
			State, Message string
			Restarts       int
		}
	}
	h.until("the state "+want, func() (bool, error) {
		err := h.Call(h.t.Context(), h.key, "GET", "/sites/"+h.ID, nil, &s)
		return s.Process.State == want, errors.Join(err, fmt.Errorf("%+v", s.Process))
	})
	return s.Process.Message, s.Process.Restarts
}

// idles lets the site fall asleep, and checks that many concurrent requests, and later a single one, wake it.
func (h *installation) idles() {
	h.t.Helper()
	h.call("PATCH", "/sites/"+h.ID, map[string]any{"run": map[string]any{"sleepAfterSeconds": 8, "memoryMiB": 128}}, nil)
	var op struct{ ID string }
	h.call("POST", "/sites/"+h.ID+"/restart", nil, &op)
	if o := (appSite{h}).operation(op.ID); o.Status != "success" {
		h.t.Fatalf("the restart: %+v", o)
	}
	h.becomes("sleeping")
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() { h.answers("GET", "/", "", 200, "plain /") })
	}
	all.Wait()
	h.becomes("sleeping")
	h.answers("GET", "/", "", 200, "plain /")
	var m struct{ Total struct{ Wakes int } }
	h.until("two wakes", func() (bool, error) {
		err := h.Call(h.t.Context(), h.key, "GET", "/sites/"+h.ID+"/metrics?since=1h", nil, &m)
		if m.Total.Wakes > 2 {
			h.t.Fatalf("%d wakes by 20 visitors at once and one", m.Total.Wakes)
		}
		return m.Total.Wakes == 2, errors.Join(err, fmt.Errorf("%d", m.Total.Wakes))
	})
}

// A PHP site that runs out of memory reports it and answers again.
func TestPHPOutOfMemory(t *testing.T) {
	t.Parallel()
	h := installSite(t, "hungry", map[string]string{
		"slipway.toml": "[run]\nmemory_mib = 128\n",
		"index.php":    `<?php echo "hungry";`,
		"eat.php":      `<?php ini_set("memory_limit", "-1"); for ($x = [];;) { $x[] = random_bytes(1 << 20); }`,
	})
	if a := h.get("/eat.php"); a.Status != 502 {
		t.Errorf("out of memory: %d %.200s", a.Status, a.Body)
	}
	if message, restarts := h.becomes("crashed"); !strings.Contains(message, "out of memory") || restarts == 0 {
		t.Errorf("out of memory it is %q, with %d restarts", message, restarts)
	}
	h.answers("GET", "/", "", 200, "hungry")
	h.until("the log of it", func() (bool, error) {
		text := appSite{h}.runtimeLog("web")
		return strings.Contains(text, "The application exited: out of memory"), fmt.Errorf("%s", text)
	})
}

// fpm returns the pids of this installation's PHP-FPM masters.
func fpm(h *installation) []string { return h.Processes("php-fpm: master") }

func (h *installation) get(path string) world.Answer {
	h.t.Helper()
	req, err := http.NewRequestWithContext(h.t.Context(), "GET", h.URL+path, nil)
	if err != nil {
		h.t.Fatal(err)
	}
	a, err := world.Read(h.browser.Do(req))
	if err != nil {
		h.t.Fatal(err)
	}
	return a
}

func (h *installation) redeploy(name string, files map[string]string) {
	h.t.Helper()
	h.commitFiles(name, files)
	var out struct{ DeploymentID string }
	h.call("POST", "/sites/"+h.ID+"/deploy", nil, &out)
	h.ended(out.DeploymentID)
}

// fails deploys files that can't go live and returns the error.
func (h *installation) fails(name string, files map[string]string) string {
	h.t.Helper()
	h.commitFiles(name, files)
	var out struct{ DeploymentID string }
	h.call("POST", "/sites/"+h.ID+"/deploy", nil, &out)
	var d struct{ Status, Error string }
	h.until("the failure", func() (bool, error) {
		err := h.Call(h.t.Context(), h.key, "GET", "/deployments/"+out.DeploymentID, nil, &d)
		if d.Status == "success" {
			h.t.Fatal("the deployment succeeded")
		}
		return d.Status == "failed", err
	})
	return d.Error
}

// shop returns a Composer project.
func shop(version string) map[string]string {
	return map[string]string{
		"composer.json":                `{"name": "acme/shop", "require": {"php": "^8.1", "acme/greet": "*"}, "repositories": [{"type": "path", "url": "packages/*"}, {"packagist": false}]}`,
		"packages/greet/composer.json": `{"name": "acme/greet", "version": "1.0.0", "autoload": {"psr-4": {"Acme\\": "src/"}}}`,
		"packages/greet/src/Greet.php": `<?php namespace Acme; class Greet { static function text() { return "hello from a package"; } }`,
		"public/index.php": `<?php require __DIR__ . "/../vendor/autoload.php";
printf("%s %s %d %s %s %s %s", "` + version + `", $_SERVER["REQUEST_URI"], strlen(file_get_contents("php://input")), Acme\Greet::text(), $_SERVER["REQUEST_SCHEME"], $_SERVER["HTTPS"], $_SERVER["REMOTE_ADDR"]);`,
		"public/store.php":     `<?php echo @file_put_contents("/app/" . $_GET["name"], $_GET["text"]) === false ? "refused" : "stored";`,
		"public/send.php":      `<?php header("X-Sendfile: " . $_GET["file"]);`,
		"public/headers.php":   `<?php http_response_code(418); header("X-Accel-Expires: 5"); header("X-LiteSpeed-Location: /etc/passwd"); header("Set-Cookie: all=1; Domain=localhost", false); header("Set-Cookie: own=1", false); foreach ($_SERVER + getenv() as $k => $v) { if (is_string($v)) echo "$k=$v\n"; }`,
		"public/die.php":       `<?php posix_kill(getmypid(), 9);`,
		"public/broken.php":    `<?php undefined_function();`,
		"public/notes.php.bak": `<?php $password = "secret";`,
		"public/.env":          "KEY=secret",
		".env":                 "KEY=secret",
		"slipway.toml":         "[run]\nstorage = [\"public/uploads\"]\n",
		"public/info.php":      `<?php echo "info ", $_SERVER["PATH_INFO"], " ", $_SERVER["SCRIPT_FILENAME"];`,
		"public/style.css":     "body{}",
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

// installSite starts an installation with a site from these files.
func installSite(t *testing.T, name string, files map[string]string, flags ...string) *installation {
	t.Helper()
	w, err := world.New(binary, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w.Flags = append(w.Flags, flags...)
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

// site creates a site from files and waits until it is live.
func (h *installation) site(name string, files map[string]string) {
	h.t.Helper()
	h.commitFiles(name, files)
	var made struct{ Data struct{ ID, URL string } }
	h.call("POST", "/sites", map[string]any{
		"name":       name,
		"type":       "static",
		"repository": "git.test/acme/" + name,
		"branch":     "main",
		"run": map[string]any{
			"healthCheck": map[string]any{"timeoutSeconds": min(600, int(world.Patience(4*time.Second).Seconds()))},
		},
	}, &made)
	h.ID, h.URL = made.Data.ID, made.Data.URL
	var list struct{ Data []struct{ ID string } }
	h.until("the first deployment", func() (bool, error) {
		err := h.Call(h.t.Context(), h.key, "GET", "/sites/"+h.ID+"/deployments", nil, &list)
		return len(list.Data) > 0, err
	})
	h.ended(list.Data[0].ID)
	h.shows("")
}

// shows waits until the home page begins with a text. The edge switches to a new release a moment after the deployment
// has ended.
func (h *installation) shows(text string) {
	h.t.Helper()
	for _, browser := range world.Everywhere(h.browser) {
		h.until("a page that begins with "+text, func() (bool, error) {
			a, err := world.Read(browser.Get(h.URL))
			return err == nil && a.Status == 200 && strings.HasPrefix(
				string(a.Body),
				text,
			), errors.Join(err, fmt.Errorf("%d %.200s", a.Status, a.Body))
		})
	}
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
