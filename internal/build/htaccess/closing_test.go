package htaccess

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// A deployment fails if a line closes paths and can't be obeyed; otherwise the paths would be open.
func TestClosingLinesFail(t *testing.T) {
	t.Parallel()
	for text, fatal := range map[string]bool{
		"<Files a.php>\nRewriteRule ^ - [F]\n</Files>":                                           true,
		"<If \"true\">\nRedirect 403 /a\n</If>":                                                  true,
		"<If \"true\">\nRedirectMatch gone ^/a\n</If>":                                           true,
		"<If \"true\">\nRedirect 301 /a /b\n</If>":                                               false,
		"<IfModule !mod_rewrite.c>\n<Files a>\nRewriteRule ^ - [F]\n</Files>\n</IfModule>":       false,
		"RewriteRule ^(?=a)b - [C]\nRewriteRule ^ - [F]":                                         true,
		"RewriteCond %{TIME} >1\nRewriteRule ^b - [C]\nRewriteRule c - [C]\nRewriteRule ^ - [F]": true,
		"RewriteRule ^(?=a)b - [C]\nRewriteRule c d\nRewriteRule ^ - [F]":                        false,
		"RewriteRule ^b - [C]\nRewriteRule ^ - [F]":                                              false,
		"SetEnvIf User-Agent bad bad\nRewriteCond %{ENV:bad} =1\nRewriteRule ^ - [F]":            true,
		"RewriteCond %{env:bad} =1\nRewriteRule ^ - [F]\nBrowserMatch bad ok !bad":               true,
		"RewriteRule ^(?=a)b - [E=bad:1]\nRewriteCond %{ENV:bad} =1\nRewriteRule ^ - [F]":        true,
		"SetEnvIf User-Agent bad bad\nRewriteCond %{ENV:bad} =1\nRewriteRule ^ /b":               false,
		"RewriteRule ^a - [E=bad:1]\nRewriteCond %{ENV:bad} =1\nRewriteRule ^ - [F]":             false,
		"Redirect 403 relative":    true,
		"Redirect 301 relative /b": false,
		"Redirect 499 /a":          true,
		"RewriteRule ^a - [R=499]": true,
		"RewriteRule ^a " + strings.Repeat("b", maxRewrite+1) + " [F]": true,
	} {
		if _, problems := Translate("", text); len(problems) > 0 && problems[0].Fatal != fatal || len(problems) == 0 && fatal {
			t.Errorf("%q: %v", text, problems)
		}
	}
}

// A folder that inherits rules from parent folders can't be deployed if these close paths.
func TestInherit(t *testing.T) {
	t.Parallel()
	closing, inherits, plain := "RewriteEngine On\nRewriteRule ^a - [F]\n", "RewriteOptions Inherit\n", "RewriteEngine On\nRewriteRule b c\n"
	for _, tt := range []struct {
		top, sub string
		ok       bool
	}{
		{closing, inherits + plain, false},
		{"RewriteOptions InheritDown\n" + closing, plain, false},
		{closing, plain, true}, // like Apache
		{plain, inherits + plain, true},
		{closing, inherits, true},
	} {
		top, _ := Translate("", tt.top)
		sub, _ := Translate("b", tt.sub)
		if err := Check([]Folder{top, sub}); (err == nil) != tt.ok {
			t.Errorf("%q and %q: %v", tt.top, tt.sub, err)
		}
	}
}

// A problem is reported for each denial that is ignored or closes more than on Apache.
func TestDenialsAreNamed(t *testing.T) {
	t.Parallel()
	for text, named := range map[string]bool{
		"Deny from 192.0.2.1":                  true,
		"Deny from env=bad":                    true,
		"Require not ip 192.0.2.1":             true,
		"Deny from all":                        false,
		"Require all denied":                   false,
		"<FilesMatch \"a{2}\">\n</FilesMatch>": true,
		"<FilesMatch " + strings.Repeat("a", maxPattern+1) + ">\n</FilesMatch>":                                       true,
		strings.Repeat("<FilesMatch "+strings.Repeat("a", maxPattern)+">\n</FilesMatch>\n", 1+maxPatterns/maxPattern): true,
		"<FilesMatch \"^\\.(?!well-known)\">\n</FilesMatch>":                                                          false,
		"<Files \"*.md\">\n</Files>": false,
	} {
		if _, problems := Translate("", text); (len(problems) > 0) != named {
			t.Errorf("%q: %v", text, problems)
		}
	}
}

// A translated pattern matches what it matches in PCRE, and a pattern that closes paths matches at least that.
func TestPatterns(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ pattern, match, not string }{
		{`^(?!a)b|but$`, "", ""},
		{`^(?!a)(b|c)`, "b c", "a"},
		{`[;*+]x`, "+x *x ;x", "x"},
		{`a++b*+c?+`, "ab abbc", "b"},
		{`a\++$`, "a+ a++", "a"},
		{`^[]+*+]+$`, "]+*", "a"},
		{`[[:digit:]*+]z`, "1z +z", "z"},
		{`(^|/)\.(?!well-known)|^adm`, ".git adm/.well-known/x", ".well-known/x"},
	} {
		pattern, but, why := re2(tt.pattern)
		if (why != "") != (tt.match == "") {
			t.Errorf("%s: %q", tt.pattern, why)
		} else if why != "" {
			continue
		}
		sum := 0
		f, err := newForm(pattern, but, false, maxWeight, &sum)
		if err != nil {
			t.Fatal(err)
		}
		a := &asked{}
		for text := range strings.FieldsSeq(tt.match + " " + tt.not) {
			if found, _ := a.find(&f, text); (found != nil) != slices.Contains(strings.Fields(tt.match), text) {
				t.Errorf("%s matches %q: %v", tt.pattern, text, found != nil)
			}
		}
	}
}

// Touches returns true for a file if a rule may answer for it.
func TestTouches(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"RewriteRule ^z - [C]\nRewriteRule ^ - [L]\nRewriteRule \\.png$ - [F]":                              true,
		"RewriteRule ^z - [S=1]\nRewriteRule ^ - [L]\nRewriteRule \\.png$ - [F]":                            true,
		"RewriteRule \\.png$ - [L]\nRewriteRule \\.png$ - [F]":                                              false,
		"RewriteRule \\.png$ - [E=deny:1]\nRewriteCond %{ENV:deny} =1\nRewriteRule ^ - [F]":                 true,
		"RewriteCond %{ENV:REDIRECT_STATUS} 200\nRewriteRule ^ - [F]":                                       false,
		"RewriteCond %{HTTP_HOST}%{QUERY_STRING} ^other\nRewriteRule ^ - [F]":                               true,
		"RewriteCond %{QUERY_STRING} ^other\nRewriteRule ^ - [F]":                                           false,
		"RewriteCond %{DOCUMENT_ROOT}/$1.webp -f\nRewriteRule ^(.*)\\.png$ $1.webp [L]":                     true,
		"RewriteCond %{REQUEST_FILENAME} !-f\nRewriteCond %{REQUEST_FILENAME} !-d\nRewriteRule ^ index.php": false,
		"RewriteCond %{DOCUMENT_ROOT}/img -d\nRewriteRule ^ - [F]":                                          true,
		"RewriteCond %{DOCUMENT_ROOT}/img !-d\nRewriteRule ^ - [F]":                                         false,
	} {
		f, problems := Translate("", text)
		m, err := Compile([]Folder{f})
		if err != nil || len(problems) > 0 {
			t.Fatalf("%q: %v, %v", text, problems, err)
		}
		if got := m.Touches("img/a.png", root); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// Conditions see the visitor's real address and host, whatever the request's headers say.
func TestForgedHeaders(t *testing.T) {
	t.Parallel()
	for text, status := range map[string]int{
		"RewriteCond %{HTTP:X-Forwarded-For} !^203\\.0\\.113\\.9\nRewriteRule ^ - [F]": 403,
		"RewriteCond %{HTTP:x-real-ip} !^203\\.0\\.113\\.9\nRewriteRule ^ - [F]":       403,
		"RewriteCond %{HTTP:X-Forwarded-For} !^192\\.0\\.2\\.1$\nRewriteRule ^ - [F]":  0,
		"RewriteCond %{HTTP_FORWARDED} !203\\.0\\.113\\.9\nRewriteRule ^ - [F]":        403,
		"RewriteCond %{HTTP:X-Forwarded-Host} !^forged\nRewriteRule ^ - [F]":           403,
		"RewriteCond %{HTTP:X-Forwarded-Host} !^site\\.test$\nRewriteRule ^ - [F]":     0,
	} {
		f, problems := Translate("", text)
		m, err := Compile([]Folder{f})
		if err != nil || len(problems) > 0 {
			t.Fatalf("%q: %v, %v", text, problems, err)
		}
		q := request(&url.URL{Scheme: "https", Host: "site.test", Path: "/a"}, "GET", nil)
		q.Header = http.Header{
			"X-Forwarded-For": {"203.0.113.9"}, "X-Real-Ip": {"203.0.113.9"}, "Forwarded": {"for=203.0.113.9"}, "X-Forwarded-Host": {"forged"},
		}
		if out := m.Route(q); out.Status != status {
			t.Errorf("%q: %d", text, out.Status)
		}
	}
}

// Rules that look up too many files return 500, because the next file might close the path.
func TestManyFiles(t *testing.T) {
	t.Parallel()
	f, _ := Translate("", "RewriteCond %{REQUEST_FILENAME} -f\nRewriteRule ^ - [F]")
	m, err := Compile([]Folder{f})
	if err != nil {
		t.Fatal(err)
	}
	for depth, want := range map[int]int{10: 403, maxStats + 10: 500} {
		name := strings.Repeat("a/", depth) + "b.txt"
		out := m.Route(request(&url.URL{Scheme: "https", Host: "site.test", Path: "/" + name}, "GET", []string{name}))
		if out.Status != want {
			t.Errorf("%d folders deep: %d", depth, out.Status)
		}
	}
}
