//go:build cluster

package kube

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"slipway/internal/program/php"
	"slipway/internal/program/runtime"
)

// site returns a function that serves a PHP program's requests like the edge.
func site(p runtime.Program) func(method, path, body string) (int, string) {
	s := &php.Site{Top: runtime.AppDir, Front: "index.php", Open: p.Open, Dial: p.Dial}
	return func(method, path, body string) (int, string) {
		r := httptest.NewRequest(method, "http://site.test"+path, strings.NewReader(body))
		w := httptest.NewRecorder()
		if s.Serve(w, r) {
			return w.Code, w.Body.String()
		}
		resp, err := s.RoundTrip(r)
		if err != nil {
			return 0, err.Error()
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			return 0, err.Error()
		}
		return resp.StatusCode, string(text)
	}
}

// PHP-FPM runs scripts. Static files come from the release, and files written by PHP from storage. Commands use the
// same PHP.
func TestPHP(t *testing.T) {
	c := newCluster(t, client(t), "php", true)
	ways := &served{dir: t.TempDir()}
	c.Connect(ways)
	s, said := c.spec("php", "")
	s.Bundle = c.bundle(map[string]string{
		"index.php":    `<?php error_log("seen\nand more"); echo "hello ", $_SERVER["REQUEST_URI"], " ", file_get_contents("php://input"), " ", getenv("A"), " ", ini_get("memory_limit"), " ", extension_loaded("mysqli") ? "mysqli" : "";`,
		"write.php":    `<?php file_put_contents("/app/up/" . $_GET["name"], $_GET["text"]); echo "written";`,
		"drop.php":     `<?php unlink("/app/up/" . $_GET["name"]); echo "gone";`,
		"database.php": `<?php $c = stream_socket_client("unix:///run/mysqld/mysqld.sock"); echo trim(fgets($c));`,
		"style.css":    "body{}",
	})
	s.Argv, s.PHP, s.Env, s.Database = nil, &runtime.PHP{}, []string{"A=b"}, true
	s.Storage = []runtime.Storage{{Path: "up", Temporary: true}}
	s.Limits.Memory = 256 << 20
	p, err := c.Start(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Stop(0) })
	ask := site(p)
	expect := func(method, path, body string, status int, want string) {
		t.Helper()
		if code, text := ask(method, path, body); code != status || strings.TrimSpace(text) != want {
			t.Errorf("%s %s: %d %q\n%s", method, path, code, text, said())
		}
	}
	expect("POST", "/a/b?c=d", "posted", 200, "hello /a/b?c=d posted b 128M mysqli")
	expect("GET", "/style.css", "", 200, "body{}")
	expect("GET", "/database.php", "", 200, "databases of site_php")
	// The script answers requests for a file that doesn't exist. A new file is served immediately.
	expect("GET", "/up/photo.txt", "", 200, "hello /up/photo.txt  b 128M mysqli")
	expect("GET", "/write.php?name=photo.txt&text=one", "", 200, "written")
	expect("GET", "/up/photo.txt", "", 200, "one")
	expect("GET", "/write.php?name=photo.txt&text=another", "", 200, "written")
	until(t, "the file is served as it is now", func() bool { _, text := ask("GET", "/up/photo.txt", ""); return text == "another" })
	expect("GET", "/write.php?name=evil.php&text=evil", "", 200, "written")
	expect("GET", "/up/evil.php", "", 200, "hello /up/evil.php  b 128M mysqli")
	expect("GET", "/drop.php?name=photo.txt", "", 200, "gone")
	until(t, "it is served no more", func() bool { _, text := ask("GET", "/up/photo.txt", ""); return strings.HasPrefix(text, "hello") })
	// A symbolic link that the program creates can't lead outside its folder.
	if f, _, err := p.Open("up/../../etc/hostname"); err == nil {
		f.Close()
		t.Error("a path outside the folder was opened")
	}
	until(t, "what it logs is told", func() bool { return strings.Contains(said(), "stderr seen\nstderr and more") })
	began := time.Now()
	const times = 200
	for range times {
		if code, _ := ask("GET", "/", ""); code != http.StatusOK {
			t.Fatal(code)
		}
	}
	t.Logf("a request takes %v, one to a database %v", time.Since(began)/times, measure(ask, "/database.php", times))
	p.Stop(patience)
	if e := p.Exit(); e.Code != 0 {
		t.Errorf("PHP ended as %+v", e)
	}
	if f, _, err := p.Open("up/photo.txt"); err == nil {
		f.Close()
		t.Error("a file was opened after the program's end")
	}
	command, said := c.spec("command", "")
	command.Bundle, command.Argv, command.PHP = s.Bundle, []string{"php", "-r", "echo PHP_VERSION, PHP_EOL;"}, &runtime.PHP{Version: ">=8.0"}
	e, err := runtime.Run(t.Context(), c, command)
	if err != nil || e.Code != 0 || said() != "stdout "+c.c.Images[0].PHP[0] {
		t.Errorf("a command ended as %+v, %v, and said %q", e, err, said())
	}
	command.PHP = &runtime.PHP{Version: "^5.6"}
	if _, err := c.Start(t.Context(), command); err == nil || !strings.Contains(fmt.Sprint(err), "PHP ^5.6 is not installed") {
		t.Errorf("a PHP that is not there: %v", err)
	}
}

// The object cache is only used while a single program uses the site's database. After another program has used it, old
// cache entries aren't found.
func TestObjectCache(t *testing.T) {
	c := newCluster(t, client(t), "cache", true)
	c.Connect(&served{dir: t.TempDir()})
	s, said := c.spec("cache", "")
	s.Bundle = c.bundle(map[string]string{
		"index.php":  `<?php [$a, $b] = explode(":", getenv("SLIPWAY_REDIS_EPOCHS")); echo file_get_contents($a), " ", file_get_contents($b);`,
		"server.php": `<?php $c = stream_socket_client("unix://" . getenv("SLIPWAY_REDIS")); echo trim(fgets($c));`,
	})
	s.Argv, s.PHP, s.Database, s.RedisServer, s.Redis = nil, &runtime.PHP{}, true, true, true
	s.Limits.Memory = 256 << 20
	p, err := c.Start(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Stop(0) })
	ask := site(p)
	seen := map[string]bool{}
	epoch := func(when, begins string) {
		t.Helper()
		status, text := ask("GET", "/", "")
		if status != http.StatusOK || !strings.HasPrefix(text, begins) || !strings.HasSuffix(text, " 0000000000000000") || seen[text] {
			t.Errorf("%s the epoch is %d %q after %v\n%s", when, status, text, seen, said())
		}
		seen[text] = true
	}
	epoch("at first", "on_")
	if status, text := ask("GET", "/server.php", ""); status != http.StatusOK || text != "Redis of site_cache" {
		t.Errorf("Redis: %d %q", status, text)
	}
	if !c.ClearRedis(s.Site) || c.ClearRedis("site_other") {
		t.Error("ClearRedis does not report which sites have an object cache")
	}
	epoch("when it was cleared", "on_")
	other, _ := c.spec("other", "setInterval(() => {}, 1000)")
	other.Site, other.Database = s.Site, true
	q, err := c.Start(t.Context(), other)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { q.Stop(0) })
	epoch("beside another", "off")
	q.Stop(patience)
	epoch("alone again", "on_")
}

func measure(ask func(method, path, body string) (int, string), path string, times int) time.Duration {
	began := time.Now()
	for range times {
		ask("GET", path, "")
	}
	return time.Since(began) / time.Duration(times)
}
