package cli

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"slipway/internal/client/login"
)

// A plan lists the records to change and the pages that differ, and fails if something would go wrong. It changes
// nothing.
func TestDomainsPlan(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	site := func(pages map[string]string) *httptest.Server {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, ok := pages[r.URL.Path]
			if !ok {
				w.WriteHeader(http.StatusNotFound)
			}
			fmt.Fprint(w, strings.ReplaceAll(body, "HOST", r.Host))
		}))
		t.Cleanup(s.Close)
		return s
	}
	before := site(map[string]string{
		"/": "<title>Harbor</title>", "/about": "<title>About \x1b[2J</title>",
		"/sitemap.xml": "<urlset><url><loc>http://HOST/</loc></url><url><loc>http://HOST/about</loc></url></urlset>",
	})
	after := site(map[string]string{"/": "<title>Harbor</title>"})
	verified, problems, status := "valid", "", "pending"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Method + " " + r.URL.Path {
		case "GET /api/v1/sites":
			fmt.Fprintf(w, `{"data": [{"id": "site_1", "name": "Harbor", "slug": "harbor", "url": %q}]}`, after.URL)
		case "GET /api/v1/sites/site_1/domains":
			fmt.Fprint(w, `{"data": [{"id": "dom_1", "name": "harbor.example"}]}`)
		case "GET /api/v1/domains/dom_1":
			fmt.Fprintf(w, `{"id": "dom_1", "name": "harbor.example", "status": %q, "sslStatus": %q,
				"verification": [{"type": "TXT", "name": "_slipway.harbor.example", "value": "slipway-verify=x", "status": %q}],
				"dns": [{"type": "A", "name": "harbor.example", "value": "203.0.113.5", "current": ["192.0.2.1"], "ttl": 3600, "status": "invalid"}],
				"problems": [{"code": "wrong_target", "message": "It points elsewhere"}%s]}`, status, status, verified, problems)
		default:
			t.Errorf("asked for %s %s", r.Method, r.URL)
		}
	}))
	t.Cleanup(server.Close)
	store, err := login.Open()
	if err != nil {
		t.Fatal(err)
	}
	run := func(asJSON bool) (string, error) {
		var out, said bytes.Buffer
		p := planDomain{From: before.URL}
		p.target, p.Site, p.Name = target{Server: server.URL, Token: "slw_x", JSON: asJSON}, "harbor", "harbor.example"
		err := p.Run(t.Context(), &Env{In: strings.NewReader(""), Out: &out, Err: &said, Store: store, Dir: t.TempDir()})
		return out.String(), err
	}
	out, err := run(false)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"pages: 2 compared (of the sitemap), 1 different", `/about: old 200 "About \u001b[2J"; new 404 ""`,
		"A harbor.example: 203.0.113.5, now 192.0.2.1, TTL 3600", "from 3600 to 60 seconds, and wait 60 minutes", "the certificate is issued once the records point here", "To go back, set the records",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the plan lacks %q:\n%s", want, out)
		}
	}
	if strings.Contains(out, "stop:") || strings.Contains(out, "\x1b") {
		t.Errorf("the plan is %q", out)
	}
	if out, err := run(true); err != nil || !strings.Contains(out, `"sslStatus"`) || !strings.Contains(out, `"path": "/about"`) && !strings.Contains(out, `"path":"/about"`) {
		t.Errorf("as JSON: %s, %v", out, err)
	}
	// Problems that prevent the change are reported before it and change the exit status.
	verified = "pending"
	problems = `, {"code": "caa", "message": "CAA records forbid the certificate"}, {"code": "ipv6_mismatch", "message": "AAAA points elsewhere"}`
	out, err = run(false)
	if err == nil || !strings.Contains(err.Error(), "3 problems to solve") {
		t.Errorf("with problems: %v", err)
	}
	for _, want := range []string{"stop: ownership isn't verified", "slipway-verify=x", "stop: CAA records forbid", "stop: AAAA points elsewhere"} {
		if !strings.Contains(out, want) {
			t.Errorf("the plan lacks %q:\n%s", want, out)
		}
	}
	verified, problems, status = "valid", "", "active"
	if out, err := run(false); err != nil || !strings.Contains(out, "active here already") || strings.Contains(out, "records to change") {
		t.Errorf("of an active domain: %v\n%s", err, out)
	}
}
