package wordpress

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"slipway/e2e/world"
)

// A site that was made with the WordPress of Debian 12 must be updatable to those of Debian 13 and unstable, and must
// be restored if a check fails. New sites of each version must have everything that Slipway adds.
func TestVersions(t *testing.T) {
	t.Parallel()
	world.Long(t)
	h := install(t)
	old := h.ready(h.create("Old").ID)
	owner, _ := h.login(old)
	owner.rest("POST", "/posts", "application/json", strings.NewReader(`{"title": "Written before", "status": "publish"}`), &struct{}{})
	for _, release := range []string{"trixie", "sid"} {
		h.story(t, release, func(h *installation) {
			at, version, err := world.WordPressOf(h.t.Context(), release, h.t.TempDir())
			ok(h.t, err)
			before, _ := h.versions(old)
			ok(h.t, os.RemoveAll(h.core))
			ok(h.t, os.Symlink(at, h.core))
			if h.t.Logf("Debian %s has WordPress %s", release, version); version <= before {
				h.t.Fatalf("Debian's WordPress isn't newer than %s", before)
			}
			// A plugin does not work with the new core, so the update must be undone completely.
			h.plant(old, "mu-plugins/old.php", "<?php if ($GLOBALS['wp_version'] === '"+version+"' && !defined('WP_INSTALLING')) too_new();")
			op := h.ended(h.update(old, map[string]any{"core": true}), "failed")
			if op.Result["restored"] != true {
				h.t.Errorf("an update that breaks the site: %s %v", op.Error, op.Result)
			}
			if is, _ := h.versions(old); is != before {
				h.t.Errorf("after it went back the core is %s, want %s: %s", is, before, op.Error)
			}
			ok(h.t, os.Remove(h.content(old, "mu-plugins/old.php")))
			h.ended(h.update(old, map[string]any{"core": true}), "success")
			if is, _ := h.versions(old); is != version {
				h.t.Errorf("the core is %s, want %s", is, version)
			}
			if status, _, text := h.visitor(old.URL).get("/written-before/"); status != 200 || !strings.Contains(text, "Written before") {
				h.t.Errorf("a page after the update: %d", status)
			}
			owner, _ := h.login(old)
			if status, _, text := owner.get("/wp-admin/"); status != 200 || !strings.Contains(text, "Dashboard") {
				h.t.Errorf("wp-admin after the update: %d", status)
			}
			blog := h.ready(h.create("Blog").ID)
			h.life(blog)
			h.plant(blog, "mu-plugins/probe.php", probe)
			if got := h.ask(blog, "loopback"); got != `"200 whole"` {
				h.t.Errorf("a request to itself: %s", got)
			}
			h.caches(blog)
			ok(h.t, os.Remove(filepath.Join(h.content(blog, "mu-plugins"), "probe.php")))
		})
	}
}
