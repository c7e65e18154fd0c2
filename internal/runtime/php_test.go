package runtime

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"slipway/internal/php"
)

// phpWorld is an engine with storage.
func phpWorld(t testing.TB) *world {
	w := newWorld(t)
	w.c.Storage = w.c.Dir + "-storage"
	return w
}

func (w *world) phpSpec(id string, files map[string]string) Spec {
	s := w.spec(id, files)
	s.Argv, s.PHP = nil, &PHP{}
	return s
}

// ask asks a PHP program as the edge does.
func (w *world) ask(p Program, s Spec, method, path, body string) (int, string) {
	w.t.Helper()
	site := &php.Site{Top: AppDir, Front: "index.php", Open: p.Open, Dial: p.Dial, Log: func(line string) { s.Output("stderr", line) }}
	req, err := http.NewRequestWithContext(w.t.Context(), method, "http://site.test"+path, strings.NewReader(body))
	ok(w.t, err)
	resp, err := site.RoundTrip(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	ok(w.t, err)
	return resp.StatusCode, string(b)
}

func TestPHP(t *testing.T) {
	t.Parallel()
	w := phpWorld(t)
	s := w.phpSpec("one", map[string]string{"index.php": `<?php error_log("seen"); echo "hello ", $_SERVER["REQUEST_URI"], " ", file_get_contents("php://input"), " ", ini_get("memory_limit"), " ", getenv("A");`})
	s.Env = []string{"A=b"}
	begin := time.Now()
	p := w.start(s)
	status, text := w.ask(p, s, "POST", "/x?y=1", "body")
	t.Logf("first answer after %s", time.Since(begin))
	if status != 200 || text != "hello /x?y=1 body 128M b" {
		t.Errorf("%d %q\n%s", status, text, w.said())
	}
	if !strings.Contains(w.said(), "stderr seen") {
		t.Errorf("PHP's log is missing:\n%s", w.said())
	}
}

// Two bundles, storage, a file of the installation's and a temporary folder make one tree;
// what may be written stays or goes as it is said, and no script of storage is run.
func TestPHPPlaces(t *testing.T) {
	t.Parallel()
	w := phpWorld(t)
	content := w.bundle(map[string]string{"themes/a.php": "<?php echo 'theme';", "uploads/first.txt": "first", "uploads/sub/x.txt": "x"})
	spec := func(id string) Spec {
		s := w.phpSpec(id, map[string]string{
			"index.php": `<?php
@mkdir("content/uploads/new"); file_put_contents("content/uploads/new/note.txt", "kept ", FILE_APPEND); file_put_contents("content/uploads/evil.php", "<?php echo 'evil';");
file_put_contents("cache/c.txt", "c", FILE_APPEND);
echo @file_get_contents("content/uploads/new/note.txt"), @file_get_contents("cache/c.txt"), " ", @file_get_contents("config.php"), " ", @file_get_contents("content/uploads/first.txt"), " ",
  @file_put_contents("index.php", "x") === false ? "read-only" : "WRITABLE", " ", @file_put_contents("content/themes/a.php", "x") === false ? "read-only" : "WRITABLE", " ",
  @file_put_contents("config.php", "x") === false ? "read-only" : "WRITABLE";`,
			"cache/seed.txt": "seed"})
		s.Site = "site_places"
		s.Trees = []Tree{{Path: "content", Bundle: content}}
		s.Storage = []Storage{{Path: "content/uploads"}, {Path: "cache", Temporary: true}}
		s.Files = []File{{Path: "config.php", Text: []byte("<?php // password")}}
		return s
	}
	s := spec("places1")
	p := w.start(s)
	if status, text := w.ask(p, s, "GET", "/", ""); status != 200 || text != "kept c <?php // password first read-only read-only read-only" {
		t.Errorf("%d %q\n%s", status, text, w.said())
	}
	if _, text := w.ask(p, s, "GET", "/content/themes/a.php", ""); text != "theme" {
		t.Errorf("a script of the second tree: %q", text)
	}
	for _, path := range []string{"/content/uploads/evil.php", "/content/uploads/evil.php/x", "/content/../content/uploads/evil.php"} {
		if _, text := w.ask(p, s, "GET", path, ""); strings.Contains(text, "evil") {
			t.Errorf("%s was run: %q", path, text)
		}
	}
	if f, stored, err := p.Open("content/uploads/new/note.txt"); err != nil || !stored {
		t.Errorf("open: %v, %v", stored, err)
	} else {
		f.Close()
	}
	p.Stop(0)
	s = spec("places2")
	p = w.start(s)
	if status, text := w.ask(p, s, "GET", "/", ""); status != 200 || !strings.HasPrefix(text, "kept kept") || !strings.Contains(text, " c <?php") {
		t.Errorf("after a restart: %d %q\n%s", status, text, w.said())
	}
	folders, err := w.StorageFolders("site_places")
	if len(folders) != 1 || folders["content/uploads"] == "" || err != nil {
		t.Errorf("storage: %v %v", folders, err)
	}
	p.Stop(0)
	ok(t, w.ForgetStorage("site_places"))
	if folders, _ := w.StorageFolders("site_places"); len(folders) > 0 {
		t.Errorf("forgotten storage: %v", folders)
	}
}

// A script runs once in the site's sandbox, with its storage, and its end is told.
func TestPHPOnce(t *testing.T) {
	t.Parallel()
	w := phpWorld(t)
	s := w.phpSpec("once", map[string]string{"task.php": `<?php file_put_contents("data/x", "done"); echo PHP_SAPI, " ", extension_loaded("mbstring") ? "mbstring" : "none", "\n"; exit(3);`})
	s.Storage = []Storage{{Path: "data"}}
	s.Argv = []string{"php", "task.php"}
	exit, err := Run(t.Context(), w, s)
	if err != nil || exit.Code != 3 || w.said() != "stdout cli mbstring" {
		t.Errorf("%+v %v\n%s", exit, err, w.said())
	}
	s.ID, s.Argv = "once2", []string{"php", "-r", `echo file_get_contents("data/x");`}
	if exit, err := Run(t.Context(), w, s); err != nil || exit.Code != 0 || !strings.HasSuffix(w.said(), "done") {
		t.Errorf("%+v %v\n%s", exit, err, w.said())
	}
}

// A link that a program makes in its storage never leads out of it, for us.
func TestStorageLinks(t *testing.T) {
	t.Parallel()
	w := phpWorld(t)
	s := w.phpSpec("links", map[string]string{"index.php": `<?php symlink("/etc/passwd", "data/abs"); symlink("../../../../../../etc/passwd", "data/up"); symlink("ok.txt", "data/good"); posix_mkfifo("data/fifo", 0666);
file_put_contents("data/ok.txt", "ok"); link("data/ok.txt", "data/hard"); echo "made";`, "secret.txt": "secret"})
	s.Storage = []Storage{{Path: "data"}}
	p := w.start(s)
	if _, text := w.ask(p, s, "GET", "/", ""); text != "made" {
		t.Fatalf("%q\n%s", text, w.said())
	}
	for name, want := range map[string]bool{"data/ok.txt": true, "data/good": true, "data/abs": false, "data/up": false, "data/../secret.txt": true} {
		f, _, err := p.Open(name)
		if (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			f.Close()
		}
	}
	if f, _, err := p.Open("data/fifo"); err == nil { // must not block
		f.Close()
	}
}
