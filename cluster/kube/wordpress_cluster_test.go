//go:build cluster

package kube

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"slipway/internal/platform/dbtest"
	"slipway/internal/program/php"
	"slipway/internal/program/runtime"
	"slipway/internal/wordpress/core"
)

// mariaDB starts a server and returns its socket.
func mariaDB(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "mariadb-") // a short path, because it contains a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	data, socket := filepath.Join(dir, "data"), filepath.Join(dir, "s")
	out, err := exec.Command("mariadb-install-db", "--no-defaults", "--user=root", "--basedir=/usr", "--datadir="+data,
		"--auth-root-authentication-method=normal", "--skip-test-db").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	init := filepath.Join(dir, "init.sql")
	err = os.WriteFile(init, []byte("CREATE DATABASE shop;\nCREATE USER shop@localhost IDENTIFIED BY 'hunter2';\nGRANT ALL PRIVILEGES ON shop.* TO shop@localhost;\n"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("mariadbd", "--no-defaults", "--user=root", "--basedir=/usr", "--datadir="+data, "--tmpdir="+dir, "--socket="+socket,
		"--skip-networking", "--init-file="+init, "--innodb-buffer-pool-size=32M", "--performance-schema=OFF")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	until(t, "MariaDB is there", func() bool { _, err := os.Stat(socket); return err == nil })
	return socket
}

// onDatabase provides connections to a real database server.
type onDatabase struct {
	served
	socket string
}

func (w *onDatabase) DatabaseSocket(context.Context, runtime.Spec) (string, func(), error) {
	return w.socket, func() {}, nil
}

// WordPress can be installed and serves its front page. Its release's themes are mounted over its storage.
func TestWordPress(t *testing.T) {
	c := newCluster(t, client(t), "wordpress", true)
	c.Connect(&onDatabase{served{dir: t.TempDir()}, mariaDB(t)})
	cores := core.New(core.Config{DB: dbtest.New(t), Bundles: c.bundles, Dir: t.TempDir(), Source: "debian"})
	made, err := cores.Current(t.Context(), t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	s, said := c.spec("shop", "")
	const large = 20 << 20 // part of the release, so not counted as storage
	content := c.bundle(map[string]string{"content/themes/own/large.txt": strings.Repeat("x", large), "content/themes/own/style.css": "/* Theme Name: Own */", "content/themes/own/index.php": "<?php echo 'the release\\'s own theme: '; bloginfo('name');"})
	s.Bundle, s.Argv, s.PHP, s.Database, s.Dir = made.Bundle, nil, &runtime.PHP{}, true, core.PublicDir
	s.Limits.Memory, s.Limits.Pids, s.Limits.Disk = 512<<20, 128, 512<<20
	s.Storage = []runtime.Storage{{Path: core.ContentDir, Name: "wp-content"}}
	s.Limits.Storage = 256 << 20
	s.Trees = []runtime.Tree{{Path: core.ContentDir + "/themes/own", Bundle: content, From: "content/themes/own"}}
	s.Env = []string{
		"SLIPWAY_WP_DATABASE=shop", "SLIPWAY_WP_DATABASE_USER=shop", "SLIPWAY_WP_DATABASE_PASSWORD=hunter2", "SLIPWAY_WP_DATABASE_SOCKET=" + runtime.DatabaseSocket,
		"SLIPWAY_WP_KEY=key", "SLIPWAY_WP_URL=https://site.test", "SLIPWAY_WP_MEMORY=256", "SLIPWAY_WP_SECONDS=60", "SLIPWAY_WP_MANAGED=1",
	}
	p, err := c.Start(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Stop(0) })
	ask := func(root, method, path, body string) (int, string) {
		t.Helper()
		site := &php.Site{Top: runtime.AppDir, Root: root, Front: "index.php", Open: p.Open, Dial: p.Dial}
		r := httptest.NewRequest(method, "https://site.test"+path, strings.NewReader(body))
		r.Header.Set("X-Forwarded-Proto", "https")
		w := httptest.NewRecorder()
		if root == core.PublicDir && site.Serve(w, r) {
			return w.Code, w.Body.String()
		}
		resp, err := site.RoundTrip(r)
		if err != nil {
			t.Fatal(err, said())
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(text)
	}
	status, text := ask(core.TasksDir, "POST", "/install.php",
		`{"title": "The shop", "user": "ada", "email": "ada@example.com", "locale": "en_US", "themes": ["own"]}`)
	if status != http.StatusOK || !strings.Contains(text, `"installed":true`) {
		t.Fatalf("the installation: %d %s\n%s", status, text, said())
	}
	if status, text := ask(core.PublicDir, "GET", "/", ""); status != http.StatusOK || !strings.Contains(text, "the release's own theme: The shop") {
		t.Errorf("the front page: %d %.2000s\n%s", status, text, said())
	}
	if status, text := ask(core.PublicDir, "GET", "/wp-content/themes/own/style.css", ""); status != http.StatusOK || text != "/* Theme Name: Own */" {
		t.Errorf("a style sheet of the release: %d %.200s", status, text)
	}
	if status, text := ask(core.PublicDir, "GET", "/wp-includes/css/dashicons.min.css", ""); status != http.StatusOK || !strings.Contains(text, "dashicons") {
		t.Errorf("a style sheet of the core: %d %.200s", status, text)
	}
	if status, text := ask(core.PublicDir, "GET", "/wp-login.php", ""); status != http.StatusOK || !strings.Contains(text, "The shop") {
		t.Errorf("the page to log in: %d %.2000s\n%s", status, text, said())
	}
	before := p
	before.Stop(patience)
	if e := before.Exit(); e.Code != 0 {
		t.Errorf("the program ended as %+v", e)
	}
	s.ID = "run_shop_again"
	if p, err = c.Start(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Stop(0) })
	if status, text := ask(core.PublicDir, "GET", "/", ""); status != http.StatusOK || !strings.Contains(text, "the release's own theme: The shop") {
		t.Errorf("the front page after a restart: %d %.2000s\n%s", status, text, said())
	}
	stored, err := c.StorageSize(t.Context(), s.Site)
	if err != nil || stored == 0 || stored >= large {
		t.Errorf("the storage has %d bytes, %v", stored, err)
	}
}
