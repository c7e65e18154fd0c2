package php

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"slipway/internal/edge/compress"
	"slipway/internal/platform/fair"
)

// site returns a Site with these files in a directory. Files below uploads are storage.
func site(t *testing.T, root string, files ...string) *Site {
	t.Helper()
	dir := t.TempDir()
	for _, name := range files {
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	top, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { top.Close() })
	return &Site{Top: "/app", Root: root, Front: "index.php", Open: func(name string) (*os.File, bool, error) {
		f, err := top.Open(name)
		return f, strings.HasPrefix(name, filepath.Join(root, "uploads")+"/"), err
	}}
}

func TestScript(t *testing.T) {
	t.Parallel()
	s := site(
		t, "public", "public/index.php", "public/admin/index.php", "public/run.php", "public/photo.jpg",
		"public/uploads/evil.php", "public/evil.phtml", "public/x.php.jpg", "public/.hidden/x.php",
		"public/vendor/tool.php", "public/a.PHP", "public/node_modules/x.php", "config.php", "public/dir.php/file.txt",
		"public/sp ace.php", "public/docs/index.html", "public/.old/index.html", "public/vendor/docs/index.html",
	)
	for name, tt := range map[string]struct {
		path, script, info string
		moved              bool
	}{
		"home":                         {path: "/", script: "index.php"},
		"front controller":             {path: "/products/7", script: "index.php"},
		"itself":                       {path: "/run.php", script: "run.php"},
		"path info":                    {path: "/run.php/a/b", script: "run.php", info: "/a/b"},
		"path info of the front":       {path: "/index.php/a.php/b", script: "index.php", info: "/a.php/b"},
		"folder":                       {path: "/admin/", script: "admin/index.php"},
		"folder without slash":         {path: "/admin", script: "admin/index.php", moved: true},
		"folder of a page":             {path: "/docs", moved: true},
		"folder of a page with slash":  {path: "/docs/", script: "index.php"}, // Serve would redirect before this
		"hidden folder of a page":      {path: "/.old", script: "index.php"},
		"two slashes":                  {path: "//run.php", script: "run.php"},
		"a space":                      {path: "/sp ace.php", script: "sp ace.php"},
		"picture with a script behind": {path: "/photo.jpg/x.php", script: "index.php"},
		"uploads":                      {path: "/uploads/evil.php", script: "index.php"},
		"uploads by a detour":          {path: "/admin/../uploads/evil.php", script: "index.php"},
		"uploads with path info":       {path: "/uploads/evil.php/x.php", script: "index.php"},
		"other suffix":                 {path: "/evil.phtml", script: "index.php"},
		"two suffixes":                 {path: "/x.php.jpg", script: "index.php"},
		"capitals":                     {path: "/a.PHP", script: "index.php"},
		"newline":                      {path: "/run.php\n", script: "index.php"},
		"newline before the suffix":    {path: "/photo.jpg\n.php", script: "index.php"},
		"NUL":                          {path: "/run.php\x00.jpg", script: "index.php"},
		"backslash":                    {path: `/admin\..\run.php`, script: "index.php"},
		"hidden":                       {path: "/.hidden/x.php", script: "index.php"},
		"above":                        {path: "/../config.php", script: "index.php"},
		"dependencies":                 {path: "/vendor/tool.php", script: "index.php"},
		"dependencies with path info":  {path: "/vendor/tool.php/x", script: "index.php"},
		"node_modules":                 {path: "/node_modules/x.php", script: "index.php"},
		"a folder that looks like one": {path: "/dir.php", script: "index.php"},
		"a file in such a folder":      {path: "/dir.php/file.txt", script: "index.php"},
		"a script that is not there":   {path: "/wp-login.php", script: "index.php"},
		"a slash after a script":       {path: "/run.php/", script: "run.php", info: "/"},
		"a semicolon":                  {path: "/run.php;x", script: "index.php"},
		"a long path":                  {path: "/" + strings.Repeat("a/", 3000) + "run.php", script: "index.php"},
		"bytes that are no text":       {path: "/run\xff.php", script: "index.php"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			script, info, moved := s.script(tt.path)
			if script != tt.script || info != tt.info || moved != tt.moved {
				t.Errorf("%q runs %q with %q, %v", tt.path, script, info, moved)
			}
		})
	}
}

// A closed path must not be served as a file or run as a script, and the front controller must not answer for it.
func TestClosed(t *testing.T) {
	t.Parallel()
	s := site(t, "public", "public/index.php", "public/data/a.txt", "public/data/index.php", "public/data/index.html", "public/database.txt",
		"public/keys.txt")
	s.Closed = []string{"data", "keys.txt"}
	for path, want := range map[string]string{
		"/data/a.txt": "", "/data/": "", "/data": "", "/data/index.php": "", "/data/index.php/x": "", "/x/../data/a.txt": "", "//data/none": "",
		"/keys.txt": "", "/keys.txt/x": "", "/database.txt": "file", "/database": "index.php", "/": "index.php",
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.URL.Path = path
		got, _, moved := s.script(path)
		if s.Serve(httptest.NewRecorder(), r) {
			got = "file"
		}
		if got != want || moved {
			t.Errorf("%s: %q, %v; want %q", path, got, moved, want)
		}
	}
}

// A body must be complete before PHP gets it, whether its length is announced or not. A short body must need no room on
// disk, and each visitor and each owner must have only a share of the disk.
func TestBodies(t *testing.T) {
	s := &Site{Spool: t.TempDir()}
	body := func(who fair.Who, length int64, text io.Reader) (string, int64, func(), error) {
		r := httptest.NewRequest(http.MethodPost, "/", struct{ io.Reader }{text})
		r.ContentLength = length
		b, length, done, err := s.body(r, who)
		if err != nil || b == nil {
			return "", length, done, err
		}
		got, err := io.ReadAll(b)
		return string(got), length, done, err
	}
	a := fair.Who{Owner: "a", Site: "a1", Visitor: "1"}
	for _, text := range []string{"", "a=b", strings.Repeat("x", shortLength-1), strings.Repeat("x", shortLength), strings.Repeat("x", 1<<20)} {
		for _, length := range []int64{-1, int64(len(text))} {
			got, n, done, err := body(a, length, iotest.HalfReader(strings.NewReader(text)))
			if err != nil || got != text || n != int64(len(text)) {
				t.Fatalf("%d of %d bytes: %d, %v", length, len(text), n, err)
			}
			if held, _ := spools.Held(); len(text) != shortLength && (held > 0) != (len(text) > shortLength) {
				t.Errorf("%d bytes have %d MiB on disk", len(text), held)
			}
			done()
		}
	}
	for _, sent := range []string{"", "half", strings.Repeat("long", shortLength)} { // a body that breaks off must not count as complete
		for _, end := range []error{io.ErrUnexpectedEOF, io.EOF} {
			for _, length := range []int64{-1, 1 << 20} {
				_, _, done, err := body(a, length, io.MultiReader(strings.NewReader(sent), iotest.ErrReader(end)))
				if whole := length < 0 && end == io.EOF; whole != (err == nil) {
					t.Errorf("%d of %d bytes and then %v: %v", len(sent), length, end, err)
				}
				if err == nil {
					done()
				}
			}
		}
	}
	refused := new(refusal)
	if _, _, _, err := body(a, maxBody+1, strings.NewReader("")); !errors.As(err, &refused) || refused.status != 413 {
		t.Errorf("more than a request may have: %v", err)
	}
	took, ok := spools.TryN(a, visitorSpool-spoolStep)
	if !ok {
		t.Fatal("bodies that have ended keep their room")
	}
	if _, _, _, err := body(a, -1, strings.NewReader(strings.Repeat("x", spoolStep<<20+1))); !errors.As(err, &refused) || refused.status != 503 {
		t.Errorf("more than a visitor's share of the disk: %v", err)
	}
	_, _, done, err := body(fair.Who{Owner: "a", Site: "a2", Visitor: "2"}, -1, strings.NewReader(strings.Repeat("x", spoolStep<<20+1)))
	if err != nil {
		t.Fatalf("another visitor: %v", err)
	}
	done()
	took()
	if held, _ := spools.Held(); held != 0 {
		t.Errorf("%d MiB stay taken", held)
	}
}

// An answer must be taken from PHP at once, however slowly its visitor reads, as far as there is room. It must arrive
// as it was written, and its space on disk must be given back.
func TestAnswersAreKept(t *testing.T) {
	who := fair.Who{Owner: "kept", Site: "s", Visitor: "v"}
	text := make([]byte, 9<<20)
	_, _ = rand.Read(text)
	for name, room := range map[string]int{"room": visitorSpool, "little": spoolStep, "none": 0} {
		t.Run(name, func(t *testing.T) {
			if taken := visitorSpool - room; taken > 0 {
				release, ok := spools.TryN(who, taken)
				if !ok {
					t.Fatal("no room at all")
				}
				defer release()
			}
			before, _ := spools.Held()
			written := make(chan struct{})
			k := keep(io.NopCloser(iotest.HalfReader(bytes.NewReader(text))), spool{dir: t.TempDir(), who: who}, func() { close(written) })
			if room == visitorSpool {
				select {
				case <-written:
				case <-time.After(30 * time.Second):
					t.Fatal("the answer is not taken from PHP until its visitor reads")
				}
			}
			got, err := io.ReadAll(iotest.HalfReader(k))
			if err != nil || !bytes.Equal(got, text) {
				t.Errorf("%d of %d bytes arrived: %v", len(got), len(text), err)
			}
			<-written
			if held, _ := spools.Held(); held != before {
				t.Errorf("%d MiB stay taken", held-before)
			}
			if err := k.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	// When a visitor leaves, the copying must end, whatever it is doing.
	from, to := io.Pipe()
	go func() { _, _ = to.Write(text) }()
	done := make(chan struct{})
	k := keep(from, spool{dir: t.TempDir(), who: who}, func() { close(done) })
	if _, err := io.ReadFull(k, make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	k.Close()
	<-done
	if held, _ := spools.Held(); held != 0 {
		t.Errorf("%d MiB stay taken", held)
	}
	if _, err := k.Read(make([]byte, 1)); err == nil {
		t.Error("a closed answer can be read")
	}
	// An incomplete answer must end with an error.
	k = keep(io.NopCloser(io.MultiReader(strings.NewReader("half"), iotest.ErrReader(io.ErrUnexpectedEOF))), spool{who: who}, func() {})
	if got, err := io.ReadAll(k); string(got) != "half" || err != io.ErrUnexpectedEOF {
		t.Errorf("%q, %v", got, err)
	}
}

// A body that trickles in must be refused after a while; one that comes at a normal pace must not.
func TestSlowBodies(t *testing.T) {
	t.Parallel()
	for each, fast := range map[int]bool{1: false, 512 << 10: true} {
		synctest.Test(t, func(t *testing.T) {
			p := &paced{Reader: &dripping{each: each, left: 100}, since: time.Now()}
			_, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, p, make([]byte, 512<<10))
			refused := new(refusal)
			if slow := errors.As(err, &refused) && refused.status == http.StatusRequestTimeout; slow == fast || fast && err != nil {
				t.Errorf("%d bytes every 15 s: %v", each, err)
			}
			if took := time.Since(p.since); !fast && took > time.Minute {
				t.Errorf("the body held its slot for %s", took)
			}
		})
	}
}

// dripping is a body of which a few bytes come every 15 seconds.
type dripping struct{ each, left int }

func (d *dripping) Read(b []byte) (int, error) {
	if d.left == 0 {
		return 0, io.EOF
	}
	d.left--
	time.Sleep(15 * time.Second)
	return min(len(b), d.each), nil
}

func TestServe(t *testing.T) {
	t.Parallel()
	s := site(
		t, "", "index.php", "style.css", "uploads/photo.jpg", "uploads/evil.php", "uploads/evil.phtml", ".env",
		".git/config", "config.inc", "db.sql", "composer.json", "composer.lock", "wp-config.php.bak", "a.php~",
		"docs/index.html", "vendor/lib/x.js", "node_modules/x.js", ".well-known/security.txt", "secret.yml",
		"data.sqlite", "debug.log",
	)
	for path, want := range map[string]bool{
		"/style.css":                true,
		"/uploads/photo.jpg":        true,
		"/docs/":                    true,
		"/vendor/lib/x.js":          true,
		"/.well-known/security.txt": true,
		"/":                         false,
		"/index.php":                false,
		"/uploads/evil.php":         false,
		"/uploads/evil.phtml":       false,
		"/.env":                     false,
		"/.git/config":              false,
		"/config.inc":               false,
		"/db.sql":                   false,
		"/composer.json":            false,
		"/composer.lock":            false,
		"/wp-config.php.bak":        false,
		"/a.php~":                   false,
		"/docs":                     false,
		"/node_modules/x.js":        false,
		"/secret.yml":               false,
		"/data.sqlite":              false,
		"/debug.log":                false,
		"/none":                     false,
		"/uploads/../.env":          false,
		"/style.css/":               false,
		"/INDEX.PHP":                false,
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.URL.Path = path
		w := httptest.NewRecorder()
		if got := s.Serve(w, r); got != want {
			t.Errorf("%s: served %v", path, got)
		}
		if want && (w.Code != 200 || w.Header().Get("X-Content-Type-Options") != "nosniff" || w.Header().Get("Etag") == "") {
			t.Errorf("%s: %d %v", path, w.Code, w.Header())
		}
	}
	r := httptest.NewRequest(http.MethodPost, "/style.css", nil)
	if s.Serve(httptest.NewRecorder(), r) {
		t.Error("a file answered a POST")
	}
}

// A style sheet, and a JSON file in storage, must be sent compressed to clients that accept it. A file that is not
// served must not be served compressed either.
func TestServeCompressed(t *testing.T) {
	t.Parallel()
	s := site(t, "", "style.css", "uploads/map.json", "photo.jpg", "config.inc")
	for _, name := range []string{"style.css", "uploads/map.json", "photo.jpg", "config.inc"} {
		f, _, err := s.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := os.WriteFile(f.Name(), []byte(strings.Repeat("a text that repeats ", 200)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s.Name, s.Copies = "site_1", compress.New(compress.Config{Now: func() time.Time { return time.Now().Add(time.Hour) }})
	for path, want := range map[string]string{"/style.css": "br", "/uploads/map.json": "br", "/photo.jpg": "", "/config.inc": ""} {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.Header.Set("Accept-Encoding", "gzip, br")
		w := httptest.NewRecorder()
		served := s.Serve(w, r)
		if got := w.Header().Get("Content-Encoding"); served != (path != "/config.inc") || got != want || want != "" && w.Body.Len() > 400 {
			t.Errorf("%s: served %v, %q, %d bytes", path, served, got, w.Body.Len())
		}
	}
}

// The entity tag of a release's file must depend on its content only, not on when or where the file was written or
// whether it is compressed, so that nodes and restarts agree on it. Another content of the same length and time must
// have another tag.
func TestTagsAreOfContent(t *testing.T) {
	t.Parallel()
	tags := func(text string, at time.Time) (list [2]string) {
		s := site(t, "", "style.css")
		s.Name, s.Copies = "site_1", compress.New(compress.Config{Now: func() time.Time { return time.Now().Add(time.Hour) }})
		f, _, err := s.Open("style.css")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := errors.Join(os.WriteFile(f.Name(), []byte(strings.Repeat(text, 2000)), 0o644), os.Chtimes(f.Name(), at, at)); err != nil {
			t.Fatal(err)
		}
		for i, accepts := range []string{"", "br"} {
			for range 2 { // the second time the tag is cached
				r := httptest.NewRequest(http.MethodGet, "/style.css", nil)
				r.Header.Set("Accept-Encoding", accepts)
				if w := httptest.NewRecorder(); !s.Serve(w, r) || w.Code != 200 || w.Header().Get("Content-Encoding") != accepts {
					t.Fatalf("%d %v", w.Code, w.Header())
				} else if tag := w.Header().Get("Etag"); list[i] != "" && tag != list[i] {
					t.Errorf("the tag was %s and is %s", list[i], tag)
				} else {
					list[i] = tag
				}
			}
			r := httptest.NewRequest(http.MethodGet, "/style.css", nil)
			r.Header.Set("Accept-Encoding", accepts)
			r.Header.Set("If-None-Match", list[i])
			if w := httptest.NewRecorder(); !s.Serve(w, r) || w.Code != 304 {
				t.Errorf("with %s: %d", list[i], w.Code)
			}
		}
		return list
	}
	day := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	first, again, other := tags("one", day), tags("one", day.Add(time.Hour)), tags("two", day)
	if first != again || first[0] == first[1] {
		t.Errorf("the tags of one content are %v and %v", first, again)
	}
	if first[0] == other[0] || first[1] == other[1] {
		t.Errorf("the tags of another content are %v, too", other)
	}
}
