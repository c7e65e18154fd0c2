package release

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"slipway/internal/build/rules"

	"golang.org/x/net/http/httpguts"
)

// For any rule files and request, an answer's file is part of the release and not hidden, its headers are valid, and a
// redirect is a single-line path of the site or a URL with a host that the rules name.
func FuzzRules(f *testing.F) {
	f.Add("/a/* /b/:splat 301\n/* /index.html 200", "/*\n X-A: :splat\n", "", "", "/a/b%2f//c?x=1", "de,en;q=0.5", "a=1")
	f.Add(
		"https://:x.y/* https://:x.example/:splat 302!\n/ /:z z=:z", "https://:p.y/*\n ! X-A\n Basic-Auth: a:b", "",
		"", "//evil.example/%5c..%00", "", "",
	)
	f.Add(
		"", "", "[[redirects]]\nfrom=\"/x/:y\"\nto=\"/:y\"\nquery={a=\":b\"}\n[serve]\ntrailing_slash=\"always\"",
		`{"redirects":[{"source":"/:a*","destination":"/b/:a*"}],"trailingSlash":true}`, "/x/y", "", "",
	)
	f.Add("/a /b\n/b /a\n/c/* /c/d/:splat", "", "", "", "/c", "", "")
	f.Fuzz(func(t *testing.T, redirects, headers, table, vercel, target, language, cookie string) {
		tree, _ := ruledTree(t, []string{"index.html", "a.html", "b/index.html", "c.txt", "404.html", "index/index.html"},
			map[string]string{
				"_redirects":   redirects,
				"_headers":     headers,
				"netlify.toml": table,
				"slipway.toml": table,
				"vercel.json":  vercel,
			})
		q := rules.Request{Host: "a.y", Language: language, Cookie: cookie}
		q.Path, q.Query, _ = strings.Cut(target, "?")
		a := tree.Resolve(q)
		switch a.Kind {
		case Found, Missing:
			if _, ok := tree.Lookup(a.File.Path); !ok || Hidden(a.File.Path) {
				t.Fatalf("%q names %q", target, a.File.Path)
			}
		case Redirected, Proxied:
			if strings.ContainsFunc(a.Location, func(c rune) bool { return c < ' ' || c == 0x7f || c == '\\' }) {
				t.Fatalf("%q leads to %q", target, a.Location)
			}
			if !rules.IsAddress(a.Location) && (!strings.HasPrefix(a.Location, "/") || strings.HasPrefix(a.Location, "//")) {
				t.Fatalf("%q leads to %q", target, a.Location)
			}
			if rules.IsAddress(a.Location) {
				u, err := url.Parse(a.Location)
				if err == nil && strings.HasSuffix(u.Hostname(), "evil.example") && !strings.Contains(redirects+table+vercel, "evil") {
					t.Fatalf("%q leads to %q", target, a.Location)
				}
			}
		}
		if a.Status < 200 || a.Status > 599 {
			t.Fatalf("%q has status %d", target, a.Status)
		}
		for _, h := range a.Set {
			if !httpguts.ValidHeaderFieldName(h.Name) || !httpguts.ValidHeaderFieldValue(h.Value) {
				t.Fatalf("%q sets %q: %q", target, h.Name, h.Value)
			}
		}
		again, _ := tree.WithRules(nil)
		if b := again.Resolve(q); shown(a) != shown(b) {
			t.Fatalf("%q answers %s, and with the same rules %s", target, shown(a), shown(b))
		}
	})
}

// BenchmarkRules measures a request with a thousand rules: for single paths, with the same first segment (the worst
// case, because each is tried), and with different ones.
func BenchmarkRules(b *testing.B) {
	for name, line := range map[string]string{
		"static":         "/old/page-%d /new/%d\n",
		"same segment":   "/blog/:year/page-%d/* /new/%d/:splat\n",
		"other segments": "/s%d/* /new/%d/:splat\n",
	} {
		var text strings.Builder
		for i := range 1000 {
			fmt.Fprintf(&text, line, i, i)
		}
		tree, problems := ruledTree(b, []string{"index.html", "blog/2020/hello/index.html"}, map[string]string{"_redirects": text.String()})
		if len(problems) > 0 {
			b.Fatal(problems)
		}
		for what, path := range map[string]string{"file": "/blog/2020/hello/", "nothing": "/blog/2020/page-x/y"} {
			b.Run(name+"/"+what, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					tree.Resolve(rules.Request{Path: path, Host: "site.test"})
				}
			})
		}
	}
}
