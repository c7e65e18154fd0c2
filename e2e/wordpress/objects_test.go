package wordpress

import (
	"os"
	"strconv"
	"strings"
)

// objectsPlugin queries and disturbs the site's Redis.
const objectsPlugin = `<?php
add_action('wp_footer', function () { echo '<i id="queries">', get_num_queries(), '</i>'; }, PHP_INT_MAX);
if (isset($_GET['objects'])) add_action('init', function () {
	$redis = array_values(array_filter(glob('/proc/[0-9]*/comm'), fn($f) => trim((string) @file_get_contents($f)) === 'redis-server'));
	$signal = function (int $no) use ($redis) { foreach ($redis as $f) posix_kill((int) basename(dirname($f)), $no); };
	switch ($_GET['objects']) {
	case 'count': echo count($redis); break;
	case 'title': echo json_encode(update_option('blogname', $_GET['to'])); break;
	case 'kill': $signal(9); echo 'killed'; break;
	case 'stop': $signal(19); echo 'stopped'; break;
	case 'continue': $signal(18); echo 'continued'; break;
	case 'link': $s = getenv('SLIPWAY_REDIS'); echo json_encode(unlink($s) && symlink('/run/mysqld/mysqld.sock', $s)); break;
	case 'older': echo json_encode(update_option('db_version', $GLOBALS['wp_db_version'] - 1)); break;
	case 'version': echo (int) get_option('db_version') - $GLOBALS['wp_db_version']; break;
	case 'transient': set_transient('kept', 'outside', 3600); echo json_encode(get_transient('kept')); break;
	}
	exit;
});
`

type objectsBody struct {
	ObjectCache struct {
		Enabled                         bool
		Status                          string
		Hits, Misses, Keys, MemoryBytes int64
	}
}

// caches turns on a site's object cache and waits until it is active.
func (h *installation) caches(s siteBody) {
	h.t.Helper()
	h.call("PATCH", "/sites/"+s.ID+"/wordpress", map[string]any{"objectCache": true}, nil)
	h.until("the object cache is active", func() bool {
		var now objectsBody
		h.call("GET", "/sites/"+s.ID+"/wordpress", nil, &now)
		return now.ObjectCache.Status == "active"
	})
}

// objects checks that the object cache saves queries and never serves stale data, and that the site works without it.
func (h *installation) objects(s siteBody) {
	t := h.t
	h.plant(s, "mu-plugins/objects.php", objectsPlugin)
	n := 0
	page := func() string { // a page that isn't cached
		t.Helper()
		n++
		status, _, text := h.visitor(s.URL).get("/?objects-page=" + strconv.Itoa(n))
		if status != 200 {
			t.Errorf("the page answers %d: %.300s", status, text)
		}
		return text
	}
	queries := func() (n int) {
		_, text, _ := strings.Cut(page(), `<i id="queries">`)
		text, _, _ = strings.Cut(text, "<")
		n, err := strconv.Atoi(text)
		ok(t, err)
		return n
	}
	do := func(what string, more ...string) string {
		t.Helper()
		status, _, text := h.visitor(s.URL).get("/?objects=" + what + strings.Join(more, ""))
		if status != 200 {
			t.Errorf("%s: %d %.300s", what, status, text)
		}
		return text
	}
	turn := func(on bool) {
		t.Helper()
		h.call("PATCH", "/sites/"+s.ID+"/wordpress", map[string]any{"objectCache": on}, nil)
	}
	var now objectsBody
	becomes := func(status string) {
		t.Helper()
		h.until("the object cache is "+status, func() bool {
			h.call("GET", "/sites/"+s.ID+"/wordpress", nil, &now)
			return now.ObjectCache.Status == status
		})
	}
	titled := func(title string) {
		t.Helper()
		for range 3 { // several times, to reach different PHP workers
			if text := page(); !strings.Contains(text, "<title>"+title+"</title>") {
				_, text, _ = strings.Cut(text, "<title>")
				t.Errorf("the page is not called %q but %.60q", title, text)
			}
		}
	}

	without := queries()
	turn(true)
	becomes("active")
	titled("Blog")
	before, with := now.ObjectCache, 0
	h.until("the cache spares queries", func() bool { // on a busy machine, a request may skip the cache
		with = queries()
		return with < without
	})
	h.until("its hits are counted", func() bool {
		becomes("active")
		return now.ObjectCache.Hits > before.Hits && now.ObjectCache.Keys > 0 && now.ObjectCache.MemoryBytes > 0
	})
	t.Logf("%d queries of a page with the cache, %d without", with, without)
	do("title", "&to=One")
	titled("One")

	// If Redis is killed, hangs or loses its socket, the site works, and changes made meanwhile are visible.
	if text := do("kill"); text != "killed" {
		t.Errorf("kill: %q", text)
	}
	titled("One")
	do("title", "&to=Two")
	titled("Two")
	becomes("active")
	titled("Two")
	h.logged(s, "The object cache (Redis) ended with exit code 137")
	titled("Two")
	do("stop")
	do("title", "&to=Three")
	titled("Three")
	do("continue")
	becomes("active")
	titled("Three")
	if text := do("link"); text != "true" {
		t.Errorf("link: %q", text)
	}
	do("title", "&to=Four")
	titled("Four")
	do("kill")
	becomes("active")
	titled("Four")

	h.commands(s, titled)
	do("title", "&to=Four")

	// A restore replaces the database while Redis has data of the old one.
	if got := do("transient"); got != `"outside"` {
		t.Errorf("a transient: %s", got)
	}
	backup := h.backUp(s.ID)
	do("title", "&to=Five")
	titled("Five")
	h.restore(backup.ID, map[string]any{"includes": []string{"database"}})
	titled("Four")
	becomes("active")
	titled("Four")

	// A restored database may be older than the core's last update. The owner can still open wp-admin.
	if got := do("older"); got != "true" {
		t.Errorf("an older database: %s", got)
	}
	if owner, _ := h.login(s); owner != nil {
		if status, _, _ := owner.get("/wp-admin/"); status != 200 {
			t.Errorf("wp-admin with an older database: %d", status)
		}
	}
	if got := do("version"); got != "0" {
		t.Errorf("the database is %s versions from the core's", got)
	}

	// A site's own object-cache.php is used instead, and isn't changed.
	h.plant(s, "object-cache.php", "<?php // of a plugin\n")
	becomes("replaced")
	h.logged(s, "The object cache of Slipway is not used")
	if text, err := os.ReadFile(h.content(s, "object-cache.php")); err != nil || string(text) != "<?php // of a plugin\n" {
		t.Errorf("the site's drop-in is %q, %v", text, err)
	}
	do("title", "&to=Six")
	titled("Six")
	ok(t, os.Remove(h.content(s, "object-cache.php")))
	becomes("active")
	titled("Six")

	turn(false)
	becomes("off")
	h.until("no Redis runs where it is off", func() bool { return do("count") == "0" })
	titled("Six")
	if after := queries(); after <= with {
		t.Errorf("%d queries without the cache, %d with it", after, with)
	}
	do("title", "&to=Blog")
	titled("Blog")

	h.caches(s) // on for the following stories: updates, replacements, clones, pushes and imports
}
