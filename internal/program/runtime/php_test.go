package runtime

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"slipway/internal/build/htaccess"
	"slipway/internal/platform/id"
	"slipway/internal/program/php"
)

// phpWorld returns an engine with storage.
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

// ask sends a request to a PHP program as the edge does.
func (w *world) ask(p Program, s Spec, method, path, body string) (int, string) {
	w.t.Helper()
	site := &php.Site{Top: AppDir, Front: "index.php", Open: p.Open, Dial: p.Dial}
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
	s := w.phpSpec("one", map[string]string{
		"index.php": `<?php error_log("seen\nlonger ".str_repeat("x", 4000)." end"); file_put_contents("php://stderr", "piped\n"); echo "hello ", $_SERVER["REQUEST_URI"], " ", file_get_contents("php://input"), " ", ini_get("memory_limit"), " ", getenv("A");`,
		"self.php":  `<?php echo $_SERVER["PHP_SELF"], " ", $_SERVER["PATH_INFO"] ?? "none";`,
		"who.php":   `<?php foreach ($_SERVER as $k => $v) if ($v === "6.6.6.6" || $v === "192.0.2.1") echo "$k=$v ";`,
	})
	s.Env = []string{"A=b"}
	begin := time.Now()
	p := w.start(s)
	status, text := w.ask(p, s, "POST", "/x?y=1", "body")
	t.Logf("first answer after %s", time.Since(begin))
	if status != 200 || text != "hello /x?y=1 body 128M b" {
		t.Errorf("%d %q\n%s", status, text, w.said())
	}
	w.hears("stderr piped")
	if said := w.said(); strings.Count(
		said,
		"stderr seen\n",
	) != 1 || strings.Count(said, "stderr longer xxx") != 1 || !strings.Contains(said, "xxx end\n") {
		t.Errorf("the log does not have PHP's message once and complete:\n%s", said)
	}
	if _, text := w.ask(p, s, "GET", "/self.php", ""); text != "/self.php none" {
		t.Errorf("a script reads of itself %q", text)
	}
	if _, text := w.ask(p, s, "GET", "/self.php/a/b", ""); !strings.HasSuffix(text, " /a/b") {
		t.Errorf("a script reads of what follows its name %q", text)
	}

	// PHP turns dots in names into underscores, as it does hyphens. A visitor must not be able to send the headers in
	// which the edge describes the visitor.
	site := &php.Site{Top: AppDir, Open: p.Open, Dial: p.Dial}
	req, err := http.NewRequestWithContext(t.Context(), "GET", "http://site.test/who.php", nil)
	ok(t, err)
	for _, name := range []string{"X.Forwarded.For", "X-Forwarded.Host", "X_Real_IP", "x.real.ip", "X!Forwarded-For"} {
		req.Header[name] = []string{"6.6.6.6"}
	}
	req.Header["X-Forwarded-For"] = []string{"192.0.2.1"}
	resp, err := site.RoundTrip(req)
	ok(t, err)
	defer resp.Body.Close()
	who, err := io.ReadAll(resp.Body)
	ok(t, err)
	if string(who) != "HTTP_X_FORWARDED_FOR=192.0.2.1 " {
		t.Errorf("PHP reads %q", who)
	}
}

// Rules of a .htaccess file must run a script with the variables that Apache gives it, and a script must find its own
// address in PHP_SELF.
func TestPHPRules(t *testing.T) {
	t.Parallel()
	w := phpWorld(t)
	const shows = `<?php foreach (["REQUEST_URI", "QUERY_STRING", "PHP_SELF", "PATH_INFO", "SCRIPT_NAME", "REDIRECT_STATUS", "REDIRECT_URL", ` +
		`"HTTP_AUTHORIZATION", "SHOP"] as $k) echo $k, "=", $_SERVER[$k] ?? "-", " ";`
	s := w.phpSpec("rules", map[string]string{"product.php": shows, "self.php": shows, "404.php": shows, "index.php": shows, "img/a.txt": "a"})
	p := w.start(s)
	folder, problems := htaccess.Translate("", `RewriteEngine On
RewriteRule .* - [E=HTTP_AUTHORIZATION:%{HTTP:Authorization},E=SHOP:one]
RewriteRule ^product/([0-9]+)$ product.php?id=$1 [L,QSA]
RewriteRule ^info/(.*)$ self.php/$1 [L]
RewriteRule ^old$ /new [R=301,L]
RewriteRule ^secret - [F]
RewriteRule ^circle(.*)$ circle$1x [L]
ErrorDocument 404 /404.php
ErrorDocument 403 "Keep out"
`)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	rules, err := htaccess.Compile([]htaccess.Folder{folder})
	ok(t, err)
	site := &php.Site{Top: AppDir, Front: "index.php", Ruled: true, Rules: rules, Open: p.Open, Dial: p.Dial}
	for path, want := range map[string]struct {
		status   int
		text     string
		location string
	}{
		"/product/5?ref=a": {status: 200, text: "REQUEST_URI=/product/5?ref=a QUERY_STRING=id=5&ref=a PHP_SELF=/product.php PATH_INFO=- " +
			"SCRIPT_NAME=/product.php REDIRECT_STATUS=200 REDIRECT_URL=/product/5 HTTP_AUTHORIZATION=Basic eA== SHOP=one "},
		"/info/a/b": {status: 200, text: "REQUEST_URI=/info/a/b QUERY_STRING= PHP_SELF=/self.php/a/b PATH_INFO=/a/b " +
			"SCRIPT_NAME=/self.php REDIRECT_STATUS=200 REDIRECT_URL=- HTTP_AUTHORIZATION=Basic eA== SHOP=one "},
		"/self.php/x": {status: 200, text: "REQUEST_URI=/self.php/x QUERY_STRING= PHP_SELF=/self.php/x PATH_INFO=/x " +
			"SCRIPT_NAME=/self.php REDIRECT_STATUS=200 REDIRECT_URL=- HTTP_AUTHORIZATION=Basic eA== SHOP=one "},
		"/nothing": {status: 404, text: "REQUEST_URI=/nothing QUERY_STRING= PHP_SELF=/404.php PATH_INFO=- " +
			"SCRIPT_NAME=/404.php REDIRECT_STATUS=404 REDIRECT_URL=/nothing HTTP_AUTHORIZATION=Basic eA== SHOP=- "},
		"/old":    {status: 301, location: "/new"},
		"/secret": {status: 403, text: "Keep out\n"},
		"/circle": {status: 500, text: "The rules of .htaccess lead in circles, or take too long\n"},
	} {
		req, err := http.NewRequestWithContext(t.Context(), "GET", "http://site.test"+path, nil)
		ok(t, err)
		req.Header.Set("Authorization", "Basic eA==")
		resp, err := site.RoundTrip(req)
		ok(t, err)
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		ok(t, err)
		if resp.StatusCode != want.status || string(b) != want.text || resp.Header.Get("Location") != want.location {
			t.Errorf("%s: %d %q %v", path, resp.StatusCode, b, resp.Header)
		}
	}
}

// Two bundles, storage, a file of the installation and a temporary folder must appear as one tree. Writes must be kept
// or dropped as specified, and no script in storage may run.
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
			"cache/seed.txt": "seed",
		})
		s.Site = "site_places"
		s.Trees = []Tree{{Path: "content", Bundle: content}}
		s.Storage = []Storage{{Path: "content/uploads"}, {Path: "cache", Temporary: true}}
		s.Files = []File{{Path: "config.php", Text: []byte("<?php // password")}}
		return s
	}
	s := spec("places1")
	p := w.start(s)
	if status, text := w.ask(
		p, s, "GET", "/", "",
	); status != 200 || text != "kept c <?php // password first read-only read-only read-only" {
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
	if status, text := w.ask(
		p, s, "GET", "/", "",
	); status != 200 || !strings.HasPrefix(text, "kept kept") || !strings.Contains(text, " c <?php") {
		t.Errorf("after a restart: %d %q\n%s", status, text, w.said())
	}
	folders, err := w.StorageFolders("site_places")
	if len(folders) != 2 || folders["content/uploads"] == "" || folders[sessions] == "" || err != nil {
		t.Errorf("storage: %v %v", folders, err)
	}
	p.Stop(0)
	s = spec("places3")
	for i, x := range []struct {
		preview  string
		isolated bool
		want     string
	}{
		{"aa", false, "kept c <?php"},
		{"aa", false, "kept kept c <?php"},
		{"bb", false, "kept c <?php"},
		{"", true, "kept c <?php"},
		{"", true, "kept c <?php"},
	} {
		s.ID, s.Preview, s.Isolated = fmt.Sprintf("places3%d", i), x.preview, x.isolated
		p = w.start(s)
		if status, text := w.ask(
			p, s, "GET", "/", "",
		); status != 200 || !strings.HasPrefix(strings.Replace(text, "kept kept kept ", "SITE'S ", 1), x.want) {
			t.Errorf("%d: the preview has another's storage: %d %q", i, status, text)
		}
		p.Stop(0)
	}
	stores, err := w.PreviewStores()
	slices.Sort(stores["site_places"])
	if !slices.Equal(stores["site_places"], []string{"aa", "bb"}) || err != nil {
		t.Errorf("storage of previews: %v %v", stores, err)
	}
	ok(t, w.ForgetPreview("site_places", "aa"))
	if _, left := w.StorageDir("site_places-preview-aa"); left {
		t.Error("the storage of a deleted preview still exists")
	}
	if sites, err := w.StorageSites(); !slices.Equal(sites, []id.Site{"site_places"}) || err != nil {
		t.Errorf("sites with storage: %v %v", sites, err)
	}
	ok(t, w.ForgetStorage("site_places"))
	if _, left := w.StorageDir("site_places-preview-bb"); left {
		t.Error("the storage of deleted previews still exists")
	}
	if folders, _ := w.StorageFolders("site_places"); len(folders) > 0 {
		t.Errorf("forgotten storage: %v", folders)
	}
}

// A script must run once in the site's sandbox, with its storage, and its end must be reported.
func TestPHPOnce(t *testing.T) {
	t.Parallel()
	w := phpWorld(t)
	s := w.phpSpec("once", map[string]string{
		"task.php": `<?php file_put_contents("data/x", "done"); echo PHP_SAPI, " ", extension_loaded("mbstring") ? "mbstring" : "none", "\n"; exit(3);`,
	})
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

// If a program makes a link in its storage, the service must never follow it out of the storage.
func TestStorageLinks(t *testing.T) {
	t.Parallel()
	w := phpWorld(t)
	s := w.phpSpec("links", map[string]string{
		"index.php": `<?php symlink("/etc/passwd", "data/abs"); symlink("../../../../../../etc/passwd", "data/up"); symlink("ok.txt", "data/good"); posix_mkfifo("data/fifo", 0666);
file_put_contents("data/ok.txt", "ok"); link("data/ok.txt", "data/hard"); echo "made";`,
		"secret.txt": "secret",
	})
	s.Storage = []Storage{{Path: "data"}}
	p := w.start(s)
	if _, text := w.ask(p, s, "GET", "/", ""); text != "made" {
		t.Fatalf("%q\n%s", text, w.said())
	}
	for name, want := range map[string]bool{
		"data/ok.txt":        true,
		"data/good":          true,
		"data/abs":           false,
		"data/up":            false,
		"data/../secret.txt": true,
	} {
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

// Storage has a limit. A program that exceeds it must be ended with that reason. A program that starts far over the
// limit may only read.
func TestStorageLimit(t *testing.T) {
	t.Parallel()
	w := phpWorld(t)
	spec := func(id string, megabytes int) Spec {
		s := w.phpSpec(id, map[string]string{
			"fill.php": `<?php $f = fopen("data/" . getmypid() . rand(), "w"); for ($i = 0; $i < (int)$argv[1]; $i++) { if (@fwrite($f, random_bytes(1<<20)) === false) { echo "refused\n"; exit(9); } } fflush($f); sleep(20); echo "filled\n";`,
		})
		s.Site = "site_full"
		s.Storage = []Storage{{Path: "data"}}
		s.Limits.Storage, s.Limits.Disk = 32<<20, 256<<20
		s.Argv = []string{"php", "fill.php", strconv.Itoa(megabytes)}
		return s
	}
	exit, err := Run(t.Context(), w, spec("full1", 40))
	if err != nil || exit.Reason != "storage limit" {
		t.Errorf("%+v %v\n%s", exit, err, w.said())
	}
	exit, err = Run(t.Context(), w, spec("full2", 30))
	if err != nil || exit.Reason != "storage limit" || !strings.Contains(w.said(), "Storage is full: ") {
		t.Errorf("with full storage: %+v %v\n%s", exit, err, w.said())
	}
	big, err := os.Create(filepath.Join(w.c.Storage, "site_full", "data", "big"))
	ok(t, err)
	_, err = io.CopyN(big, rand.Reader, 100<<20)
	ok(t, errors.Join(err, big.Close()))
	exit, err = Run(t.Context(), w, spec("full3", 1))
	if err != nil || exit.Code == 0 || !strings.Contains(w.said(), "read-only") {
		t.Errorf("with storage far over its limit: %+v %v\n%s", exit, err, w.said())
	}
}

// Empty files must count towards the limit too, and a restart must not allow the same number again.
func TestStorageLimitOfFiles(t *testing.T) {
	t.Parallel()
	w := phpWorld(t)
	spec := func(id string, files int) Spec {
		s := w.phpSpec(id, map[string]string{
			"fill.php": `<?php for ($i = 0; $i < (int)$argv[1]; $i++) { if (!@touch("data/" . $argv[2] . $i)) { echo "refused\n"; exit(9); } } sleep(20); echo "filled\n";`,
		})
		s.Site = "site_files"
		s.Storage = []Storage{{Path: "data"}}
		s.Limits.Storage, s.Limits.Disk = 32<<20, 256<<20
		s.Argv = []string{"php", "fill.php", strconv.Itoa(files), id}
		return s
	}
	exit, err := Run(t.Context(), w, spec("files1", 3000)) // 2,048 files are its share
	if err != nil || exit.Reason != "storage limit" {
		t.Errorf("%+v %v\n%s", exit, err, w.said())
	}
	exit, err = Run(t.Context(), w, spec("files2", 5000))
	if err != nil || exit.Reason != "storage limit" || !strings.Contains(w.said(), "Storage is full: ") {
		t.Errorf("with full storage: %+v %v\n%s", exit, err, w.said())
	}
	for i := range 7000 {
		ok(t, os.WriteFile(filepath.Join(w.c.Storage, "site_files", "data", fmt.Sprint(i)), nil, 0o644))
	}
	exit, err = Run(t.Context(), w, spec("files3", 1))
	if err != nil || exit.Code == 0 || !strings.Contains(w.said(), "read-only") {
		t.Errorf("with far too many files: %+v %v\n%s", exit, err, w.said())
	}
}

// From inside PHP, no function may reach the host, other sites or private networks, or a socket of another site.
func TestPHPIsAlone(t *testing.T) {
	t.Parallel()
	w := phpWorld(t)
	host, err := net.Listen("tcp", "127.0.0.1:0")
	ok(t, err)
	defer host.Close()
	go func() {
		for {
			c, err := host.Accept()
			if err != nil {
				return
			}
			io.WriteString(c, "HTTP/1.0 200 OK\r\n\r\nreached")
			c.Close()
		}
	}()
	victim := w.phpSpec("victim", map[string]string{
		"index.php": `<?php file_put_contents("data/secret.txt", "victim's"); session_start(); $_SESSION["x"] = 1; echo "here";`,
	})
	victim.Storage = []Storage{{Path: "data"}}
	v := w.start(victim)
	if status, text := w.ask(v, victim, "GET", "/", ""); status != 200 || text != "here" {
		t.Fatalf("%d %s\n%s", status, text, w.said())
	}
	s := w.phpSpec("attacker", map[string]string{"index.php": `<?php
[$what, $arg] = [$_GET["what"], $_GET["arg"]];
ini_set("default_socket_timeout", "2");
switch ($what) {
case "http": $r = @file_get_contents($arg); break;
case "curl": $c = curl_init($arg); curl_setopt_array($c, [CURLOPT_RETURNTRANSFER => 1, CURLOPT_TIMEOUT => 3, CURLOPT_FOLLOWLOCATION => 1]); $r = curl_exec($c); break;
case "socket": $f = @stream_socket_client($arg, $no, $text, 2); $r = $f ? "connected" : false; break;
case "read": $r = @file_get_contents($arg); break;
case "list": $r = @scandir($arg) ? "listed " . implode(" ", scandir($arg)) : false; break;
case "shell": $r = shell_exec($arg); break;
}
echo $r === false || $r === null || $r === "" ? "nothing" : "GOT " . $r;`})
	s.Egress = true
	p := w.start(s)
	port := host.Addr().(*net.TCPAddr).Port
	local := "127.0.0.1:" + strconv.Itoa(port)
	for _, try := range [][2]string{
		{"http", "http://" + local + "/"},
		{"curl", "http://" + local + "/"},
		{"curl", "http://localhost:" + strconv.Itoa(port) + "/"},
		{"curl", "gopher://" + local + "/"},
		{"http", "http://[::1]:" + strconv.Itoa(port) + "/"},
		{"http", "http://0.0.0.0:" + strconv.Itoa(port) + "/"},
		{"http", "http://2130706433:" + strconv.Itoa(port) + "/"},
		{"http", "http://169.254.169.254/latest/meta-data/"},
		{"curl", "http://10.0.0.1/"},
		{"curl", "http://192.168.0.1/"},
		{"curl", "http://172.16.0.1/"},
		{"curl", "http://100.64.0.1/"},
		{"curl", "http://127.0.0.1.nip.io/"},
		{"socket", "tcp://" + local},
		{"socket", "tcp://127.0.0.1:3306"},
		{"socket", "tcp://127.0.0.1:5432"},
		{"socket", "unix://" + filepath.Join(w.c.Dir, "victim", socketName)},
		{"socket", "unix:///run/mysqld/mysqld.sock"},
		{"socket", "unix:///var/run/docker.sock"},
		{"read", filepath.Join(w.c.Storage, "site_victim", "data", "secret.txt")},
		{"read", "/var/lib/php/sessions/../../../../etc/shadow"},
		{"read", "/etc/shadow"},
		{"list", w.c.Storage},
		{"list", w.c.Dir},
		{"list", "/root"},
		{"list", "/home"},
		{"list", "/var/lib/mysql"},
		{"list", "/etc/php/8.2/fpm/pool.d"},
		{"list", "/etc/slipway"},
		{"shell", "ls " + w.c.Dir + " 2>/dev/null"},
		{"shell", "cat /app/data/secret.txt 2>/dev/null"},
	} {
		status, text := w.ask(p, s, "GET", "/?"+url.Values{"what": {try[0]}, "arg": {try[1]}}.Encode(), "")
		if status != 200 || text != "nothing" {
			t.Errorf("%s %s: %d %.200q", try[0], try[1], status, text)
		}
	}
	if _, text := w.ask(p, s, "GET", "/?what=shell&arg=id", ""); !strings.Contains(text, "uid=1000") { // the shell may run
		t.Errorf("shell: %q", text)
	}
}

// If a worker takes more memory than the site may have, the site's PHP must end, and the exit must say why. PHP's own
// limit must end only the request.
func TestPHPOutOfMemory(t *testing.T) {
	t.Parallel()
	w := phpWorld(t)
	s := w.phpSpec("memory", map[string]string{
		"index.php": `<?php if (isset($_GET["all"])) { ini_set("memory_limit", "-1"); } $x = []; for (;;) { $x[] = random_bytes(1 << 20); }`,
	})
	p := w.start(s)
	if status, _ := w.ask(p, s, "GET", "/", ""); status != 500 {
		t.Errorf("PHP's own limit: %d\n%s", status, w.said())
	}
	w.hears("Allowed memory size")
	w.ask(p, s, "GET", "/?all=1", "")
	select {
	case <-p.Done():
		if exit := p.Exit(); !exit.OutOfMemory || exit.Reason != "out of memory" {
			t.Errorf("%+v", exit)
		}
	case <-time.After(time.Minute):
		t.Error("it still runs")
	}
}

// Sessions must outlive the program, and no other site may have them.
func TestPHPSessions(t *testing.T) {
	t.Parallel()
	w := phpWorld(t)
	spec := func(id string) Spec {
		s := w.phpSpec(id, map[string]string{
			"index.php": `<?php session_id("sessionsessionsessionsession"); ini_set("session.use_strict_mode", "0"); session_start(); $_SESSION["n"] = ($_SESSION["n"] ?? 0) + 1; echo $_SESSION["n"];`,
		})
		s.Site = "site_sessions"
		return s
	}
	for _, want := range []string{"1", "2"} {
		s := spec("sessions" + want)
		p := w.start(s)
		if _, text := w.ask(p, s, "GET", "/", ""); text != want {
			t.Errorf("%q, want %s\n%s", text, want, w.said())
		}
		p.Stop(0)
	}
	for i, change := range []func(*Spec){
		func(s *Spec) { s.Site = "site_others" },
		func(s *Spec) { s.Preview = "aa" },
		func(s *Spec) { s.Preview = "bb" },
		func(s *Spec) { s.Isolated = true },
		func(s *Spec) { s.Isolated = true },
	} {
		s := spec(fmt.Sprint("sessions3", i))
		change(&s)
		if _, text := w.ask(w.start(s), s, "GET", "/", ""); text != "1" {
			t.Errorf("%d: another's program has the session: %q", i, text)
		}
	}
}

// Scripts that no request has needed yet must be compiled ahead without running. A file that cannot be compiled must do
// no harm.
func TestPHPPrime(t *testing.T) {
	t.Parallel()
	w := phpWorld(t)
	s := w.phpSpec("prime", map[string]string{
		"index.php":                             `<?php foreach (["src/A.php", "src/Broken.php", "other.php"] as $f) echo opcache_is_script_cached("/app/$f") ? "yes " : "no "; echo is_file("/tmp/ran") ? "ran" : "idle";`,
		"src/A.php":                             `<?php namespace N; use X\Y; #[Y(z: ["]"])] final class A { function f() { touch("/tmp/ran"); } } touch("/tmp/ran");`,
		"src/Broken.php":                        `<?php syntax error`,
		"other.php":                             `<?php echo 1;`,
		"vendor/composer/autoload_classmap.php": `<?php return ["Broken" => "/app/src/Broken.php", "Gone" => "/app/gone.php", "A" => "/app/src/A.php"];`,
	})
	p := w.start(s)
	site := &php.Site{Top: AppDir, Open: p.Open, Dial: p.Dial}
	ok(t, site.Prime(t.Context(), AppDir))
	if _, text := w.ask(p, s, "GET", "/", ""); text != "yes no no idle" {
		t.Errorf("%q\n%s", text, w.said())
	}
}

// A script that uses a class before the line of its declaration must still run after other files were compiled ahead.
// The common forms of a file with one class must be compiled ahead.
func TestPHPPrimeKeepsHoistedClasses(t *testing.T) {
	t.Parallel()
	w := phpWorld(t)
	own := map[string]string{ // each prints ok when it runs by itself
		"new.php":      `<?php new A; class A {} echo "ok";`,
		"function.php": `<?php f(); function f() { new A; echo "ok"; } class A {}`,
		"static.php":   `<?php echo A::OK; class A { const OK = "ok"; }`,
		"parent.php":   `<?php class B extends A {} class A {} new B; echo "ok";`,
		"guard.php":    `<?php defined("NO") or f(); class A {} function f() { new A; echo "ok"; }`,
		"include.php":  `<?php include "part.inc"; class A {}`,
		"html.php":     `<?= A::OK ?><?php class A { const OK = "ok"; }`,
	}
	ahead := map[string]string{
		"plain.php":  `<?php function f() { return new class {}; }`,
		"one.php":    `<?php declare(strict_types=1); namespace N { abstract class A { function f() { return [self::class, new class {}]; } } }`,
		"plugin.php": `<?php if (!defined("ABSPATH")) { exit; } class A {} new A;`,
	}
	files := map[string]string{"part.inc": `<?php new A; echo "ok";`}
	maps.Copy(files, own)
	maps.Copy(files, ahead)
	files["index.php"] = `<?php header("Content-Type: text/plain"); if (isset($_GET["cached"])) echo opcache_is_script_cached("/app/$_GET[cached]") ? "yes" : "no"; else include "/app/$_GET[run]";`
	s := w.phpSpec("hoist", files)
	p := w.start(s)
	site := &php.Site{Top: AppDir, Open: p.Open, Dial: p.Dial}
	ok(t, site.Prime(t.Context(), AppDir))
	for name := range ahead {
		if _, text := w.ask(p, s, "GET", "/?cached="+name, ""); text != "yes" {
			t.Errorf("%s isn't compiled ahead: %q", name, text)
		}
	}
	for name := range own {
		for range 2 {
			if status, text := w.ask(p, s, "GET", "/?run="+name, ""); status != 200 || text != "ok" {
				t.Errorf("%s: %d %q\n%s", name, status, text, w.said())
			}
		}
	}
}

// An error without a page must get a sentence; an error with its own page must keep it.
func TestPHPErrors(t *testing.T) {
	t.Parallel()
	w := phpWorld(t)
	s := w.phpSpec("errors", map[string]string{
		"index.php": `<?php if (isset($_GET["page"])) { http_response_code(503); echo "own page"; exit; } undefined_function();`,
	})
	p := w.start(s)
	if status, text := w.ask(p, s, "GET", "/", ""); status != 500 || text != "The application failed to answer this request\n" {
		t.Errorf("%d %q", status, text)
	}
	if status, text := w.ask(p, s, "GET", "/?page=1", ""); status != 503 || text != "own page" {
		t.Errorf("%d %q", status, text)
	}
	w.hears("undefined_function")
}
