package compress

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"slipway/internal/platform/fair"
)

// files serves the files of a directory, as sites do.
type files struct {
	t      *testing.T
	dir    string
	copies *Copies
}

// later returns a time at which every written file counts as settled.
func later() time.Time { return time.Now().Add(time.Hour) }

func serve(t *testing.T, c Config) *files {
	t.Helper()
	if c.Now == nil {
		c.Now = later
	}
	return &files{t, t.TempDir(), New(c)}
}

func (f *files) write(name, text string) {
	f.t.Helper()
	if err := os.WriteFile(filepath.Join(f.dir, name), []byte(text), 0o644); err != nil {
		f.t.Fatal(err)
	}
}

// ask requests a file of a site. If Copies doesn't answer, ask serves the file uncompressed, as callers do.
func (f *files) ask(site, method, name string, headers ...string) *httptest.ResponseRecorder {
	f.t.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequest(method, "/"+name, nil)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Add(name, value)
	}
	file, err := os.Open(filepath.Join(f.dir, name))
	if err != nil {
		http.NotFound(w, r)
		return w
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		f.t.Fatal(err)
	}
	kind := "text/css; charset=utf-8"
	if strings.HasSuffix(name, ".png") {
		kind = "image/png"
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Etag", fmt.Sprintf(`"%x-%x"`, info.ModTime().UnixNano(), info.Size()))
	if !f.copies.Serve(w, r, File{file, info, kind, site}, name, time.Time{}) {
		http.ServeContent(w, r, name, time.Time{}, file)
	}
	return w
}

func unpack(t *testing.T, w *httptest.ResponseRecorder) string {
	t.Helper()
	var r io.Reader = w.Body
	var err error
	switch coding := w.Header().Get("Content-Encoding"); coding {
	case "br":
		r = brotli.NewReader(r)
	case "gzip":
		r, err = gzip.NewReader(r)
	case "zstd":
		r, err = zstd.NewReader(r)
	case "":
	default:
		t.Fatalf("Content-Encoding %q", coding)
	}
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

var sheet = strings.Repeat(".button { color: red }\n", 1000)

// Visitors get the best encoding that they accept, and every representation has its own ETag.
func TestNegotiation(t *testing.T) {
	t.Parallel()
	f := serve(t, Config{})
	f.write("a.css", sheet)
	tags := map[string]string{}
	for accept, want := range map[string]string{
		"":                         "",
		"gzip, deflate, br, zstd":  "br",
		"gzip":                     "gzip",
		"zstd":                     "zstd",
		"GZIP":                     "gzip",
		"br;q=0, gzip":             "gzip",
		"*":                        "br",
		"*;q=0":                    "",
		"identity":                 "",
		"deflate":                  "",
		"identity;q=0, br;q=0.001": "br",
	} {
		for range 2 {
			w := f.ask("site", "GET", "a.css", "Accept-Encoding: "+accept)
			if got := unpack(t, w); w.Code != 200 || got != sheet || w.Header().Get("Content-Encoding") != want {
				t.Errorf("%q: %d, %d bytes, %v", accept, w.Code, len(got), w.Header())
			}
			if h := w.Header(); h.Get("Vary") != "Accept-Encoding" || h.Get("Content-Type") != "text/css; charset=utf-8" ||
				tags[want] != "" && tags[want] != h.Get("Etag") {
				t.Errorf("%q: %v, before with %s", accept, h, tags[want])
			}
			tags[want] = w.Header().Get("Etag")
			head := f.ask("site", "HEAD", "a.css", "Accept-Encoding: "+accept)
			if head.Body.Len() != 0 || head.Header().Get("Content-Length") != w.Header().Get("Content-Length") ||
				head.Header().Get("Etag") != tags[want] ||
				head.Header().Get("Content-Encoding") != want {
				t.Errorf("HEAD with %q: %d bytes, %v; GET %v", accept, head.Body.Len(), head.Header(), w.Header())
			}
		}
	}
	if len(tags) != 4 {
		t.Fatalf("representations: %v", tags)
	}
	seen := map[string]bool{}
	for _, tag := range tags {
		seen[tag] = true
	}
	if len(seen) != 4 {
		t.Errorf("two representations have one tag: %v", tags)
	}
}

// Conditional requests compare the ETag of the representation that is sent. Ranges are of the uncompressed file.
func TestConditions(t *testing.T) {
	t.Parallel()
	f := serve(t, Config{})
	f.write("a.css", sheet)
	own := f.ask("site", "GET", "a.css").Header().Get("Etag")
	br := f.ask("site", "GET", "a.css", "Accept-Encoding: br").Header().Get("Etag")
	for _, tt := range []struct {
		headers []string
		status  int
		coding  string
		tag     string
		body    string
	}{
		{[]string{"Accept-Encoding: br", "If-None-Match: " + br}, 304, "", br, ""},
		{[]string{"Accept-Encoding: br", "If-None-Match: W/" + br}, 304, "", br, ""},
		{[]string{"Accept-Encoding: br", `If-None-Match: "x", ` + br}, 304, "", br, ""},
		{[]string{"Accept-Encoding: br", "If-None-Match: *"}, 304, "", br, ""},
		{[]string{"Accept-Encoding: br", "If-None-Match: " + own}, 200, "br", br, sheet},
		{[]string{"Accept-Encoding: br", `If-None-Match: "x` + br}, 200, "br", br, sheet},
		{[]string{"If-None-Match: " + own}, 304, "", own, ""},
		{[]string{"If-None-Match: " + br}, 200, "", own, sheet},
		{[]string{"Accept-Encoding: br", "If-Match: " + br}, 200, "br", br, sheet},
		{[]string{"Accept-Encoding: br", "If-Match: " + own}, 200, "", own, sheet},
		{[]string{"Accept-Encoding: br", "If-Match: *"}, 200, "", own, sheet},
		{[]string{"Accept-Encoding: br", `If-Match: "x"`}, 412, "", "", ""},
		{[]string{"Accept-Encoding: br", "Range: bytes=0-9"}, 206, "", own, sheet[:10]},
		{[]string{"Accept-Encoding: br", "Range: bytes=5-9", "If-Range: " + own}, 206, "", own, sheet[5:10]},
		{[]string{"Accept-Encoding: br", "Range: bytes=5-9", "If-Range: " + br}, 200, "", own, sheet},
		{[]string{"Accept-Encoding: br", "Range: bytes=999999-"}, 416, "", "", ""},
	} {
		w := f.ask("site", "GET", "a.css", tt.headers...)
		got := ""
		if w.Code < 300 {
			got = unpack(t, w)
		}
		if h := w.Header(); w.Code != tt.status || got != tt.body || h.Get("Content-Encoding") != tt.coding ||
			tt.tag != "" && h.Get("Etag") != tt.tag ||
			tt.status < 400 && h.Get("Vary") != "Accept-Encoding" {
			t.Errorf("%v: %d, %d bytes, %v; want %d", tt.headers, w.Code, len(got), h, tt.status)
		}
	}
}

// Files that compression doesn't make smaller are sent as they are.
func TestLeftAlone(t *testing.T) {
	t.Parallel()
	f := serve(t, Config{})
	noise := make([]byte, 10_000)
	for i := range noise {
		noise[i] = byte(rand.Uint32())
	}
	for name, text := range map[string]string{
		"short.css": sheet[:least-1],
		"long.css":  strings.Repeat("x", most+1),
		"photo.png": sheet,
		"noise.css": string(noise),
		"empty.css": "",
	} {
		f.write(name, text)
		for range 2 {
			if w := f.ask("site", "GET", name,
				"Accept-Encoding: gzip, br"); w.Code != 200 || w.Header().Get("Content-Encoding") != "" ||
				w.Body.String() != text ||
				strings.Contains(w.Header().Get("Etag"), "br") {
				t.Errorf("%s: %d, %d bytes, %v", name, w.Code, w.Body.Len(), w.Header())
			}
		}
	}
	var none *Copies
	f.copies = none
	if w := f.ask("site", "GET", "photo.png", "Accept-Encoding: br"); w.Code != 200 {
		t.Errorf("without copies: %d", w.Code)
	}
}

// A changed file is served at once under the same name, even if its size and modification time are the same. A deleted
// file isn't served.
func TestChanged(t *testing.T) {
	t.Parallel()
	f := serve(t, Config{})
	f.write("a.css", sheet)
	at := filepath.Join(f.dir, "a.css")
	info, err := os.Stat(at)
	if err != nil {
		t.Fatal(err)
	}
	if got := unpack(t, f.ask("site", "GET", "a.css", "Accept-Encoding: br")); got != sheet {
		t.Fatalf("%d bytes", len(got))
	}
	blue := strings.ReplaceAll(sheet, "red", "hue")
	f.write("b.css", blue)
	if err := os.Chtimes(filepath.Join(f.dir, "b.css"), info.ModTime(), info.ModTime()); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(f.dir, "b.css"), at); err != nil {
		t.Fatal(err)
	}
	if got := unpack(t, f.ask("site", "GET", "a.css", "Accept-Encoding: br")); got != blue {
		t.Errorf("the text before is sent: %.30q", got)
	}
	if err := os.Remove(at); err != nil {
		t.Fatal(err)
	}
	if w := f.ask("site", "GET", "a.css", "Accept-Encoding: br"); w.Code != 404 {
		t.Errorf("a deleted file: %d", w.Code)
	}
}

// A file that has just changed, or that changes while it is read, isn't compressed.
func TestUnsettled(t *testing.T) {
	t.Parallel()
	begun := time.Now()
	f := serve(t, Config{Now: func() time.Time { return begun }})
	f.write("a.css", sheet)
	if w := f.ask("site", "GET", "a.css", "Accept-Encoding: br"); w.Header().Get("Content-Encoding") != "" || len(f.copies.spent) != 0 {
		t.Errorf("a file that has just changed: %v", w.Header())
	}

	f = serve(t, Config{})
	f.write("a.css", sheet)
	file, err := os.Open(filepath.Join(f.dir, "a.css"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	before, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(f.dir, "a.css"), 0o600); err != nil {
		t.Fatal(err)
	}
	now, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	was, _ := stateOf(before, "br")
	is, _ := stateOf(now, "br")
	if was == is { // the same tick of the kernel's clock, in which no server could tell them apart
		was.changed.Nsec--
	}
	if b, err := f.copies.make(t.Context(), File{file, before, "text/css", "site"}, was); err == nil {
		t.Errorf("a file that changed meanwhile: %d bytes", len(b))
	}
	file.Close()
	if w := f.copies.get(t.Context(), File{file, now, "text/css", "site"}, "br"); w != nil {
		t.Error("a file that was closed has a copy")
	}
}

// A site with many files doesn't evict another site's compressed copies, and its compression is limited by its budget.
func TestBounds(t *testing.T) {
	t.Parallel()
	f := serve(t, Config{Bytes: 256 << 10, Share: 64 << 10, Burst: 10 << 20, PerSecond: 1})
	letters := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = 'a' + byte(rand.IntN(20))
		}
		return string(b)
	}
	f.write("quiet.css", letters(8<<10))
	if w := f.ask("quiet", "GET", "quiet.css", "Accept-Encoding: br"); w.Header().Get("Content-Encoding") != "br" {
		t.Fatalf("%v", w.Header())
	}
	as := map[string]int{}
	for i := range 12 {
		name := fmt.Sprint(i, ".css")
		f.write(name, letters(1<<20))
		as[f.ask("loud", "GET", name, "Accept-Encoding: gzip").Header().Get("Content-Encoding")]++
	}
	if as["gzip"] != 10 || as[""] != 2 {
		t.Errorf("of 12 MiB %d files were compressed, %d sent as they are", as["gzip"], as[""])
	}
	for i := range 200 {
		name := fmt.Sprint("small", i, ".css")
		f.write(name, letters(8<<10))
		f.ask(fmt.Sprint("loud", i%3), "GET", name, "Accept-Encoding: gzip")
	}
	if w := f.ask("loud", "GET", "small0.css", "Accept-Encoding: zstd"); w.Header().Get("Content-Encoding") != "" {
		t.Error("a site has more compressed than it may")
	}
	info, err := os.Stat(filepath.Join(f.dir, "quiet.css"))
	if err != nil {
		t.Fatal(err)
	}
	key, _ := stateOf(info, "br")
	if _, ok := f.copies.known.Get(key); !ok {
		t.Error("a quiet site's copy was evicted by other sites")
	}

	// A site's budget refills over time, and the number of sites remembered is bounded.
	now := later()
	c := New(Config{Burst: 100, PerSecond: 10})
	if !c.spend("a", 100, now) || c.spend("a", 1, now) || !c.spend("a", 50, now.Add(5*time.Second)) ||
		c.spend("a", 1, now.Add(5*time.Second)) {
		t.Error("what a site may have compressed is not counted right")
	}
	for i := range 3 * maxSpending {
		c.spend(fmt.Sprint(i), 10, now.Add(time.Duration(i)*time.Second))
	}
	if n := len(c.spent); n > maxSpending {
		t.Errorf("%d sites are remembered", n)
	}
}

// While all compressors are busy, files are sent uncompressed.
func TestBusy(t *testing.T) {
	t.Parallel()
	f := serve(t, Config{AtOnce: 1})
	f.write("a.css", sheet)
	done, ok := f.copies.slots.Try(fair.Who{Owner: "other"})
	if !ok {
		t.Fatal("no compressor is free at first")
	}
	if w := f.ask("site", "GET", "a.css",
		"Accept-Encoding: br"); w.Code != 200 || w.Body.String() != sheet || w.Header().Get("Content-Encoding") != "" {
		t.Errorf("%d, %d bytes, %v", w.Code, w.Body.Len(), w.Header())
	}
	done()
	if w := f.ask("site", "GET", "a.css", "Accept-Encoding: br"); w.Header().Get("Content-Encoding") != "br" {
		t.Errorf("afterwards: %v", w.Header())
	}
}

// Concurrent requests for a file that changes all the time each get one complete version.
func TestMany(t *testing.T) {
	t.Parallel()
	f := serve(t, Config{Burst: 1 << 40})
	text := func(i int) string { return strings.Repeat(fmt.Sprintf("/* %03d */", i), 1000) }
	f.write("a.css", text(0))
	var wg sync.WaitGroup
	for n := range 4 {
		wg.Go(func() {
			for i := range 50 {
				if n == 0 {
					next := filepath.Join(f.dir, "next.css")
					if os.WriteFile(next, []byte(text(i)), 0o644) != nil || os.Rename(next, filepath.Join(f.dir, "a.css")) != nil {
						t.Error("not written")
					}
					continue
				}
				w := f.ask("site", "GET", "a.css", "Accept-Encoding: "+[]string{"", "gzip", "br", "zstd"}[n])
				got := unpack(t, w)
				if w.Code != 200 || len(got) != len(text(0)) || strings.Count(got, got[:9]) != 1000 {
					t.Errorf("%d, %d bytes of %.9q, %v", w.Code, len(got), got, w.Header())
				}
			}
		})
	}
	wg.Wait()
}

// For any Accept-Encoding and conditional headers: a 200 decodes to the file, a response without a body has none, and
// the ETag names the representation.
func FuzzServe(f *testing.F) {
	for _, s := range [][3]string{
		{"br", "", ""},
		{"gzip;q=0.5,*;q=0", `"x-br"`, "bytes=0-1"},
		{"zstd", `W/"x-zstd", *`, "bytes=-5"},
		{"br, gzip", `"`, "bytes=5-1,0-0"},
	} {
		f.Add(s[0], s[1], s[2])
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, accept, tag, spec string) {
		d := &files{t, dir, New(Config{Now: later})}
		d.write("a.css", sheet)
		own := d.ask("site", "GET", "a.css").Header().Get("Etag")
		tag = strings.ReplaceAll(tag, `"x`, own[:len(own)-1])
		headers := []string{"Accept-Encoding: " + accept}
		for name, value := range map[string]string{"If-None-Match": tag, "Range": spec, "If-Match": tag} {
			if value != "" && (name != "If-Match" || len(accept)%2 == 0) {
				headers = append(headers, name+": "+value)
			}
		}
		w := d.ask("site", "GET", "a.css", headers...)
		h := w.Header()
		coding := h.Get("Content-Encoding")
		switch w.Code {
		case 200:
			if got := unpack(t,
				w); got != sheet || coding != "" && h.Get("Etag") != tagOf(own, coding) ||
				coding == "" && h.Get("Etag") != own {
				t.Errorf("%d bytes, %v", len(got), h)
			}
		case 206:
			if coding != "" || !strings.HasPrefix(h.Get("Content-Type"), "multipart/") && !bytes.Contains([]byte(sheet), w.Body.Bytes()) {
				t.Errorf("a range: %q, %v", w.Body, h)
			}
		case 304:
			if w.Body.Len() > 0 || coding != "" {
				t.Errorf("304 with %d bytes, %v", w.Body.Len(), h)
			}
		case 412, 416:
		default:
			t.Errorf("status %d", w.Code)
		}
	})
}
