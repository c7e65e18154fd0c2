package htaccess

import (
	"net/url"
	"strings"
	"testing"
)

// A project's rules are limited: a file that is too long fails the deployment, and rules that take too long return 500.
func TestBounds(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		text  string
		fatal bool
	}{
		"long":              {strings.Repeat("# a comment\n", 6000), true},
		"many":              {strings.Repeat("Redirect /a /b\n", maxRules+1), true},
		"repetitions":       {"RewriteRule ^((a{1000}){1000}){1000}$ x.php", false},
		"closing, and such": {"RewriteRule ^((a{1000}){1000}){1000}$ - [F]", true},
		"a long pattern":    {"RewriteRule " + strings.Repeat("a", maxRewrite+1) + " - [F]", true},
		"not a pattern":     {"RewriteRule ^( - [R=404]", true},
		"a long redirect":   {"RedirectMatch 403 " + strings.Repeat("a", maxRewrite+1), true},
	} {
		f, problems := Translate("", tt.text)
		if len(problems) == 0 || problems[0].Fatal != tt.fatal {
			t.Errorf("%s: %v", name, problems)
		}
		if _, err := Compile([]Folder{f}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Compile(func() (list []Folder) {
		for range 200 {
			f, _ := Translate("", strings.Repeat("RewriteRule ^"+strings.Repeat("a", 1000)+"$ x\n", 10))
			list = append(list, f)
		}
		return list
	}()); err == nil {
		t.Error("patterns over the limit were compiled")
	}
	for name, text := range map[string]string{
		"circle":     "RewriteRule ^(.*)$ $1x [L]",
		"next":       "RewriteRule ^(.*)$ $1x [N]",
		"many rules": strings.Repeat("RewriteRule (a*)*b - [L]\n", maxRules-1) + "RewriteRule ^(.*)$ $1a [L]",
		"growing":    "RewriteRule ^(.*)$ $1$1$1$1$1$1$1$1 [N]",
		"many files": strings.Repeat("RewriteCond %{REQUEST_FILENAME}%{REQUEST_URI} -f\nRewriteRule ^ x\n", 900) + "RewriteRule ^(.*)$ $1a [L]",
		"a query":    "RewriteRule ^(.*)$ /x?%{QUERY_STRING}%{QUERY_STRING}%{QUERY_STRING}a [L]\nRewriteRule ^ /y",
	} {
		f, problems := Translate("", text)
		m, err := Compile([]Folder{f})
		if err != nil || len(problems) > 0 {
			t.Fatalf("%s: %v, %v", name, problems, err)
		}
		var stats counted
		q := request(&url.URL{Scheme: "https", Host: "site.test", Path: "/" + strings.Repeat("a", 4000), RawQuery: strings.Repeat("q", 4000)}, "GET", nil)
		q.Files = &stats
		out := m.Route(q)
		if out.Status != 500 && name != "a query" || len(out.Query) > 2*maxURL || len(out.Path) > maxURL {
			t.Errorf("%s: %d, a path of %d bytes", name, out.Status, len(out.Path))
		}
		if stats > maxStats+1 {
			t.Errorf("%s: %d files are asked for", name, stats)
		}
	}
}

// Too many sections fail a deployment. If a stored file has too many, its folder, or for a file in the root the whole
// site, is closed, but no other folder is affected.
func TestTooManySections(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("<Files x>\n</Files>\n", maxSections+1) + "Deny from all"
	if f, problems := Translate("", text); len(problems) == 0 || !problems[0].Fatal || f.Access == "" {
		t.Errorf("too many sections give no fatal error: %v", problems)
	}
	if m, err := Compile([]Folder{{Access: text}}); err == nil || !m.Hides("a.txt") {
		t.Errorf("at the top: %v", err)
	}
	m, err := Compile([]Folder{{Path: "b", Access: text}})
	if err != nil || !m.Hides("b/a.txt") || m.Hides("a.txt") {
		t.Errorf("in a folder: %v", err)
	}
	if !Hides("", "a.txt", func(string) *Rules { return Parse(text) }) {
		t.Error("it closes nothing")
	}
}

// The limit for a request counts the size of patterns, not only of the text. Usual rules are far below it.
func TestWork(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		text        string
		path, query int // bytes
		status      int
	}{
		"repetitions":            {"RewriteRule (a?b?c?){1000}$ -", 4000, 0, 500},
		"a repeated condition":   {strings.Repeat("RewriteCond %{QUERY_STRING} (a?b?c?){1000}$\nRewriteRule ^ -\n", 50), 10, 100, 500},
		"optional characters":    {"RewriteRule " + strings.Repeat("a?", 1000) + "$ -", 4000, 0, 500},
		"groups":                 {"RedirectMatch " + strings.Repeat("(a?)", 500) + "$ /x", 1000, 0, 500},
		"a small text":           {"RewriteRule (a?b?c?){1000}$ -", 100, 0, 0},
		"redirects of old sites": {strings.Repeat("RewriteRule ^old/page-12$ /new [R=301,L]\n", 1300), 400, 0, 0},
		"a firewall": {strings.Repeat("RewriteCond %{QUERY_STRING} (globals|mosconfig|boot\\.ini|loopback|\\.\\./|(<|%3C).*script.*(>|%3E)|"+
			"(ftp|https?):|base64_(en|de)code|select.*from|union.*all|etc/passwd|self/environ|eval\\() [NC,OR]\n", 25) +
			"RewriteCond %{HTTP_USER_AGENT} (acunetix|libwww|nikto) [NC]\nRewriteRule ^ - [F]", 30, 1000, 0},
	} {
		f, problems := Translate("", tt.text)
		m, err := Compile([]Folder{f})
		if err != nil || len(problems) > 0 {
			t.Fatalf("%s: %v, %v", name, problems, err)
		}
		q := request(&url.URL{Scheme: "https", Host: "site.test", Path: "/" + strings.Repeat("a", tt.path), RawQuery: strings.Repeat("a", tt.query)}, "GET", nil)
		if out := m.Route(q); out.Status != tt.status {
			t.Errorf("%s: %d, want %d", name, out.Status, tt.status)
		}
	}
}

// The patterns of several folders together have a limit, above which a file counts as closed. Names that are too long
// for a file aren't matched.
func TestWorkOfNames(t *testing.T) {
	t.Parallel()
	section := "<FilesMatch ^" + strings.Repeat("a?", 200) + "$>\nDeny from all\n</FilesMatch>\n"
	large, small := Parse(strings.Repeat(section, 9)), Parse(section)
	file := strings.Repeat("b/", 100) + strings.Repeat("b", 200)
	if !Hides("", file, func(string) *Rules { return large }) {
		t.Error("Hides evaluates a hundred large .htaccess files for one name")
	}
	for name, want := range map[string]bool{"b.txt": false, "aaa": true, "b/aaa": true, strings.Repeat("b", 255): false, strings.Repeat("a", 4000): false} {
		if got := Hides("", name, func(string) *Rules { return small }); got != want {
			t.Errorf("%.20s: %v", name, got)
		}
	}
}

// The limit for patterns in new deployments is lower than the one for stored rules.
func TestNewPatterns(t *testing.T) {
	t.Parallel()
	f, _ := Translate("", strings.Repeat("RewriteRule ^(a{10}){100}$ x\n", maxNewWeight/8000))
	if err := Check([]Folder{f}); err == nil {
		t.Error("patterns over the limit were accepted")
	}
	if _, err := Compile([]Folder{f}); err != nil {
		t.Errorf("stored patterns over the limit can no longer be compiled: %v", err)
	}
}

// Empty words are patterns that match everything, or no directives.
func TestEmptyWords(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"\"\"\n\"\nRewriteRule ^a$ /b":                            "/b",
		"RewriteCond %{HTTP_REFERER} \"\"\nRewriteRule ^a$ /b":    "/b",
		"RewriteCond %{REQUEST_URI} \"!\"\nRewriteRule ^a$ - [F]": "403",
		"RewriteRule \"\" - [F]":                                  "403",
		"RedirectMatch 403 \"\"":                                  "403",
		"RedirectMatch 403 (?=x)":                                 "403",
	} {
		f, problems := Translate("", text)
		m, err := Compile([]Folder{f})
		if err != nil || len(problems) > 0 && problems[0].Fatal {
			t.Fatalf("%q: %v, %v", text, problems, err)
		}
		if got := ask(t, m, nil, "/a"); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

// counted has no files, and counts the lookups.
type counted int

func (c *counted) Stat(string) Kind { *c++; return Nothing }

// A redirect doesn't lead to its own URL, and its path can't lead to another host.
func TestRedirectsEnd(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"RewriteRule (.*) https://site.test/$1 [R=301,L]":                                      "/a",
		"RewriteRule (.*) http://SITE.test/$1 [R=301,L]":                                       "/a",
		"RewriteRule (.*) /$1 [R,L]":                                                           "/a",
		"Redirect / https://site.test/":                                                        "/a",
		"RewriteCond %{HTTPS} off\nRewriteRule (.*) https://x.test/$1 [R]":                     "/a",
		"RewriteCond %{HTTP:X-Forwarded-Proto} !https\nRewriteRule (.*) https://x.test/$1 [R]": "/a",
		"RewriteCond %{SERVER_PORT} !^443$\nRewriteRule (.*) https://x.test/$1 [R]":            "/a",
		"RewriteRule ^(.*)$ //evil.test/$1 [R,L]":                                              "302 /evil.test/a",
		"RewriteRule ^(.*)$ /\\\\evil.test/$1 [R,L]":                                           "302 /evil.test/a",
		"RedirectMatch ^/(.*)$ //evil.test/$1":                                                 "302 /evil.test/a",
		"RewriteRule ^(.*)$ \"/b c?x=%{HTTP_USER_AGENT}\" [R,L]":                               "302 /b%20c?x=",
		"RewriteRule ^(.*)$ /c%d#e [R,L]":                                                      "302 /c%25d%23e",
		"RewriteRule ^(.*)$ /c#e [R,NE,L]":                                                     "302 /c#e",
		"RewriteRule ^(.*)$ https://other.test/x?y=z [L]":                                      "302 https://other.test/x?y=z",
		"RewriteEngine Off\nRewriteRule ^ /x [R]":                                              "/a",
		"<IfModule !mod_rewrite.c>\nRewriteRule ^ /x [R]\n</IfModule>\n<IfModule mod_rewrite.c>\nRewriteRule a c\n</IfModule>": "/c",
	} {
		f, problems := Translate("", text)
		m, err := Compile([]Folder{f})
		if err != nil || len(problems) > 0 {
			t.Fatalf("%q: %v, %v", text, problems, err)
		}
		if got := ask(t, m, nil, "/a"); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

// For any file and request, nothing panics, and redirects stay valid.
func FuzzRoute(f *testing.F) {
	f.Add("RewriteRule ^(.*)$ index.php?a=$1 [QSA,L]\nRedirect 301 /a /b", "/x", "y=z")
	f.Add("<Files ~ \"[\">\nDeny from all\n</Files>\nRewriteCond %{HTTP:X %{ENV: [OR]\nRewriteRule !(?! %9$9 [S=3,C]", "/..//", "?")
	f.Add("\"\"\n\"\n\"\" a\nRewriteCond %{HTTP_REFERER} \"\"\nRewriteRule \"\" \"\"\nRedirect \"\" \"\"\nRedirectMatch 403 \"\"", "/c", "")
	f.Add("RewriteCond %{HTTP_REFERER} !\nRewriteRule ! - [F]\nRedirectMatch 403 (?=x)\nErrorDocument \"\" \"\"\nSetEnv \"\"", "/c", "")
	f.Fuzz(func(t *testing.T, text, path, query string) {
		folder, _ := Translate("a", text)
		m, err := Compile([]Folder{folder})
		if err != nil {
			return
		}
		q := request(&url.URL{Scheme: "https", Host: "site.test", Path: path, RawQuery: query}, "GET", []string{"a/b", "c"})
		q.Path = clean(q.Path)
		if out := m.Route(q); strings.HasPrefix(out.Location, "//") || strings.ContainsAny(out.Location, "\r\n") {
			t.Errorf("the rules redirect to %q", out.Location)
		}
		m.Touches("a/b", root)
		m.Touches("c", root)
	})
}
