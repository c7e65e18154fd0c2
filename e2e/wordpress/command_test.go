package wordpress

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// standIn replaces wp-cli, for which Debian has no package. Like wp-cli's phar, it is an executable PHP file that loads
// the WordPress named in its configuration.
const standIn = `#!/usr/bin/env php
<?php
[, $what, $first] = $argv;
if (!preg_match('/^path: (.+)$/m', file_get_contents(getenv('WP_CLI_CONFIG_PATH')), $m)) { fwrite(STDERR, "no path\n"); exit(2); }
require $m[1] . '/wp-load.php';
switch ($what) {
case 'option': if ($first === 'update') { update_option($argv[3], $argv[4]); } echo get_option($argv[3]), "\n"; break;
case 'post': wp_insert_post(['post_title' => $first, 'post_content' => $argv[3], 'post_status' => 'publish']); break;
case 'content': echo get_page_by_path($first, OBJECT, 'post')->post_content ?? '', "\n"; break;
case 'touch': echo json_encode(file_put_contents(WP_CONTENT_DIR . '/' . $first, 'x')), "\n"; break;
case 'sees': echo json_encode([file_exists($first), is_writable(ABSPATH), getenv('SLIPWAY_REDIS')]), "\n"; break;
default: exit(3);
}
`

// wpCLI installs the stand-in outside of /usr, as an operator might, and returns its path.
func (h *installation) wpCLI() string {
	at := filepath.Join(h.Dir, "opt", "wp-cli.phar")
	ok(h.t, os.MkdirAll(filepath.Dir(at), 0o755))
	ok(h.t, os.WriteFile(at, []byte(standIn), 0o755))
	return at
}

// wp runs a wp-cli command on a site and returns its output and the operation's result.
func (h *installation) wp(s siteBody, args, status string) (string, map[string]any) {
	h.t.Helper()
	var op workBody
	h.call("POST", "/sites/"+s.ID+"/commands", map[string]any{"command": "wp " + args}, &op)
	op = h.ended(op.ID, status)
	out, _ := op.Result["output"].(string)
	return strings.TrimSpace(out), op.Result
}

// commands checks that the operator's wp-cli runs in the site's sandbox, as its user and with its database, and that
// visitors see its changes.
func (h *installation) commands(s siteBody, titled func(string)) {
	t := h.t
	h.until("the front page is cached", func() bool {
		_, header, _ := h.visitor(s.URL).get("/")
		return header.Get("X-Cache") == "HIT"
	})
	if out, _ := h.wp(s, "option update blogname Commanded", "success"); out != "Commanded" {
		t.Errorf("option update prints %q", out)
	}
	titled("Commanded")
	h.until("the cached front page is called Commanded", func() bool { // stale pages are served while a new one is made
		_, header, text := h.visitor(s.URL).get("/")
		return header.Get("X-Cache") == "HIT" && strings.Contains(text, "<title>Commanded")
	})
	if out, _ := h.wp(s, "option get siteurl", "success"); out != s.URL {
		t.Errorf("option get prints %q", out)
	}
	if out, _ := h.wp(s, "touch by-wp.txt", "success"); out != "1" {
		t.Errorf("touch prints %q", out)
	}
	uid := func(name string) uint32 {
		t.Helper()
		info, err := os.Stat(h.content(s, name))
		ok(t, err)
		return info.Sys().(*syscall.Stat_t).Uid
	}
	if made, of := uid("by-wp.txt"), uid(""); made != of {
		t.Errorf("its file belongs to %d, wp-content to %d", made, of)
	}
	if out, _ := h.wp(s, "sees "+h.Data, "success"); out != "[false,false,false]" {
		t.Errorf("a command sees the data directory, may write to the core or has a Redis: %s", out)
	}
	if _, result := h.wp(s, "nonsense", "failed"); result["exitCode"] != 3.0 {
		t.Errorf("a command that fails: %v", result)
	}
}
