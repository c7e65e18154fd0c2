package wordpress

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"slipway/e2e/world"
)

// ourContent returns a repository with a minimal theme, plugin and must-use plugin.
func ourContent(version string) map[string]string {
	return map[string]string{
		"themes/ours/style.css":   "/*\nTheme Name: Ours\nVersion: " + version + "\n*/\nbody{color:#123}",
		"themes/ours/index.php":   "<!doctype html><html><head><title><?php bloginfo('name'); ?></title><?php wp_head(); ?></head><body>Theme " + version + " <?php while (have_posts()) { the_post(); the_title('<h2>', '</h2>'); the_content(); } wp_footer(); ?></body></html>",
		"plugins/ours/ours.php":   "<?php\n/* Plugin Name: Ours\n Version: " + version + " */\nadd_action('wp_footer', function () { echo 'Plugin " + version + "'; });",
		"mu-plugins/always.php":   "<?php add_action('wp_footer', function () { echo 'Always " + version + "'; });",
		"mu-plugins/probe.php":    probe,
		"uploads/not-a-upload":    "x",
		"README.md":               "ours",
		"plugins/ours/direct.php": "<?php echo 'owned';",
	}
}

// withTools adds a Composer dependency and a front-end build to a wp-content.
func withTools(files map[string]string) map[string]string {
	files["composer.json"] = `{"name": "ada/content", "require": {"ada/greet": "*"}, "repositories": [{"type": "path", "url": "packages/*"}, {"packagist": false}]}`
	files["packages/greet/composer.json"] = `{"name": "ada/greet", "version": "1.0.0", "autoload": {"psr-4": {"Ada\\": "src/"}}}`
	files["packages/greet/src/Greet.php"] = "<?php namespace Ada; class Greet { static function hello() { return 'Hello from a package'; } }"
	files["mu-plugins/greet.php"] = "<?php require WP_CONTENT_DIR . '/vendor/autoload.php'; add_action('wp_footer', function () { echo Ada\\Greet::hello(); });"
	files["package.json"] = `{"name": "content", "private": true, "scripts": {"build": "node build.js"}}`
	files["build.js"] = "require('fs').writeFileSync('themes/ours/built.css', 'body{color:#456}')"
	return files
}

// extensions checks that a repository that contains a single theme or plugin is installed and activated, unless it
// breaks the site.
func (h *installation) extensions() {
	t := h.t
	const theme, plugin = "/*\nTheme Name: Ours\n*/", "<?php\n/* Plugin Name: Ours */\n"
	for name, tt := range map[string]struct {
		files       map[string]string
		shows, says string
	}{
		"theme": {
			map[string]string{"style.css": theme, "index.php": "<html><body>Our theme</body></html>", "plugins/x/x.php": plugin},
			"Our theme", "The theme content is active",
		},
		"broken-theme": {
			map[string]string{"style.css": theme, "index.php": "x", "functions.php": "<?php undefined_call();"},
			"</html>",
			"The theme content is not active, because the front page breaks",
		},
		"plugin": {
			map[string]string{"ours.php": plugin + "add_action('wp_footer', function () { echo 'Our plugin'; });"},
			"Our plugin",
			"The plugin content is active",
		},
		"broken-plugin": {map[string]string{"ours.php": plugin + "undefined_call();"}, "</html>", "undefined_call"},
	} {
		h.commit(tt.files)
		var made struct{ Data siteBody }
		h.call("POST", "/sites", map[string]any{"name": name, "type": "wordpress", "repository": "git.test/ada/content"}, &made)
		s := h.ready(made.Data.ID)
		if status, _, text := h.visitor(s.URL).get("/"); status != 200 || !strings.Contains(text, tt.shows) {
			t.Errorf("%s: %d %.500s", name, status, text)
		}
		var log struct{ Logs []struct{ Message string } }
		var list struct{ Data []struct{ ID string } }
		h.call("GET", "/sites/"+s.ID+"/deployments?limit=1", nil, &list)
		h.call("GET", "/deployments/"+list.Data[0].ID+"/logs", nil, &log)
		if !slices.ContainsFunc(log.Logs, func(l struct{ Message string }) bool { return strings.Contains(l.Message, tt.says) }) {
			t.Errorf("%s: the log: %+v", name, log)
		}
		if name != "plugin" {
			continue
		}
		h.commit(map[string]string{"style.css": theme, "index.php": "<html><body>Our later theme</body></html>"})
		h.deploy(s)
		h.until("a theme that came later is active", func() bool {
			status, text, err := h.asks(s.URL + "/")
			return err == nil && status == 200 && strings.Contains(text, "Our later theme")
		})
	}
}

// commit commits files to the repository as its complete tree.
func (h *installation) commit(files map[string]string) {
	h.t.Helper()
	dir := h.t.TempDir()
	ok(h.t, world.WriteFiles(dir, files))
	_, err := h.Git.Commit("ada/content", "main", dir, "Content")
	ok(h.t, err)
}

// example deploys the theme example unchanged. The new site uses the theme.
func (h *installation) example() {
	_, err := h.Git.Commit("ada/harbor", "main", filepath.Join(world.Root(), "examples/wordpress-theme"), "Harbor")
	ok(h.t, err)
	var made struct{ Data siteBody }
	h.call("POST", "/sites", map[string]any{"name": "Harbor", "type": "wordpress", "repository": "git.test/ada/harbor"}, &made)
	s := h.ready(made.Data.ID)
	h.until("a page with the theme", func() bool {
		status, text, err := h.asks(s.URL + "/")
		return err == nil && status == 200 && strings.Contains(text, "News from the harbor") && strings.Contains(text, "/themes/harbor/style.css")
	})
}

// repository checks a site whose wp-content is a repository: it is deployed and rolled back, and keeps uploaded files.
func (h *installation) repository() {
	t := h.t
	h.commit(ourContent("1.0"))
	var made struct{ Data siteBody }
	h.call("POST", "/sites", map[string]any{"name": "Ours", "type": "wordpress", "repository": "git.test/ada/content"}, &made)
	s := h.ready(made.Data.ID)
	v := h.visitor(s.URL)
	if status, _, text := v.get("/?x=1"); status != 200 || !strings.Contains(text, "Theme 1.0") || !strings.Contains(text, "Always 1.0") {
		t.Fatalf("the first deployment: %d %.500s", status, text)
	}
	owner, _ := h.login(s)
	owner.rest("PUT", "/plugins/ours/ours", "application/json", strings.NewReader(`{"status": "active"}`), &struct{}{})
	var image struct {
		Source string `json:"source_url"`
	}
	owner.rest(
		"POST",
		"/media",
		"image/png",
		strings.NewReader(string(picture)),
		&image,
		"Content-Disposition",
		`attachment; filename="kept.png"`,
	)
	if _, _, text := v.get("/?x=2"); !strings.Contains(text, "Plugin 1.0") {
		t.Errorf("the plugin is not active: %.500s", text)
	}
	if status, _, text := v.get("/wp-content/plugins/ours/direct.php"); status == 200 || strings.Contains(text, "owned") {
		t.Errorf("a plugin's file runs directly: %d", status)
	}
	if status, header, _ := v.get("/wp-content/themes/ours/style.css"); status != 200 || !strings.HasPrefix(
		header.Get("Content-Type"),
		"text/css",
	) {
		t.Errorf("the theme's style: %d %s", status, header.Get("Content-Type"))
	}
	if status, _, text := owner.get("/wp-admin/plugin-install.php"); status == 200 && strings.Contains(text, "Upload Plugin") {
		t.Error("plugins can be installed beside the repository's")
	}

	if status, _, _ := v.get("/ads.txt"); status != 404 {
		t.Errorf("ads.txt before it is there: %d", status)
	}
	second := withTools(ourContent("2.0"))
	second["ads.txt"], second[".well-known/security.txt"], second["notes.txt"] = "google.com, pub-1", "Contact: ada", "ours"
	second["_redirects"], second["_headers"] = "/wp-content/uploads/old.pdf /new 301\n/old/* /new/:splat 301\n", "/*\n  X-Frame-Options: DENY\n"
	h.commit(second)
	h.deploy(s)
	both := func(version string) {
		t.Helper()
		page := ""
		h.until("version "+version, func() bool { // the edge switches a moment after the deployment has ended
			_, _, page = v.get("/") // a cached page, which must not be another deployment's
			return strings.Contains(page, "Theme "+version)
		})
		if !strings.Contains(page, "Plugin "+version) || !strings.Contains(page, "Always "+version) {
			t.Errorf("after version %s: %.800s", version, page)
		}
		if status, _, text := v.get(image.Source); status != 200 || text != string(picture) {
			t.Errorf("the upload after version %s: %d", version, status)
		}
	}
	both("2.0")
	for path, want := range map[string]string{
		"/ads.txt": "200 google.com, pub-1", "/.well-known/security.txt": "200 Contact: ada", "/old/a": "301 /new/a", "/wp-content/uploads/old.pdf": "301 /new",
	} {
		status, header, text := v.get(path)
		if got := fmt.Sprint(status, " ", header.Get("Location")+text); got != want || header.Get("X-Frame-Options") != "DENY" {
			t.Errorf("%s: %s, want %s (%v)", path, got, want, header)
		}
	}
	if status, header, _ := v.get("/notes.txt"); status != 404 || header.Get("X-Frame-Options") != "DENY" {
		t.Errorf("notes.txt: %d %v", status, header)
	}
	if _, header, _ := v.get("/"); header.Get("X-Frame-Options") != "DENY" {
		t.Errorf("a page's header: %v", header)
	}
	if _, _, page := v.get("/?x=composer"); !strings.Contains(page, "Hello from a package") {
		t.Errorf("what Composer has installed is not used: %.800s", page)
	}
	if status, header, text := v.get("/wp-content/themes/ours/built.css"); status != 200 || !strings.HasPrefix(
		header.Get("Content-Type"),
		"text/css",
	) || text != "body{color:#456}" {
		t.Errorf("what the build has made: %d %.100s", status, text)
	}
	for _, path := range []string{"/wp-content/vendor/autoload.php", "/wp-content/composer.json", "/wp-content/package.json"} {
		if status, _, text := v.get(path); status == 200 {
			t.Errorf("%s is open: %.100s", path, text)
		}
	}
	h.call("POST", "/sites/"+s.ID+"/rollback", nil, nil)
	both("1.0")
	if b, err := os.ReadFile(filepath.Join(h.Storage(), s.ID, "wp-content", "uploads/not-a-upload")); err == nil {
		t.Errorf("the repository's uploads were taken: %s", b)
	}

	// A commit that breaks the site doesn't go live.
	bad := ourContent("3.0")
	bad["mu-plugins/always.php"] = "<?php this is no PHP"
	h.commit(bad)
	h.call("PATCH", "/sites/"+s.ID, map[string]any{"run": map[string]any{"healthCheck": map[string]any{"timeoutSeconds": 4}}}, nil)
	var d struct{ DeploymentID string }
	h.call("POST", "/sites/"+s.ID+"/deploy", nil, &d)
	if status := h.deployed(d.DeploymentID); status != "failed" {
		t.Errorf("a broken commit ended %s", status)
	}
	both("1.0")
	h.call("DELETE", "/sites/"+s.ID, nil, nil)
}

// deploy deploys a site and waits until the deployment has succeeded.
func (h *installation) deploy(s siteBody) {
	h.t.Helper()
	var d struct{ DeploymentID string }
	h.call("POST", "/sites/"+s.ID+"/deploy", nil, &d)
	if status := h.deployed(d.DeploymentID); status != "success" {
		h.t.Fatalf("the deployment ended %s", status)
	}
}

// deployed waits until a deployment has ended and returns its status.
func (h *installation) deployed(id string) string {
	h.t.Helper()
	var d struct{ Status string }
	h.until("the deployment's end", func() bool {
		_ = h.Call(h.t.Context(), h.key, "GET", "/deployments/"+id, nil, &d)
		return d.Status == "success" || d.Status == "failed" || d.Status == "canceled"
	})
	return d.Status
}
