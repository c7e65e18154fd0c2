package edge

import (
	"context"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"slipway/internal/platform/id"

	"slipway/internal/edge/compress"
	"slipway/internal/edge/endpoint"
	"slipway/internal/platform/db"
	"slipway/internal/program/php"
)

// pages is a Source with one cached page and one file, like the packages in front of programs.
type pages struct {
	*programs
	page  atomic.Pointer[string]
	file  atomic.Pointer[string]
	sent  atomic.Int64 // times that the file was read
	read  atomic.Int64 // bytes read from the file
	files atomic.Int64 // programs acquired for the file
}

func startPages(t *testing.T) *pages {
	p := &pages{}
	text := "page one"
	p.page.Store(&text)
	p.programs = startProgram(
		t,
		func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte("program " + r.URL.Path)) },
		func(c *Config) {
			p.programs = c.Programs["node"].(*programs)
			c.Programs["node"] = p
		},
	)
	return p
}

// File implements endpoint.Pages.
func (p *pages) File(_ id.Deployment, _, path string) (*endpoint.Endpoint, bool) {
	text := p.file.Load()
	if path != "/style.css" || text == nil {
		return nil, false
	}
	p.files.Add(1)
	return &endpoint.Endpoint{Release: func() { p.files.Add(-1) }, Serve: func(w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("Etag", strconv.Quote(*text))
		if r.Header.Get("If-None-Match") != strconv.Quote(*text) {
			p.sent.Add(1)
		}
		http.ServeContent(w, r, r.URL.Path, time.Time{}, &counted{*strings.NewReader(strings.Repeat(*text, 100_000)), &p.read})
		return true
	}}, true
}

// SessionCookies implements endpoint.Pages.
func (p *pages) SessionCookies(id.Deployment) []string { return []string{"session_"} }

// Page implements endpoint.Pages.
func (p *pages) Page(deployment id.Deployment, host, path string) (any, func(string) (http.Header, []byte)) {
	page := p.page.Load()
	if deployment != "dep_1" || !strings.HasPrefix(host, "app.sites.test:") || path != "/page" || page == nil {
		return nil, nil
	}
	return page, func(accept string) (http.Header, []byte) {
		body := []byte(*page + " " + accept)
		return http.Header{"Content-Type": {"text/html"}, "Content-Length": {strconv.Itoa(len(body))}}, body
	}
}

// phpFiles has files but no cached page.
type phpFiles struct {
	*programs
	site *php.Site
}

func (f phpFiles) Page(id.Deployment, string, string) (any, func(string) (http.Header, []byte)) {
	return nil, nil
}
func (f phpFiles) SessionCookies(id.Deployment) []string { return nil }
func (f phpFiles) File(id.Deployment, string, string) (*endpoint.Endpoint, bool) {
	return &endpoint.Endpoint{Release: func() {}, Serve: f.site.Serve}, true
}

// counted counts the bytes read.
type counted struct {
	strings.Reader
	n *atomic.Int64
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.n.Add(int64(n))
	return n, err
}

// While a program's page is cached, visitors without a session get it without a request to the program. All other
// requests go to the program.
func TestProgramPages(t *testing.T) {
	t.Parallel()
	p := startPages(t)
	const at = "https://app.sites.test"
	says := func(want, path string, headers ...string) {
		t.Helper()
		if got := p.get(at+path, headers...); got.status != 200 || got.body != want {
			t.Errorf("%s %v: %d %q, want %q", path, headers, got.status, got.body, want)
		}
	}
	says("page one gzip, br", "/page", "Accept-Encoding: gzip, br")
	says("page one ", "/page")
	says("page one ", "/page", "Cookie: a=b; c=d")
	says("program /page", "/page", "Cookie: a=b; session_1=d")
	says("program /page", "/page?x=1")
	says("program /page", "/p%61ge")
	says("program /other", "/other")
	if got := p.do(http.MethodPost, at+"/page"); got.body != "program /page" {
		t.Errorf("POST: %q", got.body)
	}
	if got := p.do(http.MethodHead, at+"/page"); got.status != 200 || got.header.Get("Content-Length") != "9" {
		t.Errorf("HEAD: %d %v", got.status, got.header)
	}
	if p.held.Load() != 0 {
		t.Error("a program is still held")
	}

	two := "page two"
	p.page.Store(&two)
	says("page two ", "/page")
	p.page.Store(nil)
	says("program /page", "/page")
}

// A program's file is read once and revalidated on every request.
func TestProgramPagesFiles(t *testing.T) {
	t.Parallel()
	p := startPages(t)
	const at = "https://app.sites.test/style.css"
	if got := p.get(at); got.body != "program /style.css" {
		t.Fatalf("%d %.80q", got.status, got.body)
	}
	for n, text := range []string{"one", "two"} {
		p.file.Store(&text)
		for range 3 {
			got := p.get(at, "Cookie: session_1=x")
			if got.status != 200 || got.body != strings.Repeat(text, 100_000) ||
				got.header.Get("Content-Type") != "text/css; charset=utf-8" {
				t.Errorf("%d %.20q of %d bytes, %v", got.status, got.body, len(got.body), got.header)
			}
		}
		if got := p.get(at, `If-None-Match: "`+text+`"`); got.status != http.StatusNotModified || got.body != "" {
			t.Errorf("who has it: %d %.20q", got.status, got.body)
		}
		if p.sent.Load() != int64(n+1) {
			t.Errorf("%q was read %d times", text, p.sent.Load()-int64(n))
		}
	}
	long := strings.Repeat("12345678901", 1)
	p.file.Store(&long) // a file over 1 MiB is left to the program
	p.read.Store(0)
	if got := p.get(at); got.body != "program /style.css" || p.read.Load() > 64<<10 {
		t.Errorf("a long file: %d, %d bytes, of which %d were read in vain", got.status, len(got.body), p.read.Load())
	}
	if p.files.Load()+p.held.Load() != 0 {
		t.Error("a program is still held")
	}
}

// Visitors get such a file in an encoding that they accept.
func TestProgramPagesFilesCompressed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/style.css", []byte(strings.Repeat("a { color: red }\n", 1000)), 0o644); err != nil {
		t.Fatal(err)
	}
	site := php.Site{
		Name:   "site_1",
		Open:   func(name string) (*os.File, bool, error) { f, err := os.Open(dir + "/" + name); return f, true, err },
		Copies: compress.New(compress.Config{Now: func() time.Time { return time.Now().Add(time.Hour) }}),
	}
	p := startProgram(t, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusTeapot) }, func(c *Config) {
		c.Programs["node"] = phpFiles{c.Programs["node"].(*programs), &site}
	})
	const at = "https://app.sites.test/style.css"
	tags := map[string]string{}
	for range 3 {
		for _, accept := range []string{"", "gzip", "br", "zstd", "gzip, br, zstd", "gzip, deflate, br"} {
			want := accept
			if strings.Contains(accept, ",") {
				want = "br"
			}
			got := p.get(at, "Accept-Encoding: "+accept)
			if got.status != 200 || got.header.Get("Content-Encoding") != want || got.header.Get("Vary") != "Accept-Encoding" ||
				(want == "") != (len(got.body) == 17_000) {
				t.Errorf("%q: %d, %d bytes, %v", accept, got.status, len(got.body), got.header)
			}
			tag := got.header.Get("Etag")
			if tags[want] != "" && tags[want] != tag {
				t.Errorf("%q: tag %s, before %s", accept, tag, tags[want])
			}
			tags[want] = tag
			if again := p.get(at, "Accept-Encoding: "+accept,
				"If-None-Match: "+tag); again.status != http.StatusNotModified || again.header.Get("Etag") != tag ||
				again.header.Get("Vary") != "Accept-Encoding" {
				t.Errorf("%q, who has it: %d %v", accept, again.status, again.header)
			}
		}
	}
	if len(tags) != 4 {
		t.Errorf("%v", tags)
	}
}

// A cached page isn't served while its site is protected or stopped.
func TestProgramPagesAreProtected(t *testing.T) {
	t.Parallel()
	p := startPages(t)
	if got := p.get("https://app.sites.test/page"); got.body != "page one " {
		t.Fatalf("%q", got.body)
	}
	err := p.DB.Write(t.Context(), func(tx *db.Tx) error {
		tx.Notify("live")
		_, err := tx.Exec(t.Context(), `UPDATE live SET state = 'stopped', version = $1`, p.version.Add(1))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	p.until("it is stopped", func() bool { return p.table.hosts().find("app").state == stateStopped })
	if got := p.get("https://app.sites.test/page"); strings.Contains(got.body, "page one") || got.status == 200 {
		t.Errorf("a stopped site: %d %.80q", got.status, got.body)
	}
}

// Vouches implements endpoint.Voucher.
func (p *pages) Vouches(_ context.Context, deployment id.Deployment, r *http.Request) bool {
	return deployment == "dep_1" && r.Header.Get("Own") == "mine"
}

// A site's requests to itself need no password.
func TestSiteReachesItself(t *testing.T) {
	t.Parallel()
	p := startPages(t)
	p.settle("s1", `{"protection":"all","hash":"hash of right horse"}`)
	const at = "https://app.sites.test/x"
	p.until("it is protected", func() bool { return p.get(at).status == 401 })
	p.get(at, "Own: mine").want(t, 200, "program /x")
	p.get(at, "Own: another's").want(t, 401, "This site is protected")
}
