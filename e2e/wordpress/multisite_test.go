package wordpress

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"slipway/e2e/world"
)

// inside makes and asks blogs of a network, as people do in its wp-admin.
const inside = `<?php
if (isset($_GET['inside'])) add_action('init', function () {
	switch ($_GET['inside']) {
	case 'make':
		$id = wp_insert_site(['domain' => $_GET['domain'] ?: get_network()->domain, 'path' => $_GET['path'], 'title' => 'News', 'user_id' => 1, 'network_id' => 1]);
		if (is_wp_error($id)) die($id->get_error_message());
		switch_to_blog($id);
		update_option('permalink_structure', '/%postname%/');
		wp_insert_post(['post_title' => 'In the blog', 'post_status' => 'publish', 'post_content' => '<img src="' . home_url('wp-content/uploads/sites/' . $id . '/a.txt') . '">']);
		die("made $id");
	case 'move':
		update_blog_details((int) $_GET['id'], ['domain' => $_GET['domain'], 'path' => '/']);
		update_blog_option((int) $_GET['id'], 'home', 'https://' . $_GET['domain']);
		update_blog_option((int) $_GET['id'], 'siteurl', 'https://' . $_GET['domain']);
		die('moved');
	case 'cron':
		wp_schedule_single_event(time(), 'inside_event');
		die('scheduled');
	case 'option':
		die('all ' . get_option('inside_ran') . ' of ' . get_current_blog_id() . ' ' . home_url());
	}
});
add_action('inside_event', function () { update_option('inside_ran', 'in ' . get_current_blog_id(), false); });
`

// A site becomes a network with blogs in folders and blogs with domains of their own. All that a single site has, its blogs have.
func TestNetworks(t *testing.T) {
	t.Parallel()
	world.Long(t)
	h := install(t)
	s := h.ready(h.create("Main").ID)
	h.plant(s, "mu-plugins/inside.php", inside)
	h.call("PATCH", "/sites/"+s.ID+"/wordpress", map[string]any{"network": "subfolder"}, nil)
	var info struct{ Network string }
	h.until("the site is a network", func() bool {
		h.call("GET", "/sites/"+s.ID+"/wordpress", nil, &info)
		return info.Network == "subfolder"
	})
	var op workBody
	h.calmly("the operation's end", func() bool { // a site has one at a time
		dry := map[string]any{"from": "nowhere in it", "to": "x", "dryRun": true}
		return h.Call(t.Context(), h.key, "POST", "/sites/"+s.ID+"/wordpress/search-replace", dry, &op) == nil
	})
	h.ended(op.ID, "success")
	info.Network = ""
	if h.call("GET", "/sites/"+s.ID+"/wordpress", nil, &info); info.Network != "subfolder" {
		t.Fatalf("the site is no network: %q", h.lines(s))
	}
	v := h.visitor(s.URL)
	is := func(address string, status int, want string) {
		t.Helper()
		got, _, text := v.get(address)
		if got != status || !strings.Contains(text, want) {
			t.Errorf("%s: %d, want %d; has %q: %v: %.600s", address, got, status, want, strings.Contains(text, want), text)
		}
	}
	is("/", 200, "<title>Main</title>")
	if _, _, text := v.get("/?inside=make&domain=&path=/news/"); text != "made 2" {
		t.Fatalf("a blog in a folder: %.300s", text)
	}
	is("/news/", 200, "<title>News</title>")
	is("/news/in-the-blog/", 200, s.URL+"/news/wp-content/uploads/sites/2/a.txt")
	h.plant(s, "uploads/sites/2/a.txt", "of the blog")
	is("/news/wp-content/uploads/sites/2/a.txt", 200, "of the blog")
	is("/news/wp-config.php", 404, "")
	is("/news/wp-content/uploads/x.php", 404, "")
	is("/news/wp-login.php", 200, "loginform")
	if status, header, _ := v.get("/news/wp-admin"); status != 301 || header.Get("Location") != s.URL+"/news/wp-admin/" && header.Get("Location") != "/news/wp-admin/" {
		t.Errorf("the blog's wp-admin leads to %s (%d)", header.Get("Location"), status)
	}
	v.get("/news/")
	if _, header, _ := v.get("/news/"); header.Get("X-Cache") != "HIT" && h.Nodes() == 1 {
		t.Errorf("the blog's page is not cached: %v", header)
	}
	is("/", 200, "<title>Main</title>")
	owner, _ := h.login(s)
	for _, path := range []string{"/wp-admin/network/", "/news/wp-admin/"} {
		if status, _, text := owner.get(path); status != 200 || !strings.Contains(text, "Dashboard") {
			t.Errorf("%s: %d %.200s", path, status, text)
		}
	}
	if t.Failed() {
		return
	}
	h.caches(s)
	is("/news/?inside=option", 200, "all  of 2 "+s.URL+"/news")
	is("/?inside=option", 200, "all  of 1 "+s.URL)
	if _, _, text := v.get("/news/?inside=cron"); text != "scheduled" {
		t.Fatalf("an event of the blog: %.300s", text)
	}
	h.calmly("the blog's event runs", func() bool {
		_, _, text := v.get("/news/?inside=option")
		return strings.Contains(text, "all in 2 of 2")
	})

	// A blog with a domain of its own.
	own, err := url.Parse(s.URL)
	ok(t, err)
	host := func(name string) string {
		if own.Port() != "" {
			name += ":" + own.Port()
		}
		return name
	}
	domain := func(name string, primary bool) {
		t.Helper()
		var d struct {
			ID, Status   string
			Verification []struct{ Name, Value string }
		}
		h.call("POST", "/sites/"+s.ID+"/domains", map[string]any{"name": name, "primary": primary}, &d)
		h.zone.Set(name, "A 127.0.0.1")
		h.zone.Set(d.Verification[0].Name, `TXT "`+d.Verification[0].Value+`"`)
		h.call("POST", "/domains/"+d.ID+"/verify", nil, &d)
		if d.Status != "active" {
			t.Fatalf("the domain is %s", d.Status)
		}
	}
	domain("main.test", true)
	h.until("the network is at its domain", func() bool {
		_, text, _ := h.asks("https://" + host("main.test") + "/news/in-the-blog/")
		return strings.Contains(text, "https://"+host("main.test")+"/news/wp-content/uploads/sites/2/a.txt")
	})
	domain("news.test", false)
	if _, _, text := v.get("https://" + host("main.test") + "/?inside=move&id=2&domain=" + url.QueryEscape(host("news.test"))); text != "moved" {
		t.Fatalf("the blog doesn't move: %.300s", text)
	}
	is("https://"+host("news.test")+"/", 200, "<title>News</title>")
	is("https://"+host("main.test")+"/", 200, "<title>Main</title>")
	is("https://"+host("news.test")+"/?inside=option", 200, "all in 2 of 2 https://"+host("news.test"))

	// A clone has all blogs below its own address, and a push brings each back to its own.
	h.call("POST", "/sites/"+s.ID+"/clone", map[string]any{"name": "Staging"}, &op)
	op = h.ended(op.ID, "success")
	staging := h.ready(fmt.Sprint(op.Result["siteId"]))
	is(staging.URL+"/", 200, "<title>Main</title>")
	is(staging.URL+"/news/in-the-blog/", 200, staging.URL+"/news/")
	if _, _, text := v.get(staging.URL + "/news/in-the-blog/"); strings.Contains(text, "news.test") || strings.Contains(text, "main.test") {
		t.Error("the clone's blog names the original")
	}
	h.call("POST", "/sites/"+staging.ID+"/push", map[string]any{"to": s.ID, "database": true}, &op)
	h.ended(op.ID, "success")
	is("https://"+host("news.test")+"/?inside=option", 200, "of 2 https://"+host("news.test"))
	is("https://"+host("news.test")+"/in-the-blog/?pushed", 200, "<title>In the blog")
	is("https://"+host("main.test")+"/?inside=option", 200, "of 1 https://"+host("main.test"))

	// Another WordPress takes all of it from an archive.
	archive := h.export(s)
	other := h.ready(h.create("Other").ID)
	op, status := h.upload(other, archive)
	if status != 202 {
		t.Fatalf("the archive of a network: %d", status)
	}
	h.ended(op.ID, "success")
	is(other.URL+"/", 200, "<title>Main</title>")
	h.call("GET", "/sites/"+other.ID+"/wordpress", nil, &info)
	if info.Network != "subfolder" {
		t.Errorf("what was imported is a network of the kind %q", info.Network)
	}
}
