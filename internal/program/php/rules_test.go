package php

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"slipway/internal/build/htaccess"
)

func ruled(t *testing.T, s *Site, folders map[string]string) {
	t.Helper()
	var list []htaccess.Folder
	for dir, text := range folders {
		f, problems := htaccess.Translate(dir, text)
		for _, p := range problems {
			t.Fatal(p)
		}
		list = append(list, f)
	}
	var err error
	if s.Rules, err = htaccess.Compile(list); err != nil {
		t.Fatal(err)
	}
}

// Rules must be applied before files are looked up: a redirect, a refusal, another file, or the index of a folder. A
// closed file must stay closed at every address that leads to it.
func TestRules(t *testing.T) {
	t.Parallel()
	s := site(t, "public", "public/index.php", "public/css/a.css", "public/start.html", "public/docs/start.html", "public/docs/index.php",
		"public/keys.txt", "public/config.php", "public/blog/index.php", "public/gone.html", "config.php")
	s.Ruled = true
	ruled(t, s, map[string]string{
		"": `DirectoryIndex start.html index.php
ErrorDocument 404 /gone.html
<Files "keys.txt">
Require all denied
</Files>
<Files "config.php">
Require all denied
</Files>
RewriteEngine On
RewriteRule ^v[0-9]+/(.*)$ $1 [L]
RewriteRule ^up/(.*)$ ../$1 [L]
RewriteRule ^old$ css/a.css [R=302,L]
RewriteRule ^shut - [G]
RewriteRule ^page$ index.php [L]`,
		"blog": "RewriteEngine On\nRewriteCond %{REQUEST_FILENAME} !-f\nRewriteRule . index.php [L]",
	})
	for path, want := range map[string]struct {
		status      int
		text, to    string
		byTransport bool // RoundTrip answers and not Serve
	}{
		"/":               {status: 200, text: "public/start.html"},
		"/docs/":          {status: 200, text: "public/docs/start.html"},
		"/css/a.css":      {status: 200, text: "public/css/a.css"},
		"/v12/css/a.css":  {status: 200, text: "public/css/a.css"},
		"/old":            {status: 302, to: "/css/a.css"},
		"/shut":           {status: 410, text: "Gone\n", byTransport: true},
		"/keys.txt":       {status: 404, text: "public/gone.html", byTransport: true},
		"/v1/keys.txt":    {status: 404, text: "public/gone.html", byTransport: true},
		"/config.php":     {status: 404, text: "public/gone.html", byTransport: true},
		"/v1/config.php/": {status: 404, text: "public/gone.html", byTransport: true},
		"/up/config.php":  {status: 404, text: "public/gone.html", byTransport: true},
		"/none.png":       {status: 404, text: "public/gone.html", byTransport: true},
		"/docs":           {status: 301, to: "/docs/", byTransport: true},
		"/v1/docs":        {status: 301, to: "/docs/", byTransport: true},
	} {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		w := httptest.NewRecorder()
		served := s.Serve(w, r)
		status, text, to := w.Code, w.Body.String(), w.Header().Get("Location")
		if !served {
			resp, err := s.RoundTrip(r)
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			b, _ := io.ReadAll(resp.Body)
			status, text, to = resp.StatusCode, string(b), resp.Header.Get("Location")
		}
		if status != want.status || want.to == "" && text != want.text || to != want.to || served == want.byTransport {
			t.Errorf("%s: %d %q %q, served %v", path, status, text, to, served)
		}
	}
	for path, want := range map[string]string{
		"/page": "index.php", "/blog/2024/post": "blog/index.php", "/blog/": "blog/index.php", "/docs/index.php": "docs/index.php",
	} {
		to := s.route(httptest.NewRequest(http.MethodPost, path, nil))
		if script, _, _ := s.script(to.Path); script != want {
			t.Errorf("%s runs %q, want %q", path, script, want)
		}
	}
}

// Rules and closed folders must also apply to a path that cannot be a file.
func TestRulesForOddPaths(t *testing.T) {
	t.Parallel()
	s := site(t, "", "index.php")
	s.Front, s.Closed = "index.php", []string{"secret"}
	ruled(t, s, map[string]string{"": "RewriteEngine On\nRewriteRule ^admin - [F]"})
	for p, want := range map[string]int{
		`/admin/x\`: 403, "/admin/x\x01": 403, "/admin/\ufffd": 403, `/x\/../admin`: 403, "/admin/" + strings.Repeat("a/", 2500): 403,
		`/secret/x\`: 404, "/admin": 403,
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.URL.Path = p
		if s.Serve(httptest.NewRecorder(), r) {
			t.Fatalf("%.30q is served", p)
		}
		if out := s.route(r); want == 403 && out.Status != want {
			t.Errorf("%.30q: the rules answer %d", p, out.Status)
		}
		if script, _, _ := s.script(p); want == 404 && script != "" {
			t.Errorf("%.30q runs %s", p, script)
		}
	}
	for p, want := range map[string]string{`/other/x\`: "index.php"} {
		if script, _, _ := s.script(p); script != want {
			t.Errorf("%q runs %q", p, script)
		}
	}
}

// If rules cannot be compiled, nothing may be served.
func TestBrokenRules(t *testing.T) {
	t.Parallel()
	s := site(t, "", "index.php", "a.txt")
	var err error
	if s.Rules, err = htaccess.Compile([]htaccess.Folder{{Rewrites: true, Rules: []htaccess.Rule{{Pattern: "("}}}}); err == nil {
		t.Fatal("invalid rules were compiled")
	}
	r := httptest.NewRequest(http.MethodGet, "/a.txt", nil)
	if s.Serve(httptest.NewRecorder(), r) {
		t.Error("a file is served")
	}
	if resp, err := s.RoundTrip(r); err != nil || resp.StatusCode != 500 {
		t.Errorf("%v, %v", resp, err)
	}
}
