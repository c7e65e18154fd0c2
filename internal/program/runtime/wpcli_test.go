package runtime

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"slipway/internal/program/wpcli"
)

// A command that has PHP must find the operator's wp-cli as wp, wherever the file is, and wp must run on that PHP in
// the site's sandbox.
func TestWPCLI(t *testing.T) {
	t.Parallel()
	w := phpWorld(t)
	wp := filepath.Join(t.TempDir(), "wp-cli.phar")
	w.c.WPCLI = wpcli.New(wpcli.Config{Source: wp})
	ok(
		t,
		os.WriteFile(
			wp,
			[]byte(
				"#!/usr/bin/env php\n<?php echo 'wp of ', PHP_SAPI, ' got ', $argv[1], ' ', posix_getuid(), ' ', json_encode(is_writable(__FILE__)), ' ', file_get_contents('/app/index.php'), \"\\n\";",
			),
			0o755,
		),
	)
	s := w.phpSpec("wpcli", map[string]string{"index.php": "the site"})
	s.Shell = "wp --info"
	exit, err := Run(t.Context(), w, s)
	ok(t, err)
	w.hears("stdout wp of cli got --info 1000 false the site")
	if exit.Code != 0 {
		t.Errorf("%+v: %s", exit, w.said())
	}
}

// A command of a WordPress site must find wp-cli, and wp-cli must find the WordPress. If it cannot be downloaded, wp
// must say what to do. A command of another PHP site must download nothing.
func TestWPCLIOfWordPress(t *testing.T) {
	t.Parallel()
	w := phpWorld(t)
	asked := make(chan struct{}, 9)
	away := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked <- struct{}{}
		w.WriteHeader(http.StatusBadGateway)
	}))
	t.Cleanup(away.Close)
	w.c.WPCLI = wpcli.New(wpcli.Config{Source: away.URL + "/wp.phar#sha256=" + strings.Repeat("a", 64), Dir: t.TempDir(), Out: away.Client()})
	s := w.phpSpec("php", map[string]string{"public/index.php": "the site"})
	s.Shell = "command -v wp || echo none"
	_, err := Run(t.Context(), w, s)
	ok(t, err)
	w.hears("stdout none")
	if len(asked) > 0 {
		t.Error("a site without WordPress downloads wp-cli")
	}
	s.ID, s.PHP = "press", &PHP{WordPress: "public"}
	s.Shell = `cat "$WP_CLI_CONFIG_PATH"; wp plugin list`
	exit, err := Run(t.Context(), w, s)
	ok(t, err)
	w.hears("stdout path: /app/public")
	w.hears("stderr wp-cli is not available on this server: it could not be downloaded")
	if exit.Code != 69 || !strings.Contains(w.said(), "--wp-cli") {
		t.Errorf("%+v: %s", exit, w.said())
	}
}
