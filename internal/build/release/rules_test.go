package release

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"slipway/internal/build/rules"
	"slipway/internal/platform/blob"
)

// The limits of rules in docs/redirects.md.
const (
	maxRedirects = 10_000
	maxDynamic   = 1_000
	maxSame      = 1_000
	maxHeaders   = 500
)

// ruledTree returns a Tree with these files and rule files, without storing anything.
func ruledTree(t testing.TB, paths []string, files map[string]string) (*Tree, []rules.Problem) {
	t.Helper()
	s := rules.Sources{Forward: []string{"api.example.com", "api.mysearch.example", "api.test"}}
	for file, text := range files {
		s.Take(file, []byte(text))
	}
	text, problems := s.Compile()
	slices.Sort(paths)
	var list []File
	for _, p := range slices.Compact(paths) {
		list = append(list, File{Path: p, Type: MediaType(p), Body: Content{blob.Sum([]byte(p)), int64(len(p))}})
	}
	for i := range list {
		if list[i].Type == "" {
			list[i].Type = plain
		}
	}
	tree, _, err := decode(encode("", text, list, make([]string, len(list))))
	if err != nil {
		t.Fatal(err)
	}
	return tree, problems
}

// shown formats an answer as in the tables.
func shown(a Answer) string {
	switch a.Kind {
	case Found, Missing:
		return fmt.Sprintf("%d %s", a.Status, a.File.Path)
	case Redirected:
		return fmt.Sprintf("%d > %s", a.Status, a.Location)
	case Proxied:
		return "proxy > " + a.Location
	}
	return fmt.Sprint(a.Status)
}

// ask parses "/path?query | Language=de | Cookie=a=1 | Host=x".
func ask(line string) rules.Request {
	parts := strings.Split(line, " | ")
	q := rules.Request{Host: "site.test"}
	q.Path, q.Query, _ = strings.Cut(parts[0], "?")
	for _, p := range parts[1:] {
		name, value, _ := strings.Cut(p, "=")
		switch name {
		case "Language":
			q.Language = value
		case "Country":
			q.Country = value
		case "Cookie":
			q.Cookie = value
		case "Host":
			q.Host = value
		}
	}
	return q
}

// Redirects work like the examples in Netlify's and Cloudflare's documentation, and in cases that it doesn't mention.
func TestRedirects(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		rules string
		files string
		want  map[string]string
	}{
		"netlify, basic": {`
# Redirects from what the browser requests to what we serve
/home              /
/blog/my-post.php  /blog/my-post # (could be a comment)
/news              /blog
/cuties            https://www.petsofnetlify.com
/authors/c%C3%A9line  /authors/about-c%C3%A9line`, "index.html", map[string]string{
			"/home":                "301 > /",
			"/home/":               "301 > /",
			"/blog/my-post.php":    "301 > /blog/my-post",
			"/news":                "301 > /blog",
			"/cuties":              "301 > https://www.petsofnetlify.com/",
			"/authors/c%C3%A9line": "301 > /authors/about-c%C3%A9line",
			"/authors/céline":      "301 > /authors/about-c%C3%A9line",
			"/Home":                "404",
			"/home/x":              "404",
		}},
		"netlify, statuses": {
			"/home / 301\n/my-redirect / 302\n/ecommerce /store-closed 404\n/pass-through /index.html 200\n/seven / 307\n/eight / 308\n/three / 303\n/away /gone.html 410\n/secret 404\n",
			"index.html store-closed.html gone.html",
			map[string]string{
				"/home":         "301 > /",
				"/my-redirect":  "302 > /",
				"/ecommerce":    "404 store-closed.html",
				"/pass-through": "200 index.html",
				"/seven":        "307 > /",
				"/eight":        "308 > /",
				"/three":        "303 > /",
				"/away":         "410 gone.html",
				"/gone":         "200 gone.html",
				"/secret":       "404",
				"/":             "200 index.html",
			},
		},
		"netlify, custom 404": {
			"/en/* /en/404.html 404\n/de/* /de/404.html 404\n",
			"en/404.html de/404.html en/a.html 404.html",
			map[string]string{
				"/en/x/y": "404 en/404.html", "/de": "404 de/404.html", "/en/a": "200 en/a.html", "/fr/a": "404 404.html",
			},
		},
		"netlify, splats": {"/news/* /blog/:splat\n/old/* /new/:splat 302\n", "", map[string]string{
			"/news/2004/02/12/my-story": "301 > /blog/2004/02/12/my-story",
			"/news/":                    "301 > /blog/",
			"/news":                     "301 > /blog/",
			"/newspaper":                "404",
			"/old/a%20b/%3F":            "302 > /new/a%20b/%3F",
			"/news/a?x=1&y=2":           "301 > /blog/a?x=1&y=2",
		}},
		"netlify, placeholders": {
			"/news/:month/:date/:year/:slug /blog/:year/:month/:date/:slug\n/img-:id.png /i/:id\n",
			"",
			map[string]string{
				"/news/02/12/2004/my-story":      "301 > /blog/2004/02/12/my-story",
				"/news/02/12/2004":               "404",
				"/news/02/12/2004/my-story/more": "404",
				"/img-7.png":                     "301 > /i/7",
				"/img-.png":                      "404",
			},
		},
		"netlify, query": {`
/store id=:id /blog/:id 301
# base case
/path/* /otherpath/:splat 301
# one value or the other. Must match exactly!
/path/* param1=:value1 /otherpath/:value1/:splat 301
/path/* param2=:value2 /otherpath/:value2/:splat 301
# both values, in any order
/path/* param1=:value1 param2=:value2 /otherpath/:value1/:value2/:splat 301
/articles id=:id tag=:tag /posts/:tag/:id 301
/fixed page=news /news
/ _escaped_fragment_=/about /about 301`, "index.html", map[string]string{
			"/store?id=my-blog-post":    "301 > /blog/my-blog-post",
			"/store":                    "404",
			"/store?ID=1":               "404",
			"/store?id=a%2Fb%20c":       "301 > /blog/a/b%20c",
			"/store?id=1&utm=2":         "301 > /blog/1?utm=2",
			"/path/x":                   "301 > /otherpath/x",
			"/path/x?param1=1":          "301 > /otherpath/1/x",
			"/path/x?param2=2":          "301 > /otherpath/2/x",
			"/path/x?param2=2&param1=1": "301 > /otherpath/1/2/x",
			"/articles?tag=a&id=3":      "301 > /posts/a/3",
			"/articles?id=3":            "404",
			"/fixed?page=news":          "301 > /news",
			"/fixed?page=old":           "404",
			"/":                         "200 index.html",
		}},
		"netlify, trailing slash": {
			"/blog/title /articles/1\n/a/ /b/\n",
			"",
			map[string]string{
				"/blog/title":   "301 > /articles/1",
				"/blog/title/":  "301 > /articles/1",
				"/a":            "301 > /b/",
				"//blog//title": "301 > /articles/1",
			},
		},
		"netlify, shadowing": {
			"/app/* /app/index.html 200\n/there /x 301\n/forced /x 301!\n/* /index.html 200\n",
			"app/index.html there.html forced.html index.html app/a.js",
			map[string]string{
				"/app/users/7":    "200 app/index.html",
				"/app/a.js":       "200 app/a.js",
				"/there":          "200 there.html",
				"/forced":         "301 > /x",
				"/anything/else":  "200 index.html",
				"/users/jane.doe": "200 index.html",
				"/assets/old.js":  "404",
				"/logo.png":       "404",
			},
		}, // a missing asset isn't answered with a page
		"netlify, beyond ASCII": {
			"/a /café#ü 301\n/b https://müller.test/straße?q=ä 301\n/c/* /ziel/:splat 302\n/old /new 301\n",
			"index.html",
			map[string]string{
				"/a":        "301 > /caf%C3%A9#%C3%BC",
				"/b":        "301 > https://xn--mller-kva.test/stra%C3%9Fe?q=%C3%A4",
				"/c/x%20y":  "302 > /ziel/x%20y",
				"/old?q=é":  "301 > /new?q=%C3%A9",
				"/old?a%C3": "301 > /new?a%C3",
			},
		},
		"netlify, language": {
			"/china/* /china/zh-cn/:splat 302 Language=zh\n/ /de 302! Language=de,at\n/one /two 301 Language=en\n",
			"index.html china/zh-cn/a.html",
			map[string]string{
				"/china/a | Language=zh":             "302 > /china/zh-cn/a",
				"/china/a | Language=zh-TW,en;q=0.8": "302 > /china/zh-cn/a",
				"/china/a | Language=en,zh;q=0.8":    "404",
				"/china/a":                           "404",
				"/ | Language=de-AT":                 "302 > /de",
				"/ | Language=fr":                    "200 index.html",
				"/ | Language=fr;q=0.5, de":          "302 > /de",
				"/ | Language=den":                   "200 index.html",
			},
		},
		"netlify, cookie": {
			"/* /preview/:splat 302 Cookie=is_tester,other\n/new/* /preview/:splat 200! Cookie=is_tester\n",
			"index.html preview/news.html new/news.html",
			map[string]string{
				"/news | Cookie=a=1; is_tester=0":       "302 > /preview/news",
				"/news":                                 "404",
				"/news | Cookie=not_is_tester=1":        "404",
				"/nothing | Cookie=is_tester=1":         "302 > /preview/nothing",
				"/preview/nothing | Cookie=is_tester=1": "404",
				"/new/news | Cookie=is_tester=1":        "200 preview/news.html",
				"/new/news | Cookie=x=1":                "200 new/news.html",
			},
		},
		"netlify, country and role": {
			"/ /china 302! Country=cn,hk\n/admin/* /admin/:splat 200! Role=admin\n/admin/* /login 302!\n",
			"index.html admin/index.html",
			map[string]string{
				"/": "200 index.html", "/ | Country=CN": "302 > /china", "/ | Country=DE": "200 index.html", "/admin/": "302 > /login",
			},
		},
		"netlify, domains": {
			"http://blog.site.test/* https://www.site.test/blog/:splat 301!\nhttps://:lang.site.test/* https://www.site.test/:lang/:splat 302\n",
			"index.html",
			map[string]string{
				"/a | Host=blog.site.test": "301 > https://www.site.test/blog/a",
				"/a":                       "404",
				"/a | Host=de.site.test":   "302 > https://www.site.test/de/a",
				"/a | Host=x.de.site.test": "404",
			},
		},
		"netlify, proxy": {"/api/* https://api.example.com/:splat 200\n", "api/there.json", map[string]string{
			"/api/users?a=b":     "proxy > https://api.example.com/users?a=b",
			"/api/there.json":    "200 api/there.json",
			"/api/..%2f..%2fetc": "404",
		}},
		"netlify, real world": {
			"/donate source=:source email=:email /donate/usa?source=:source&email=:email 302\n/test https://www.bitballoon.com/test=hello 301\n/:lang/locations/* /locations/:splat 200\n",
			"locations/a.html",
			map[string]string{
				"/donate?source=a&email=b%26c": "302 > /donate/usa?source=a&email=b%26c",
				"/test":                        "301 > https://www.bitballoon.com/test=hello",
				"/de/locations/a":              "200 locations/a.html",
			},
		},
		"cloudflare": {`
/home301 / 301
/home302 / 302
/querystrings /?query=string 301
/twitch https://twitch.tv
/trailing /trailing/ 301
/notrailing/ /nottrailing 301
/page/ /page2/#fragment 301
/blog/* https://blog.my.domain/:splat
/products/:code/:name /products?code=:code&name=:name`, "", map[string]string{
			"/home301":                  "301 > /",
			"/home302":                  "302 > /",
			"/querystrings":             "301 > /?query=string",
			"/querystrings?query=2&a=1": "301 > /?query=string&a=1",
			"/twitch":                   "301 > https://twitch.tv/",
			"/trailing":                 "404",
			"/notrailing/":              "301 > /nottrailing",
			"/page/":                    "301 > /page2/#fragment",
			"/blog/a/b":                 "301 > https://blog.my.domain/a/b",
			"/products/1/my%20name":     "301 > /products?code=1&name=my+name",
		}},
		"cloudflare, rewrites once": {"/a /b 200\n/b /c 200\n", "b.html c.html", map[string]string{"/a": "200 b.html", "/b": "200 b.html"}},
		"cloudflare, splats inside": {"/*.php /:splat 301\n/x/*/edit /y/:splat\n/u/*/:last /v/:last/:splat\n", "", map[string]string{
			"/a/b.php": "301 > /a/b", "/.php": "301 > /", "/x/a/b/edit": "301 > /y/a/b", "/x/edit": "404", "/u/a/b/c": "301 > /v/c/a/b",
		}},
		"in circles": {
			"/a /b\n/b /a\n/c /c/d\n/e/* /e/x/:splat\n/f/* /f/:splat\n/g /h\n/h /g2\n/self https://site.test/self\n",
			"",
			map[string]string{
				"/a":     "404",
				"/b":     "404",
				"/c":     "301 > /c/d",
				"/e/1":   "301 > /e/x/1",
				"/e/x/1": "404",
				"/f/1":   "404",
				"/g":     "301 > /h",
				"/self":  "404",
			},
		},
		"netlify, below itself": {
			"/israel/* /israel/he/:splat 302 Language=he\n/* /en/:splat 302 Language=en\n",
			"israel/he/a.html",
			map[string]string{
				"/israel/a | Language=he":      "302 > /israel/he/a",
				"/israel/he/a | Language=he":   "200 israel/he/a.html",
				"/israel | Language=he":        "302 > /israel/he/",
				"/israel/he | Language=he":     "404",
				"/israel/hebrew | Language=he": "302 > /israel/he/hebrew",
				"/israel/a":                    "404",
				"/a | Language=en":             "302 > /en/a",
				"/en/a | Language=en":          "404",
			},
		},
		"not off the site": {"/* /:splat 302\n/x/* /:splat\n/to/:host https://:host.example.com/\n", "", map[string]string{
			"//evil.example":         "404",
			"/x//evil.example":       "301 > /evil.example",
			"/x/%2Fevil.example":     "301 > /evil.example",
			"/x/%5Cevil.example":     "404",
			"/to/a":                  "301 > https://a.example.com/",
			"/to/evil.example%2F":    "404",
			"/to/a.b":                "404",
			"/to/a%23":               "404",
			"/x/a%0d%0aSet-Cookie:x": "404",
			"/x/..":                  "404",
			"/x/%2e%2e/y":            "404",
		}},
		"hidden targets": {"/env /.env 200\n/up /../../etc/passwd 200\n/w/* /:splat 200\n", "a.html", map[string]string{
			"/env": "404", "/up": "404", "/w/a": "200 a.html", "/w/.env": "404", "/w/.git/config": "404",
		}},
		"no file there": {
			"/a /nothing.html 200\n/b /nothing.html 404\n",
			"404.html",
			map[string]string{"/a": "404 404.html", "/b": "404 404.html"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tree, _ := ruledTree(t, strings.Fields(tt.files), map[string]string{"_redirects": tt.rules})
			for in, want := range tt.want {
				if got := shown(tree.Resolve(ask(in))); got != want {
					t.Errorf("%s answers %s, want %s", in, got, want)
				}
			}
		})
	}
}

// Ignored lines are reported with their numbers.
func TestProblems(t *testing.T) {
	t.Parallel()
	for file, tt := range map[string]struct{ text, want string }{
		"_redirects": {
			"/ok /b\nno/slash /b\n/a\n/b /c 999\n/c /d 301 Planet=mars\n/d https://x.test 404\n/e/*/* /f\n/f /g 301 302\n/g /h Country=de\n/h /h/\n/i //\\evil\n/j nothing\n/:a/:a /b\n/k /l?a b\n" +
				"/" + strings.Repeat("x", 2100) + " /y\n/p /q\n/q /p\n/api/* https://u:p@x.test/ 200\n",
			"2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18",
		},
		"_headers": {
			"X-Early: 1\n/a\n  X-A: 1\n  nonsense\n  Content-Length: 3\n  Set-Cookie: a=b\n  X-Bad: a\x00b\n/b\n/c/*/*\n  X-C: 1\nnot/a/path:\n! Etag\n",
			"1 4 5 6 7 8 9 11 12",
		},
		"netlify.toml": {
			"[build]\n  command = \"x\"\n[[redirects]]\n  from = \"/a\"\n  to = \"/b\"\n\n[[redirects]]\n  from = \"x\"\n  to = \"/b\"\n[[redirects]]\n  to = \"/b\"\n[[headers]]\n  for = \"nothing\"\n[headers.values]\n  X = \"1\"\n",
			"7 10 12",
		},
		"vercel.json": {
			"{\n\"redirects\": [\n {\"source\": \"/a\", \"destination\": \"/b\"},\n {\"source\": \"/((?!api).*)\", \"destination\": \"/b\"},\n {\"source\": \"/x\", \"destination\": \"/y\", \"has\": [{\"type\": \"header\", \"key\": \"x\"}]}\n]}",
			"4 5",
		},
		"slipway.toml": {"[serve]\nspa = \"yes\"\ntrailing_slash = \"maybe\"\n", "0 0"},
	} {
		_, problems := ruledTree(t, nil, map[string]string{file: tt.text})
		var lines []string
		for _, p := range problems {
			if p.File != file || p.Text == "" {
				t.Errorf("%+v", p)
			}
			lines = append(lines, fmt.Sprint(p.Line))
		}
		slices.SortFunc(lines, func(a, b string) int { return len(a)*1000 - len(b)*1000 + strings.Compare(a, b) })
		want := strings.Fields(tt.want)
		lines = slices.Compact(lines)
		if file == "slipway.toml" {
			want = want[:1]
		}
		if !slices.Equal(lines, want) {
			t.Errorf("%s: lines %v, want %v\n%v", file, lines, want, problems)
		}
	}
}

// Header rules work like the examples in Cloudflare's and Netlify's documentation of _headers.
func TestHeaderRules(t *testing.T) {
	t.Parallel()
	tree, problems := ruledTree(
		t,
		strings.Fields(
			"home.html secure/page.html static/image.jpg static/styles.css templates/index.html movies/alien.html guarded/a.html app/x.html",
		),
		map[string]string{
			"_headers": `
# This is a comment
/secure/page
  X-Frame-Options: DENY
  X-Content-Type-Options: nosniff
  Referrer-Policy: no-referrer

/static/*
  Access-Control-Allow-Origin: *
  X-Robots-Tag: nosnippet

https://myproject.pages.dev/*
  X-Robots-Tag: noindex

/movies/:title
  x-movie-name: You are watching ":title"
https://:project.pages.dev/cors
  Access-Control-Allow-Origin: https://staging.:project.pages.dev/
/templates/index.html
	X-Frame-Options: SAMEORIGIN
/app/*
  Access-Control-Allow-Origin: *
  cache-control: max-age=0
  cache-control: no-cache
  cache-control: no-store
  cache-control: must-revalidate
/app/x
  ! Access-Control-Allow-Origin
/guarded/*
  Basic-Auth: someuser:somepassword anotheruser:anotherpassword
`,
		},
	)
	if len(problems) > 0 {
		t.Error(problems)
	}
	for in, want := range map[string]string{
		"/secure/page | Host=custom.domain":             "X-Frame-Options: DENY; X-Content-Type-Options: nosniff; Referrer-Policy: no-referrer",
		"/static/image.jpg | Host=custom.domain":        "Access-Control-Allow-Origin: *; X-Robots-Tag: nosnippet",
		"/home | Host=myproject.pages.dev":              "X-Robots-Tag: noindex",
		"/secure/page | Host=myproject.pages.dev":       "X-Frame-Options: DENY; X-Content-Type-Options: nosniff; Referrer-Policy: no-referrer; X-Robots-Tag: noindex",
		"/static/styles.css | Host=myproject.pages.dev": "Access-Control-Allow-Origin: *; X-Robots-Tag: nosnippet, noindex",
		"/movies/alien":               `X-Movie-Name: You are watching "alien"`,
		"/cors | Host=blog.pages.dev": "Access-Control-Allow-Origin: https://staging.blog.pages.dev/",
		"/templates/":                 "X-Frame-Options: SAMEORIGIN",
		"/app/y":                      "Access-Control-Allow-Origin: *; Cache-Control: max-age=0, no-cache, no-store, must-revalidate",
		"/app/x":                      "Cache-Control: max-age=0, no-cache, no-store, must-revalidate",
		"/other":                      "",
	} {
		var got []string
		for _, f := range tree.Resolve(ask(in)).Set {
			got = append(got, f.Name+": "+f.Value)
		}
		if s := strings.Join(got, "; "); s != want {
			t.Errorf("%s: %s\nwant %s", in, s, want)
		}
	}
	for _, in := range []string{"/guarded/a", "/guarded//a", "/guarded/a.html", "/%67uarded/a", "/guarded", "/guarded/nothing"} {
		if a := tree.Resolve(ask(in)); len(a.Auth) != 2 {
			t.Errorf("%s is open: %+v", in, a)
		}
	}
	if a := tree.Resolve(ask("/home")); a.Auth != nil {
		t.Error("/home is not")
	}
}

// The same rules work in netlify.toml, slipway.toml and vercel.json.
func TestRuleTables(t *testing.T) {
	t.Parallel()
	table := `
[[redirects]]
  from = "/old-path"
  to = "/new-path"
  status = 302
  force = true
  query = {path = ":path"}
  conditions = {Language = ["en"], Cookie = "beta"}

[[redirects]]
  from = "/news"
  to = "/blog"
[[redirects]]
  from = "/search"
  to = "https://api.mysearch.example"
  status = 200
  force = true
[[headers]]
  for = "/*"
  [headers.values]
    X-Frame-Options = "DENY"
    cache-control = '''
    max-age=0,
    no-cache'''
`
	vercel := `{
  "trailingSlash": false,
  "redirects": [
    { "source": "/me", "destination": "/profile.html", "permanent": false },
    { "source": "/user/:id", "destination": "/new/:id" },
    { "source": "/view/:path*", "destination": "/see/:path*", "statusCode": 301 },
    { "source": "/all/(.*)", "destination": "/$1", "permanent": true },
    { "source": "/q", "has": [{"type": "query", "key": "page", "value": "2"}], "destination": "/two" },
    { "source": "/h", "has": [{"type": "host", "value": "Old.test"}], "destination": "https://new.test/" }
  ],
  "rewrites": [{ "source": "/app/(.*)", "destination": "/index.html" }, {"source": "/api/:path*", "destination": "https://api.test/v1/:path*"}],
  "headers": [{ "source": "/(.*)", "headers": [{ "key": "X-All", "value": "1" }] }]
}`
	for name, tt := range map[string]struct {
		file, text, files string
		want              map[string]string
	}{
		"netlify.toml": {
			"netlify.toml",
			table,
			"old-path.html",
			map[string]string{
				"/old-path?path=1 | Language=en | Cookie=beta=1": "302 > /new-path",
				"/old-path?path=1 | Language=en":                 "200 old-path.html",
				"/news":                                          "301 > /blog",
				"/search?q=a":                                    "proxy > https://api.mysearch.example/?q=a",
			},
		},
		"slipway.toml": {
			"slipway.toml",
			table + "[serve]\ntrailing_slash = \"always\"\n",
			"a.html b/index.html c.txt index.html",
			map[string]string{
				"/news":       "301 > /blog",
				"/a":          "308 > /a/",
				"/a/":         "200 a.html",
				"/a.html?x=1": "308 > /a/?x=1",
				"/b":          "308 > /b/",
				"/b/":         "200 b/index.html",
				"/c.txt":      "200 c.txt",
				"/c.txt/":     "404",
				"/":           "200 index.html",
			},
		},
		"vercel.json": {
			"vercel.json",
			vercel,
			"me.html index.html b/index.html",
			map[string]string{
				"/me":                "307 > /profile.html",
				"/user/7":            "308 > /new/7",
				"/view/a/b":          "301 > /see/a/b",
				"/all/x/y":           "308 > /x/y",
				"/q?page=2":          "308 > /two",
				"/q":                 "404",
				"/h | Host=old.test": "308 > https://new.test/",
				"/h":                 "404",
				"/app/x":             "200 index.html",
				"/api/users":         "proxy > https://api.test/v1/users",
				"/b/":                "308 > /b",
				"/b":                 "200 b/index.html",
			},
		},
	} {
		tree, problems := ruledTree(t, strings.Fields(tt.files), map[string]string{tt.file: tt.text})
		if len(problems) > 0 {
			t.Errorf("%s: %v", name, problems)
		}
		for in, want := range tt.want {
			if got := shown(tree.Resolve(ask(in))); got != want {
				t.Errorf("%s: %s answers %s, want %s", name, in, got, want)
			}
		}
		if a := tree.Resolve(ask("/x")); len(a.Set) == 0 {
			t.Errorf("%s: no headers", name)
		}
	}
}

// A thousand rules that all redirect in circles, or that all set headers, don't make a request more expensive than a
// few.
func TestRuleCosts(t *testing.T) {
	t.Parallel()
	var circles, headers strings.Builder
	for i := range 900 {
		fmt.Fprintf(&circles, "/x/* /x/%d/:splat\n", i)
	}
	for i := range maxHeaders {
		fmt.Fprintf(&headers, "/*\n  X-%d: %s\n  X-Same: %s\n", i, strings.Repeat("a", 500), strings.Repeat("b", 500))
	}
	tree, problems := ruledTree(t, []string{"index.html"}, map[string]string{
		"_redirects": circles.String() + "/x/* /y\n",
		"_headers":   headers.String(),
	})
	if len(problems) != 1 || !strings.Contains(problems[0].String(), "they end before _headers:49") {
		t.Errorf("problems: %v", problems)
	}
	a := tree.Resolve(ask("/x/a"))
	if got := shown(a); got != "404" {
		t.Errorf("after %d rules in circles: %s", maxSkipped, got)
	}
	size := 0
	for _, f := range a.Set {
		size += len(f.Name) + len(f.Value)
	}
	if len(a.Set) > 100 || size > 32<<10 {
		t.Errorf("%d headers of %d bytes", len(a.Set), size)
	}
}

// Header rules that repeat a placeholder are only expanded up to the limit of a response's headers. The test counts
// allocations, so it doesn't run in parallel.
func TestHeaderExpansions(t *testing.T) {
	var headers strings.Builder
	for range 500 {
		fmt.Fprintf(&headers, "/*\n  X: %s\n", strings.Repeat(":splat", 320))
	}
	tree, _ := ruledTree(t, nil, map[string]string{"_headers": headers.String()})
	q := rules.Request{Path: "/" + strings.Repeat("%20a/", 300)}
	if n := testing.AllocsPerRun(1, func() { tree.Resolve(q) }); n > 5000 {
		t.Errorf("a request took %g allocations: each placeholder of each line was expanded", n)
	}
}

// A request is compared with a limited number of rules, also if they redirect in circles.
func TestRuleComparisons(t *testing.T) {
	t.Parallel()
	for name, rule := range map[string]func(i int) string{
		"cookies": func(int) string { return "/x /y 302 Cookie=a\n" },
		"circles by language": func(i int) string {
			return fmt.Sprintf("/x%d /x%d 302 Language=a\n/x/%d/* /:splat/%d 302 Language=a\n", i%100, (i+1)%100, i%7, i%7)
		},
		"placeholders": func(i int) string { return fmt.Sprintf("/:a/%d /y 302 Cookie=a\n", i) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var text strings.Builder
			for i := range maxRedirects / 2 {
				text.WriteString(rule(i))
			}
			tree, _ := ruledTree(t, nil, map[string]string{"_redirects": text.String()})
			for _, path := range []string{"x", "x1", "x/1/1/1/1/1/1/1", "a/b"} {
				v := &rules.Visitor{Left: rules.MaxTried}
				q := rules.Request{Path: "/" + path, Language: "a", Cookie: strings.Repeat(";", 28<<10) + "b=1"}
				tree.ruled(q, v, path, false, false, true)
				if v.Left < 0 {
					t.Errorf("/%s: %d rules over the budget", path, -v.Left)
				}
			}
		})
	}
	old := rules.Rules{} // of a release made without the limit per path
	for range maxRedirects {
		old.Redirects = append(old.Redirects, rules.Redirect{From: "/x", To: "/y", Status: 302, Cookie: []string{"a"}})
	}
	stored, _ := json.Marshal(old)
	set, err := rules.Decode(string(stored))
	if err != nil {
		t.Fatal(err)
	}
	tree := &Tree{rules: set}
	v := &rules.Visitor{Left: rules.MaxTried}
	if tree.ruled(rules.Request{Path: "/x"}, v, "x", false, false, true); v.Left != 0 {
		t.Errorf("%d comparisons are left, want none", v.Left)
	}
}

// Parsing of rule files is limited, and ignored rules are reported.
func TestRuleLimits(t *testing.T) {
	t.Parallel()
	var many, dynamic, headers, same strings.Builder
	for range maxSame + 5 {
		same.WriteString("/a /b 302 Cookie=a\n")
	}
	for i := range maxRedirects + 5 {
		fmt.Fprintf(&many, "/a%d /b%d\n", i, i)
	}
	for i := range maxDynamic + 5 {
		fmt.Fprintf(&dynamic, "/a%d/* /b%d\n", i, i)
	}
	for i := range maxHeaders + 5 {
		fmt.Fprintf(&headers, "/a%d/*\n  X-A: 1\n", i)
	}
	for name, files := range map[string]map[string]string{
		"too many":      {"_redirects": many.String()},
		"too many *":    {"_redirects": dynamic.String()},
		"one path":      {"_redirects": same.String()},
		"headers":       {"_headers": headers.String()},
		"deep":          {"netlify.toml": "redirects = " + strings.Repeat("[", 990) + strings.Repeat("]", 990)},
		"dotted":        {"slipway.toml": "[[redirects]]\n" + strings.Repeat("a.", 990) + "b = 1"},
		"large":         {"netlify.toml": "[[redirects]]\nfrom = \"" + strings.Repeat("x", rules.MaxFile) + "\""},
		"large JSON":    {"vercel.json": `{"redirects":"` + strings.Repeat("x", rules.MaxFile) + `"}`},
		"deep JSON":     {"vercel.json": `{"redirects":` + strings.Repeat("[", 60_000)},
		"another shape": {"vercel.json": `{"redirects": {"a": 1}}`, "netlify.toml": "redirects = 3"},
		"not text":      {"_redirects": "\xff\xfe/\x00a\x00", "_headers": "\xff"},
	} {
		tree, problems := ruledTree(t, []string{"index.html"}, files)
		if len(problems) == 0 {
			t.Errorf("%s: no problem", name)
		}
		if got := shown(tree.Resolve(ask("/"))); got != "200 index.html" {
			t.Errorf("%s: / answers %s", name, got)
		}
	}
}
