package edge

import (
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"slipway/internal/db"
)

// pages keeps one page of the program, as packages that serve programs do.
type pages struct {
	*programs
	page  atomic.Pointer[string]
	asked atomic.Int64 // how often it was made
}

func startPages(t *testing.T) *pages {
	p := &pages{}
	text := "page one"
	p.page.Store(&text)
	p.programs = startProgram(t, func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte("program " + r.URL.Path)) }, func(c *Config) {
		c.SessionCookies = []string{"session_"}
		c.HasPages = func(deployment string) bool { return deployment == "dep_1" }
		c.Page = func(deployment, host, path string) (any, func(string) (http.Header, []byte)) {
			page := p.page.Load()
			if deployment != "dep_1" || !strings.HasPrefix(host, "app.sites.test:") || path != "/page" || page == nil {
				return nil, nil
			}
			return page, func(accept string) (http.Header, []byte) {
				p.asked.Add(1)
				body := []byte(*page + " " + accept)
				return http.Header{"Content-Type": {"text/html"}, "Content-Length": {strconv.Itoa(len(body))}}, body
			}
		}
	})
	return p
}

// A page of a program is answered without it, as long as its keeper has it, to visitors
// without a session; all else is the program's.
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

// Nobody who may not see a site sees its pages.
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
