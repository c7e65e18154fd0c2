package wordpress

import (
	"context"
	mo "encoding/binary"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"slipway/internal/tenant/mail/mailtest"
)

// content returns the path of a file in a site's wp-content.
func (h *installation) content(s siteBody, name string) string {
	return filepath.Join(h.Storage(), s.ID, "wp-content", name)
}

// plant writes a file into a site's wp-content.
func (h *installation) plant(s siteBody, name, text string) {
	h.t.Helper()
	at := h.content(s, name)
	info, err := os.Stat(h.content(s, ""))
	ok(h.t, err)
	owner := info.Sys().(*syscall.Stat_t)
	for dir := filepath.Dir(at); dir != h.content(s, ""); dir = filepath.Dir(dir) { // owned by the site's user, as if the site had created it
		ok(h.t, os.MkdirAll(dir, 0o755))
		ok(h.t, os.Lchown(dir, int(owner.Uid), int(owner.Gid)))
	}
	ok(h.t, os.WriteFile(at, []byte(text), 0o644))
	ok(h.t, os.Lchown(at, int(owner.Uid), int(owner.Gid)))
}

// probe answers the tests' questions from within WordPress, bypassing the page cache.
const probe = `<?php
if (isset($_GET['probe'])) add_action('init', function () {
	header('Content-Type: application/json');
	switch ($_GET['probe']) {
	case 'loopback':
		$r = wp_remote_get(home_url('/?p=1&loop=1'), ['sslverify' => false, 'timeout' => 20]);
		echo json_encode(is_wp_error($r) ? $r->get_error_message() : wp_remote_retrieve_response_code($r) . ' ' . (strpos(wp_remote_retrieve_body($r), 'Hello world') !== false ? 'whole' : 'odd'));
		break;
	case 'health':
		require_once ABSPATH . 'wp-admin/includes/class-wp-site-health.php';
		echo json_encode([WP_Site_Health::get_instance()->can_perform_loopback()->status]);
		break;
	case 'https':
		echo json_encode([is_ssl(), home_url(), $_SERVER['SERVER_PORT'], $_SERVER['REQUEST_SCHEME']]);
		break;
	case 'mail':
		echo json_encode(wp_mail('someone@example.test', 'A subject', 'A text'));
		break;
	case 'option':
		if (isset($_GET['set'])) update_option('probe', ['deep' => ['url' => 'https://old.example/x/äö', 'n' => 7, 'again' => serialize(['u' => 'https://old.example/y'])], 'json' => '{"u":"https:\\/\\/old.example"}']);
		wp_cache_delete('probe', 'options'); wp_cache_delete('alloptions', 'options');
		$o = get_option('probe'); if (is_array($o)) $o['again'] = unserialize($o['deep']['again']);
		echo json_encode($o, JSON_UNESCAPED_SLASHES | JSON_UNESCAPED_UNICODE);
		break;
	case 'keyless': // a table whose rows have no key
		global $wpdb;
		if (isset($_GET['set'])) {
			$wpdb->query("CREATE TABLE {$wpdb->prefix}keyless (a TEXT, b VARCHAR(200))");
			foreach (['https://old.example/a', 'https://old.example/a', 'HTTPS://OLD.EXAMPLE/A', 'else'] as $v) $wpdb->insert($wpdb->prefix . 'keyless', ['a' => $v, 'b' => serialize([$v])]);
		}
		echo json_encode($wpdb->get_results("SELECT a, b FROM {$wpdb->prefix}keyless ORDER BY BINARY a, b", ARRAY_N), JSON_UNESCAPED_SLASHES);
		break;
	case 'late': // a change after output began
		echo '"';
		while (ob_get_level()) ob_end_flush();
		flush();
		do_action('slipway_purge', ['/']);
		echo headers_sent() ? 'sent"' : '"';
		break;
	case 'uploads':
		echo json_encode(wp_max_upload_size());
		break;
	case 'schedule':
		echo json_encode(wp_schedule_single_event(time(), 'probe_event'));
		break;
	case 'slow': // two that are due: while the first one runs, others are scheduled
		wp_schedule_single_event(time() - 20, 'probe_slow');
		echo json_encode(wp_schedule_single_event(time() - 10, 'probe_after'));
		break;
	case 'began':
		wp_cache_delete('probe_began', 'options'); wp_cache_delete('notoptions', 'options');
		echo json_encode(get_option('probe_began'));
		break;
	case 'happened':
		wp_cache_delete('probe_happened', 'options'); wp_cache_delete('notoptions', 'options');
		echo json_encode(get_option('probe_happened'));
		break;
	}
	exit;
});
add_action('probe_slow', function () { update_option('probe_began', 'yes', false); sleep(5); });
add_action('probe_event', function () { update_option('probe_happened', 'yes', false); });
`

func (h *installation) ask(s siteBody, what string, more ...string) string {
	h.t.Helper()
	q := url.Values{"probe": {what}}
	for i := 0; i+1 < len(more); i += 2 {
		q.Set(more[i], more[i+1])
	}
	status, _, text := h.visitor(s.URL).get("/?" + q.Encode())
	if status != 200 {
		h.t.Errorf("%s: %d %.300s", what, status, text)
	}
	return text
}

// network checks what a WordPress can connect to: its own site, and the operator's mail server if there is one. It also
// checks its settings.
func (h *installation) network(s siteBody) {
	t := h.t
	h.plant(s, "mu-plugins/probe.php", probe)
	if got := h.ask(s, "slow"); got != "true" {
		t.Errorf("events that are due: %s", got)
	}
	h.calmly("an event runs", func() bool { return h.ask(s, "began") == `"yes"` })
	if got := h.ask(s, "schedule"); got != "true" {
		t.Errorf("an event that is due now: %s", got)
	}
	if got := h.ask(s, "loopback"); got != `"200 whole"` {
		t.Errorf("a request to itself: %s", got)
	}
	stranger := h.visitor(s.URL)
	cached := func() bool {
		_, header, _ := stranger.get("/")
		return header.Get("X-Cache") == "HIT"
	}
	h.until("the front page is cached", cached)
	if got := h.ask(s, "late"); got != `"sent"` {
		t.Errorf("a change after output began: %s", got)
	}
	h.until("a change after output began purges the front page", func() bool { return !cached() })
	if got := h.ask(s, "health"); got != `["good"]` {
		t.Errorf("Site Health says of requests to itself: %s", got)
	}
	for _, mark := range []string{"", strings.Repeat("0", 64)} {
		if status, _, _ := h.visitor(s.URL).do("POST", "/wp-cron.php", nil, "Slipway-Loopback", mark); status != 404 {
			t.Errorf("a stranger's request to wp-cron.php with %q: %d", mark, status)
		}
	}
	if got := h.ask(s, "https"); !strings.HasPrefix(got, "[true,\"https:") {
		t.Errorf("WordPress does not know that it uses HTTPS: %s", got)
	}
	if got := h.ask(s, "mail"); got != "false" {
		t.Errorf("a mail without a server: %s", got)
	}
	h.logged(s, "Mail not sent: this server has no mail server for sites. To: someone@example.test")
	if got := h.ask(s, "uploads"); got != "67108864" {
		t.Errorf("uploads may have %s bytes", got)
	}
	h.until("the front page is cached", func() bool {
		_, header, _ := h.visitor(s.URL).get("/")
		return header.Get("X-Cache") == "HIT"
	})
	// Settings apply without a restart, also to cached pages, and no request fails.
	dropped := h.visits(s, func(status int, text string) bool { return status == 200 || strings.Contains(text, "being worked on") })
	h.call("PATCH", "/sites/"+s.ID+"/wordpress", map[string]any{"maintenance": true, "php": map[string]any{"uploadMiB": 3}}, nil)
	for _, path := range []string{"/", "/?uncached=1"} {
		h.until("visitors see at "+path+" that the site is in maintenance", func() bool {
			status, _, _ := h.visitor(s.URL).get(path)
			return status == 503
		})
	}
	if list := dropped(); len(list) > 0 {
		t.Errorf("%d requests were dropped: %q; the site's log: %q", len(list), list[0], h.lines(s))
	}
	if status, header, text := h.visitor(s.URL).get("/?maintenance=1"); status != 503 || header.Get("Retry-After") == "" ||
		!strings.Contains(
			text,
			"being worked on",
		) {
		t.Errorf("in maintenance a visitor gets %d %.200s", status, text)
	}
	if owner, _ := h.login(s); owner != nil {
		if status, _, _ := owner.get("/?maintenance=2"); status != 200 {
			t.Errorf("in maintenance its owner gets %d", status)
		}
		if status, _, text := owner.get("/wp-admin/theme-editor.php"); status == 200 || strings.Contains(text, "newcontent") {
			t.Errorf("files can be edited in wp-admin: %d", status)
		}
	}
	h.call("PATCH", "/sites/"+s.ID+"/wordpress", map[string]any{"maintenance": false}, nil)
	for _, path := range []string{"/", "/?uncached=2"} { // a cached page says nothing about PHP
		h.until("visitors see the site again at "+path, func() bool {
			status, _, _ := h.visitor(s.URL).get(path)
			return status == 200
		})
	}
	if got := h.ask(s, "uploads"); got != "3145728" {
		t.Errorf("uploads may have %s bytes after the change", got)
	}
	var info struct {
		DiskBytes, DatabaseBytes int64
		AutoUpdate               string
	}
	h.call("GET", "/sites/"+s.ID+"/wordpress", nil, &info)
	if info.DiskBytes < 100_000 || info.AutoUpdate != "off" {
		t.Errorf("the API describes the site as %+v", info)
	}
	var users, crons struct{ Data []map[string]any }
	h.call("GET", "/sites/"+s.ID+"/wordpress/users", nil, &users)
	h.call("GET", "/sites/"+s.ID+"/wordpress/crons", nil, &crons)
	if len(users.Data) != 1 || users.Data[0]["email"] != "ada@example.test" || len(crons.Data) < 3 {
		t.Errorf("users %v, events %v", users.Data, crons.Data)
	}
	h.calmly("the event that was due", func() bool { return h.ask(s, "happened") == `"yes"` })
}

// restart restarts a site, which applies its settings.
func (h *installation) restart(s siteBody) {
	h.t.Helper()
	var op workBody
	h.call("POST", "/sites/"+s.ID+"/restart", nil, &op)
	h.ended(op.ID, "success")
}

// logged waits for a line in a site's log.
func (h *installation) logged(s siteBody, line string) {
	h.t.Helper()
	h.until("the log's line "+line, func() bool {
		return slices.ContainsFunc(h.lines(s), func(l string) bool { return strings.Contains(l, line) })
	})
}

// lines returns the newest lines of a site's log.
func (h *installation) lines(s siteBody) (all []string) {
	h.t.Helper()
	var logs struct{ Logs []struct{ Message string } }
	h.call("GET", "/sites/"+s.ID+"/logs?limit=1000", nil, &logs)
	for _, l := range logs.Logs {
		all = append(all, l.Message)
	}
	return all
}

type workBody struct {
	ID, Status, Message, Error string
	Result                     map[string]any
}

// ended waits until an operation has ended with this status.
func (h *installation) ended(id, status string) (op workBody) {
	h.t.Helper()
	h.until("the end of "+id, func() bool {
		_ = h.Call(h.t.Context(), h.key, "GET", "/operations/"+id, nil, &op)
		return op.Status == "success" || op.Status == "failed" || op.Status == "canceled"
	})
	if op.Status != status {
		h.t.Fatalf("the operation ended %s: %s %s %v", op.Status, op.Message, op.Error, op.Result)
	}
	return op
}

// language checks a site that was installed in German. The translations are part of the core.
func (h *installation) language(s siteBody) {
	status, _, text := h.visitor(s.URL).get("/?language=1")
	if status != 200 || !strings.Contains(
		text,
		`lang="de-DE"`,
	) || !strings.Contains(text, "Hallo Welt!") || strings.Contains(text, "Hello world!") {
		h.t.Errorf("a site in German: %d %.500s", status, text)
	}
	var info struct{ Locale string }
	h.call("GET", "/sites/"+s.ID+"/wordpress", nil, &info)
	if info.Locale != "de_DE" {
		h.t.Errorf("its language is %q", info.Locale)
	}
}

// translation returns a .mo file in gettext's format.
func translation(pairs ...[2]string) []byte {
	n := uint32(len(pairs))
	var head, texts []byte
	for _, v := range []uint32{0x950412de, 0, n, 28, 28 + 8*n, 0, 28 + 16*n} {
		head = mo.LittleEndian.AppendUint32(head, v)
	}
	for side := range 2 {
		for _, p := range pairs {
			head = mo.LittleEndian.AppendUint32(head, uint32(len(p[side])))
			head = mo.LittleEndian.AppendUint32(head, 28+16*n+uint32(len(texts)))
			texts = append(append(texts, p[side]...), 0)
		}
	}
	return append(head, texts...)
}

// resetsPassword requests a password reset. The email is sent through the operator's server with the operator's sender,
// and its link works.
func (h *installation) resetsPassword(s siteBody, mails *mailtest.Server) {
	t := h.t
	form := url.Values{"user_login": {"ada@example.test"}, "wp-submit": {"Get New Password"}}
	status, header, text := h.visitor(s.URL).do(
		"POST",
		"/wp-login.php?action=lostpassword",
		strings.NewReader(form.Encode()),
		"Content-Type",
		"application/x-www-form-urlencoded",
	)
	if status != 302 || !strings.Contains(header.Get("Location"), "checkemail=confirm") {
		t.Fatalf("a forgotten password: %d to %q %.300s", status, header.Get("Location"), text)
	}
	m := mails.Wait(1)[0]
	if m.To != "ada@example.test" || m.From != "sites@operator.test" || !strings.Contains(m.Subject, "Password Reset") {
		t.Errorf("the mail is from %s to %s, about %q", m.From, m.To, m.Subject)
	}
	at := strings.Index(m.Text, s.URL+"/wp-login.php?action=rp&key=")
	if at < 0 {
		t.Fatalf("the mail has no link: %s", m.Text)
	}
	link, _, _ := strings.Cut(m.Text[at:], "\n")
	v := h.visitor(s.URL)
	status, header, _ = v.get(strings.TrimRight(strings.TrimSpace(link), ">"))
	if status == 302 {
		status, _, text = v.get(header.Get("Location"))
	}
	if status != 200 || !strings.Contains(text, "pass1") {
		t.Errorf("the mail's link %q: %d to %q %.300s", link, status, header.Get("Location"), text)
	}
}

// visits requests a site's pages repeatedly until bad is called, which returns the bad responses.
func (h *installation) visits(s siteBody, good func(status int, text string) bool) (bad func() []string) {
	ctx, end := context.WithCancel(h.t.Context())
	var list []string
	done := make(chan struct{})
	go func() {
		defer close(done)
		for v, i := h.visitor(s.URL), 0; ctx.Err() == nil; i++ {
			if status, _, text := v.get(fmt.Sprintf("/?visit=%d", i)); !good(status, text) {
				list = append(list, fmt.Sprintf("%d %.200s", status, text))
			}
		}
	}()
	return func() []string { end(); <-done; return list }
}
