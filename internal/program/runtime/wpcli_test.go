package runtime

import (
	"os"
	"path/filepath"
	"testing"
)

// The operator's wp-cli, wherever it is, is wp to a command that has PHP, and runs on that PHP in
// the site's sandbox.
func TestWPCLI(t *testing.T) {
	t.Parallel()
	w := phpWorld(t)
	w.c.WPCLI = filepath.Join(t.TempDir(), "wp-cli.phar")
	ok(
		t,
		os.WriteFile(
			w.c.WPCLI,
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
