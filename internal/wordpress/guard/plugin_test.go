package guard

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"slipway/internal/wordpress/pagecache"
)

// plugin runs Slipway's plugin with stubs of WordPress's hooks, and then a script, whose output it decodes.
func plugin(t *testing.T, env []string, script string, out any) {
	t.Helper()
	php, err := exec.LookPath("php")
	if err != nil {
		t.Fatal("PHP is needed: apt-get install php-cli")
	}
	lib, err := filepath.Abs("../core/files/plugin.php")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "wp-includes"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"wp-includes/pluggable.php": "<?php function wp_mail() {}",
		"own.php":                   "<?php function wp_mail() {}",
		"hooks.php": `<?php
namespace {
	define('ABSPATH', __DIR__ . '/'); define('WPINC', 'wp-includes'); define('DAY_IN_SECONDS', 86400);
	function add_filter($name, $f, $priority = 10, $n = 1) { $GLOBALS['hooks'][$name][$priority][] = $f; return true; }
	function add_action(...$args) { return add_filter(...$args); }
	function remove_action() { return true; }
	function has_action($name) { return !empty($GLOBALS['hooks'][$name]); }
	function wp_get_environment_type() { return getenv('WP_ENVIRONMENT_TYPE') ?: 'production'; }
	function wp_normalize_path($path) { return $path; }
	function apply($name, $value, ...$more) {
		$hooks = $GLOBALS['hooks'][$name] ?? [];
		ksort($hooks);
		foreach ($hooks as $list) foreach ($list as $f) $value = $f($value, ...$more) ?? (is_object($value) ? $value : null);
		return $value;
	}
	class WP_User { public $user_login = 'Ada'; public $user_email = 'ada@example.test'; }
	class Mailer { public $Mailer = 'mail', $Host = 'localhost', $Port = 25, $SMTPAuth, $SMTPSecure, $SMTPAutoTLS; function isSMTP() { $this->Mailer = 'smtp'; } }
}
namespace Slipway { function setcookie($name, $value, $options) { $GLOBALS['cookie'] = [$name, $value]; }
	function header($line) { $GLOBALS['lines'][strstr($line, ':', true)] = $line; } function headers_list() { return array_values($GLOBALS['lines'] ?? []); } } // PHP's command has none
namespace PHPMailer\PHPMailer { class PHPMailer {} }`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(php, "-d", "error_log=/dev/null", "-r", `require $argv[1] . '/hooks.php'; `+script, dir, lib)
	cmd.Env = append(env, "SLIPWAY_WP_KEY=key")
	got, err := cmd.CombinedOutput()
	if err == nil {
		err = json.Unmarshal(got, out)
	}
	if err != nil {
		t.Fatalf("%v: %.2000s", err, got)
	}
}

// After a user has logged in, the device's cookie is accepted for each of the user's names, and for no other user.
func TestDeviceOfWordPress(t *testing.T) {
	t.Parallel()
	var got []string
	plugin(t, nil, `require $argv[1] . '/wp-includes/pluggable.php'; require $argv[2]; apply('wp_login', 'Ada', new WP_User()); echo json_encode($cookie);`, &got)
	if len(got) != 2 || got[0] != DeviceCookie {
		t.Fatalf("the cookie is %q", got)
	}
	for _, begin := range pagecache.SessionCookies {
		if strings.HasPrefix(DeviceCookie, begin) {
			t.Errorf("the cookie of a device, which stays for months, bypasses the page cache (%s)", begin)
		}
	}
	key := Device([]byte("key"))
	for name, want := range map[string]bool{"ada": true, "ADA@example.test": true, "ben": false, "": false} {
		if knows(key, got[1], nameDigest(key, name), time.Now()) != want {
			t.Errorf("%q is known: %v", name, !want)
		}
	}
	if now := time.Now().AddDate(1, 0, 0); knows(key, got[1], nameDigest(key, "ada"), now) || knows(Device([]byte("other")), got[1], nameDigest(key, "ada"),
		time.Now()) {
		t.Error("a device is still known after the time, or at another site")
	}
}

// A site's own mail server takes precedence over the operator's. If the operator has none, plugins that send mail are
// asked.
func TestMailOfSites(t *testing.T) {
	t.Parallel()
	const own = `require $argv[1] . '/wp-includes/pluggable.php'; require $argv[2]; `
	var sent struct {
		Mailer, Host string
		Port         int
	}
	ours := []string{"SLIPWAY_WP_MAIL=2525"}
	plugin(t, ours, own+`echo json_encode(apply('phpmailer_init', new Mailer()));`, &sent)
	if sent.Mailer != "smtp" || sent.Host != "127.0.0.1" || sent.Port != 2525 {
		t.Errorf("without a server of its own: %+v", sent)
	}
	plugin(t, ours, own+`add_action('phpmailer_init', function ($m) { $m->isSMTP(); $m->Host = 'smtp.site.test'; $m->Port = 587; });
		echo json_encode(apply('phpmailer_init', new Mailer()));`, &sent)
	if sent.Host != "smtp.site.test" || sent.Port != 587 {
		t.Errorf("with a server of its own: %+v", sent)
	}

	const ask = `echo json_encode(['sent' => apply('pre_wp_mail', null, ['to' => 'ada@example.test'])]);`
	for name, tt := range map[string]struct {
		script string
		want   string
	}{
		"nothing sends":                {own + ask, "false"},
		"a plugin has sent it":         {own + `add_filter('pre_wp_mail', fn() => true);` + ask, "true"},
		"a plugin configures":          {own + `add_action('phpmailer_init', function ($m) {});` + ask, "null"},
		"a plugin has a mailer":        {own + `class Catcher extends PHPMailer\PHPMailer\PHPMailer {} $phpmailer = new Catcher();` + ask, "null"},
		"WordPress has its own":        {own + `$phpmailer = new PHPMailer\PHPMailer\PHPMailer();` + ask, "false"},
		"a plugin has its own wp_mail": {`require $argv[1] . '/own.php'; require $argv[2]; ` + ask, "null"},
	} {
		var out struct{ Sent json.RawMessage }
		plugin(t, nil, tt.script, &out)
		if string(out.Sent) != tt.want {
			t.Errorf("%s: pre_wp_mail is %s, want %s", name, out.Sent, tt.want)
		}
	}
}

// A site's requests to itself carry a mark that is valid for a minute, only in requests to its own address.
func TestLoopback(t *testing.T) {
	t.Parallel()
	var got map[string]string
	plugin(t, []string{"SLIPWAY_WP_URL=https://blog.test"}, `require $argv[2];
		foreach (['https://blog.test/?p=1', 'https://blog.test/wp-cron.php', 'https://blog.test.evil.test/', 'https://other.test/'] as $url)
			$said[$url] = apply('http_request_args', ['headers' => []], $url)['headers']['Slipway-Loopback'] ?? '';
		echo json_encode($said);`, &got)
	own, now := Served{Site: "site", Own: Mark([]byte("key"))}, time.Now()
	for url, want := range map[string]bool{
		"https://blog.test/?p=1": true, "https://blog.test/wp-cron.php": true, "https://blog.test.evil.test/": false, "https://other.test/": false,
	} {
		if own.Vouches(got[url], now) != want {
			t.Errorf("%s is its own: %v (%q)", url, !want, got[url])
		}
	}
	says := got["https://blog.test/?p=1"]
	if own.Vouches(says, now.Add(2*time.Minute)) || own.Vouches(says, now.Add(-2*time.Minute)) || own.Vouches(own.Own, now) ||
		(Served{Site: "other", Own: Mark([]byte("other"))}).Vouches(says, now) || (Served{}).Vouches(says, now) {
		t.Error("a mark is still valid after its time, or at another site")
	}
}

// Slipway's own checks pass the maintenance mode. Other programs that use the same user agent don't.
func TestAskedBySlipway(t *testing.T) {
	t.Parallel()
	var got []bool
	plugin(t, nil, `require $argv[2];
		foreach ([['HTTP_USER_AGENT' => 'Slipway-Check/1'], ['HTTP_USER_AGENT' => 'Slipway-Check/1', 'HTTP_X_REAL_IP' => '127.0.0.1'], ['HTTP_USER_AGENT' => 'curl']] as $r) {
			$_SERVER = $r + ['REMOTE_ADDR' => '127.0.0.1'];
			$out[] = Slipway\asked_by_slipway();
		}
		echo json_encode($out);`, &got)
	if len(got) != 3 || !got[0] || got[1] || got[2] {
		t.Errorf("asked_by_slipway returns %v", got)
	}
}

// A clone sends no mail and runs no queued actions, unless its owner marks it as production.
func TestClonesAreStaging(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		env     []string
		mail    string
		batches int
	}{
		"a clone":              {[]string{"SLIPWAY_WP_CLONE=1", "WP_ENVIRONMENT_TYPE=staging", "SLIPWAY_WP_MAIL=2525"}, "true", 0},
		"a clone, without":     {[]string{"SLIPWAY_WP_CLONE=1", "WP_ENVIRONMENT_TYPE=staging"}, "true", 0},
		"a clone in its place": {[]string{"SLIPWAY_WP_CLONE=1", "WP_ENVIRONMENT_TYPE=production", "SLIPWAY_WP_MAIL=2525"}, "null", 5},
		"no clone":             {[]string{"WP_ENVIRONMENT_TYPE=staging", "SLIPWAY_WP_MAIL=2525"}, "null", 5},
	} {
		var out struct {
			Sent    json.RawMessage
			Batches int
			Held    int
			Copy    bool
		}
		plugin(t, tt.env, `require $argv[1] . '/wp-includes/pluggable.php'; require $argv[2];
			$sent = apply('pre_wp_mail', null, ['to' => 'ada@example.test', 'subject' => 'Your order']);
			$hooks['action_scheduler_queue_runner_concurrent_batches'] ??= [];
			$n = 5; foreach ($hooks['action_scheduler_queue_runner_concurrent_batches'] as $list) foreach ($list as $f) $n = $f($n);
			$held = [];
			foreach (['woocommerce_scheduled_subscription_payment', 'mailpoet_cron', 'action_scheduler_run_queue', 'wp_update_plugins', 'wp_scheduled_delete', 'publish_future_post'] as $hook)
				foreach ($hooks['slipway_pauses'] ?? [] as $list) foreach ($list as $f) if ($f(false, $hook)) $held[] = $hook;
			$copy = isset($hooks['woocommerce_subscriptions_is_duplicate_site']);
			echo json_encode(['sent' => $sent, 'batches' => $n, 'held' => count($held), 'copy' => $copy]);`, &out)
		held := 0
		if tt.batches == 0 {
			held = 3
		}
		if string(out.Sent) != tt.mail || out.Batches != tt.batches || out.Held != held || out.Copy != (held > 0) {
			t.Errorf("%s: pre_wp_mail is %s, %d batches, %d events are held, a copy: %v", name, out.Sent, out.Batches, out.Held, out.Copy)
		}
	}
}

// A site's reports reach Slipway in a separate request at the end if output had already begun, or if a plugin removed
// the header.
func TestToldLate(t *testing.T) {
	t.Parallel()
	const stub = `
		function apply_filters($name, $value) { return $value; }
		function wp_doing_cron() { return false; }
		function wp_remote_post($url, $args) { $GLOBALS['asked'][] = [$url, $args['headers']]; }
		register_shutdown_function(function () { register_shutdown_function(function () { echo json_encode($GLOBALS['asked'] ?? []); }); });
		require $argv[2]; `
	for name, tt := range map[string]struct{ script, want string }{
		"in time":        {`Slipway\changed('/a/'); Slipway\changed('/b/');`, `[]`},
		"late":           {`echo ' '; flush(); Slipway\changed('/a/'); Slipway\changed('/b/');`, `[["https://blog.test/",{"Slipway-Told":"1","X-Slipway-Purge":"/a/ /b/"}]]`},
		"again":          {`Slipway\changed('*'); echo ' '; flush(); Slipway\changed('*');`, `[["https://blog.test/",{"Slipway-Told":"1","X-Slipway-Purge":"*"}]]`},
		"removed":        {`Slipway\changed('*'); $lines = [];`, `[["https://blog.test/",{"Slipway-Told":"1","X-Slipway-Purge":"*"}]]`},
		"an event, late": {`echo ' '; flush(); apply('update_option_cron', [], [77 => 1, 55 => 1]);`, `[["https://blog.test/",{"Slipway-Told":"1","X-Slipway-Cron":"55"}]]`},
	} {
		var out json.RawMessage
		plugin(t, []string{"SLIPWAY_WP_URL=https://blog.test"}, stub+tt.script, &out)
		if got := strings.ReplaceAll(string(out), `\/`, "/"); got != tt.want {
			t.Errorf("%s: it asks %s, want %s", name, got, tt.want)
		}
	}
}

// Whether a page may be stored, and for which device, is decided once the page is complete.
func TestPageIsKnownAtItsEnd(t *testing.T) {
	t.Parallel()
	const stub = `
		foreach (['is_user_logged_in', 'is_search', 'is_preview', 'is_customize_preview', 'post_password_required'] as $no) eval("function $no() { return false; }");
		function did_action($name) { return $GLOBALS['over'] ?? 0; }
		function wp_is_mobile() { return apply('wp_is_mobile', false); }
		require $argv[2];
		ob_start();
		apply('template_redirect', null);
		echo ' '; `
	const end = `$over = 1; while (ob_get_level()) ob_end_flush(); echo json_encode($lines['X-Slipway-Cache'] ?? '');`
	for name, tt := range map[string]struct{ script, want string }{
		"a page":           {``, "X-Slipway-Cache: page"},
		"forbidden late":   {`define('DONOTCACHEPAGE', true);`, ""},
		"allowed":          {`define('DONOTCACHEPAGE', false);`, "X-Slipway-Cache: page"},
		"of a device":      {`wp_is_mobile();`, "X-Slipway-Cache: page device"},
		"of a library":     {`class Mobile_Detect {}`, "X-Slipway-Cache: page device"},
		"Jetpack's":        {`apply('jetpack_is_mobile_filter', true, '', true);`, "X-Slipway-Cache: page device"},
		"sent before":      {`ob_flush(); define('DONOTCACHEPAGE', true);`, ""},
		"ended by a theme": {`ob_end_flush(); define('DONOTCACHEPAGE', true);`, ""},
		"too large":        {`echo str_repeat(' ', 3 << 20);`, ""},
	} {
		var got string
		if plugin(t, nil, stub+tt.script+end, &got); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// A file's URL changes with the file, so that browsers may keep it for a year.
func TestVersionsOfFiles(t *testing.T) {
	t.Parallel()
	var got [][2]string
	plugin(t, []string{"SLIPWAY_WP_URL=https://blog.test"}, `require $argv[2];
		touch($file = ABSPATH . 'a b.css', 1700000000);
		foreach (['https://blog.test/a%20b.css?ver=1', 'https://blog.test/none.css?ver=1', 'https://blog.test/a%20b.css', 'https://cdn.test/a.css?ver=1',
			'https://blog.test/x/../a%20b.css?ver=1', 'https://blog.test/a%20b.css?ver=1&x=2'] as $src) $before[] = apply('style_loader_src', $src);
		file_put_contents($file, 'more'); touch($file, 1700000000); clearstatcache();
		$out[] = [$before[0], apply('script_loader_src', 'https://blog.test/a%20b.css?ver=1')];
		foreach (array_slice($before, 1) as $src) $out[] = [$src, ''];
		echo json_encode($out);`, &got)
	if len(got) != 6 || !strings.HasPrefix(got[0][0], "https://blog.test/a%20b.css?ver=1-") || got[0][0] == got[0][1] {
		t.Errorf("before and after a change: %q", got)
	}
	for _, src := range got[1:] {
		if strings.Contains(src[0], "-") {
			t.Errorf("%s is changed", src[0])
		}
	}
	for query, want := range map[string]bool{"ver=6.1": true, "ver=6.1-abc": true, "ver=": false, "": false, "ver=1&x=2": false, "v=1": false} {
		if versioned(query) != want {
			t.Errorf("%q names a version: %v", query, !want)
		}
	}
}

// A file in a request's body has the same limit as an uploaded file, and a wrong application password is refused.
func TestRESTOfWordPress(t *testing.T) {
	t.Parallel()
	var got []any
	plugin(t, []string{"SLIPWAY_WP_UPLOAD=1"}, `
		class WP_Error { public $code, $status; function __construct($code, $text, $data) { $this->code = $code; $this->status = $data['status']; } }
		$in = false; function is_user_logged_in() { return $GLOBALS['in']; }
		require $argv[2];
		file_put_contents($small = ABSPATH . 'small', 'x'); file_put_contents($large = ABSPATH . 'large', str_repeat('x', (1 << 20) + 1));
		$wrong = fn($file) => isset($file['error']) ? 'refused' : 'taken';
		$out[] = $wrong(apply('wp_handle_upload_prefilter', ['tmp_name' => $large, 'size' => 5]));
		$out[] = $wrong(apply('wp_handle_sideload_prefilter', ['tmp_name' => $large])); // a plugin fetches it
		define('REST_REQUEST', true); define('XMLRPC_REQUEST', true);
		$out[] = $wrong(apply('wp_handle_sideload_prefilter', ['tmp_name' => $large]));
		$out[] = $wrong(apply('wp_handle_sideload_prefilter', ['tmp_name' => $small]));
		$out[] = is_string(apply('wp_upload_bits', ['bits' => str_repeat('x', (1 << 20) + 1)])) ? 'refused' : 'taken';
		$out[] = is_string(apply('wp_upload_bits', ['bits' => 'x'])) ? 'refused' : 'taken';
		$status = fn($result) => is_object($result) ? $result->status : $result;
		$out[] = $status(apply('rest_authentication_errors', null));
		$_SERVER['PHP_AUTH_USER'] = 'ada';
		$out[] = $status(apply('rest_authentication_errors', null));
		$in = true;
		$out[] = $status(apply('rest_authentication_errors', null));
		echo json_encode($out);`, &got)
	if want := `["refused","taken","refused","taken","refused","taken",null,401,null]`; string(mustJSON(t, got)) != want {
		t.Errorf("%s, want %s", mustJSON(t, got), want)
	}
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
