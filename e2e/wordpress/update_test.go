package wordpress

import (
	"archive/zip"
	"bytes"
	"fmt"
	"os"
	"strings"
)

// offers replaces wordpress.org's answer about plugin updates: it offers the package in offer.zip, if that exists.
const offers = `<?php
add_filter('site_transient_update_plugins', function ($v) {
	$zip = WP_CONTENT_DIR . '/offer.zip';
	if (!is_file($zip)) return $v;
	$v = is_object($v) ? $v : new stdClass;
	$v->response = ['gadget/gadget.php' => (object) ['slug' => 'gadget', 'plugin' => 'gadget/gadget.php', 'new_version' => trim(file_get_contents(WP_CONTENT_DIR . '/offer.txt')), 'package' => $zip],
		'other/other.php' => (object) ['slug' => 'other', 'plugin' => 'other/other.php', 'new_version' => '2.0', 'package' => $zip]];
	return $v;
});
`

func gadget(version, body string) string {
	return "<?php\n/* Plugin Name: Gadget\n Version: " + version + " */\nadd_action('wp_footer', function () { echo 'Gadget " + version + "'; });\n" + body
}

// offerPlugin offers a version of the plugin gadget as an update.
func (h *installation) offerPlugin(s siteBody, version, body string) {
	h.t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	f, err := z.Create("gadget/gadget.php")
	ok(h.t, err)
	_, err = f.Write([]byte(gadget(version, body)))
	ok(h.t, err)
	ok(h.t, z.Close())
	h.plant(s, "offer.zip", b.String())
	h.plant(s, "offer.txt", version)
}

func (h *installation) update(s siteBody, body map[string]any) string {
	h.t.Helper()
	var op workBody
	h.call("POST", "/sites/"+s.ID+"/wordpress/update", body, &op)
	return op.ID
}

// updates checks that an update that breaks the site is undone, and that others are kept.
func (h *installation) updates(s siteBody) {
	t := h.t
	h.plant(s, "plugins/gadget/gadget.php", gadget("1.0", ""))
	h.plant(s, "mu-plugins/offers.php", offers)
	owner, _ := h.login(s)
	owner.rest("PUT", "/plugins/gadget/gadget", "application/json", strings.NewReader(`{"status": "active"}`), &struct{}{})
	v := h.visitor(s.URL)
	is := func(version string) {
		t.Helper()
		if status, _, text := v.get("/?u=" + version); status != 200 || !strings.Contains(text, "Gadget "+version) {
			t.Errorf("the site has not %s: %d %.300s", version, status, text)
		}
	}
	is("1.0")
	h.offerPlugin(s, "2.0", "add_action('template_redirect', function () { update_option('blogname', 'Broken'); gadget_is_missing(); });")
	op := h.ended(h.update(s, map[string]any{"plugins": []string{"gadget"}}), "failed")
	if !strings.Contains(
		op.Error,
		"The update broke the site: The page / answers with status 500",
	) || op.Result["restored"] != true || op.Result["backupId"] == nil ||
		op.Result["replacedBackupId"] == nil || !strings.Contains(op.Error, fmt.Sprint(op.Result["replacedBackupId"])) {
		t.Errorf("%s %v", op.Error, op.Result)
	}
	is("1.0")
	if _, _, text := v.get("/?u=title"); !strings.Contains(text, "<title>Blog</title>") {
		t.Errorf("the database is not as it was: %.300s", text)
	}
	// Undoing an update keeps comments that visitors wrote during its check. Here the new plugin version itself writes
	// a comment.
	h.offerPlugin(s, "2.0.1", `add_action('init', function () {
		global $wpdb;
		$wpdb->query("CREATE TABLE IF NOT EXISTS {$wpdb->prefix}gadget (id INT)");
		if (!get_comments(['search' => 'while it was checked'])) {
			wp_insert_comment(['comment_post_ID' => 1, 'comment_content' => 'written while it was checked', 'comment_approved' => 1]);
		}
	});
	add_action('template_redirect', function () { gadget_is_missing(); });`)
	op = h.ended(h.update(s, map[string]any{"plugins": []string{"gadget"}}), "failed")
	if op.Result["databaseKept"] != true || !strings.Contains(op.Error, "has what was written meanwhile") {
		t.Errorf("%s %v", op.Error, op.Result)
	}
	is("1.0")
	if _, _, text := v.get("/wp-json/wp/v2/comments?search=while+it+was+checked"); !strings.Contains(text, "written while it was checked") {
		t.Error("an update that goes back loses comments")
	}
	h.offerPlugin(s, "2.1", "add_filter('bloginfo', fn() => '');add_filter('pre_get_document_title', fn() => 'Hacked');")
	if op = h.ended(h.update(s, map[string]any{"plugins": "all"}), "failed"); !strings.Contains(op.Error, `has the title "Hacked"`) {
		t.Errorf("a changed title: %s", op.Error)
	}
	is("1.0")
	if op = h.ended(
		h.update(s, map[string]any{"plugins": []string{"gadget", "gadgets"}}),
		"failed",
	); !strings.HasPrefix(op.Error, "There is no plugin gadgets on this site") {
		t.Errorf("a plugin that is not installed: %s", op.Error)
	}
	is("1.0")

	// A good update, with the core in the same operation.
	h.offerPlugin(s, "2.2", "")
	h.offer("6.1.91")
	op = h.ended(h.update(s, map[string]any{"plugins": "all", "core": true}), "success")
	if list, _ := op.Result["updated"].([]any); len(list) != 2 {
		t.Errorf("the update changed %v", op.Result)
	}
	is("2.2")
	if version, _ := h.versions(s); version != "6.1.91" {
		t.Errorf("the core is %s", version)
	}
	h.updatesItself(s)
	ok(t, os.Remove(h.content(s, "offer.zip")))
}

// versions returns the versions of a site's core and plugins.
func (h *installation) versions(s siteBody) (core string, plugins map[string]string) {
	h.t.Helper()
	var info struct {
		Version string
		Plugins []struct{ Slug, Version string }
	}
	h.call("GET", "/sites/"+s.ID+"/wordpress", nil, &info)
	plugins = map[string]string{}
	for _, p := range info.Plugins {
		plugins[p.Slug] = p.Version
	}
	return info.Version, plugins
}

// updatesItself turns on automatic minor updates. They install only minor versions of the core and of plugins.
func (h *installation) updatesItself(s siteBody) {
	t := h.t
	h.plant(s, "plugins/other/other.php", "<?php\n/* Plugin Name: Other\n Version: 1.0 */")
	h.offerPlugin(s, "2.2.1", "")
	h.offer("6.1.92")
	h.call("PATCH", "/sites/"+s.ID+"/wordpress", map[string]any{"autoUpdate": "minor"}, nil)
	v, n := h.visitor(s.URL), 0
	h.calmly("the automatic update", func() bool {
		n++
		_, _, text := v.get(fmt.Sprintf("/?automatic=%d", n))
		return strings.Contains(text, "Gadget 2.2.1")
	})
	// A site runs one operation at a time, so another one is accepted after the update has ended.
	var op workBody
	h.calmly("the end of the automatic update", func() bool {
		return h.Call(t.Context(), h.key, "POST", "/sites/"+s.ID+"/wordpress/search-replace", map[string]any{
			"from":   "nowhere in it",
			"to":     "x",
			"dryRun": true,
		}, &op) == nil
	})
	h.ended(op.ID, "success")
	if core, plugins := h.versions(s); core != "6.1.92" || plugins["gadget"] != "2.2.1" || plugins["other"] != "1.0" {
		t.Errorf("the automatic update led to %s, %v", core, plugins)
	}
	h.call("PATCH", "/sites/"+s.ID+"/wordpress", map[string]any{"autoUpdate": "off"}, nil)
}

// killedWhileUpdated kills the service at several points of an update. Afterwards the site works, and the operation has
// ended.
func (h *installation) killedWhileUpdated(s siteBody) {
	t := h.t
	for i, point := range []string{"Backing up", "Updating", "Checking", "Restoring"} {
		version, body := []string{"3.0", "3.1", "3.2", "3.3"}[i], ""
		if point == "Restoring" {
			body = "add_action('template_redirect', function () { gadget_is_missing(); });"
		}
		h.offerPlugin(s, version, body)
		id := h.update(s, map[string]any{"plugins": "all"})
		var op workBody
		h.until(point, func() bool {
			_ = h.Call(t.Context(), h.key, "GET", "/operations/"+id, nil, &op)
			return strings.HasPrefix(op.Message, point) || op.Status == "success" || op.Status == "failed"
		})
		h.Kill()
		ok(t, h.Start(t.Context()))
		h.until("the operation's end", func() bool {
			_ = h.Call(t.Context(), h.key, "GET", "/operations/"+id, nil, &op)
			return op.Status == "success" || op.Status == "failed"
		})
		if op.Status == "failed" && op.Result["restored"] != true {
			t.Errorf("killed at %q: %s %v", point, op.Error, op.Result)
		}
		if status, text := h.answers(s, "/?k="+version); status != 200 || !strings.Contains(
			text,
			"Gadget ",
		) || op.Status == "success" && !strings.Contains(text, "Gadget "+version) {
			t.Errorf("killed at %q, ended %s: %d %.300s", point, op.Status, status, text)
		}
	}
}

// replaces checks that text is replaced everywhere, also in serialized values, and that a dry run changes nothing.
func (h *installation) replaces(s siteBody) {
	t := h.t
	before, keyless := h.ask(s, "option", "set", "1"), h.ask(s, "keyless", "set", "1")
	replace := func(dry bool) workBody {
		t.Helper()
		var op workBody
		h.call("POST", "/sites/"+s.ID+"/wordpress/search-replace", map[string]any{
			"from":   "https://old.example",
			"to":     "https://new-address.example",
			"dryRun": dry,
		}, &op)
		return h.ended(op.ID, "success")
	}
	if op := replace(true); op.Result["rows"] != 5.0 || op.Result["replacements"] != 6.0 || op.Result["backupId"] != nil {
		t.Errorf("the dry run: %v", op.Result)
	}
	if got := h.ask(s, "option"); got != before || h.ask(s, "keyless") != keyless {
		t.Errorf("the dry run has changed it: %s", got)
	}
	if op := replace(false); op.Result["replacements"] != 6.0 || len(op.Result["skippedTables"].([]any)) != 0 || op.Result["backupId"] == nil {
		t.Errorf("the replacement: %v", op.Result)
	}
	if got, want := h.ask(
		s,
		"option",
	), strings.ReplaceAll(
		before,
		"https://old.example",
		"https://new-address.example",
	); !strings.Contains(
		got,
		`"url":"https://new-address.example/x/äö"`,
	) || !strings.Contains(got, `"again":{"u":"https://new-address.example/y"}`) {
		t.Errorf("the value is %s, want about %s", got, want)
	}
	want := strings.ReplaceAll(strings.ReplaceAll(keyless, "https://old.example", "https://new-address.example"), "s:21:\\\"https://new", "s:29:\\\"https://new")
	if got := h.ask(s, "keyless"); got != want {
		t.Errorf("a table without a key has become %s, want %s", got, want)
	}
	if op := replace(true); op.Result["rows"] != 0.0 {
		t.Errorf("a second dry run: %v", op.Result)
	}
}
