package release

import (
	"bytes"
	"flag"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"slipway/internal/build/rules"
	"slipway/internal/platform/blob"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// tree returns a Tree with these paths, without storing anything.
func tree(t testing.TB, fallback string, paths ...string) *Tree {
	t.Helper()
	slices.Sort(paths)
	var files []File
	for _, p := range paths {
		files = append(files, File{Path: p, Type: "text/html", Body: Content{blob.Sum([]byte(p)), int64(len(p))}})
	}
	tree, _, err := decode(encode(fallback, "", files, make([]string, len(files))))
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func show4(a Answer) string {
	switch a.Kind {
	case Found:
		return "200 " + a.File.Path
	case Redirected:
		return "308 " + a.Location
	case Missing:
		return "404 " + a.File.Path
	}
	return "404"
}

// Each golden file has the tree's paths in "tree", an optional fallback in "fallback", and in "answers" lines with a
// request's path and the expected answer.
func TestResolve(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"clean", "hostile", "fallback"} {
		path := "testdata/resolve/" + name + ".txtar"
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		ar := txtar.Parse(b)
		var paths []string
		var fallback string
		for i := range ar.Files {
			f := &ar.Files[i]
			switch f.Name {
			case "tree":
				paths = strings.Split(strings.TrimSpace(string(f.Data)), "\n")
			case "fallback":
				fallback = strings.TrimSpace(string(f.Data))
			case "answers":
				tree := tree(t, fallback, paths...)
				var got strings.Builder
				for line := range strings.Lines(string(f.Data)) {
					in, _, _ := strings.Cut(strings.TrimSpace(line), " ")
					fmt.Fprintf(&got, "%-28s %s\n", in, show4(tree.Resolve(rules.Request{Path: in})))
				}
				if *update {
					f.Data = []byte(got.String())
				} else if got.String() != string(f.Data) {
					t.Errorf("%s:\n%s\nwant:\n%s", path, got.String(), f.Data)
				}
			}
		}
		if *update {
			if err := os.WriteFile(path, txtar.Format(ar), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Releases of earlier versions may contain PHP source, which no path and no rule serves.
func TestPHPSourceIsNotServed(t *testing.T) {
	t.Parallel()
	paths := []string{"config.php", "inc/a.PHTML", "index.html", "old.php.bak", "php", "x.php.html"}
	tree := tree(t, "index.html", paths...)
	ruled, _ := tree.WithRules(map[string]string{"_redirects": "/show /config.php 200\n/x.php /inc/a.PHTML 200!\n"})
	for path, want := range map[string]string{
		"/config.php": "", "/inc/a.PHTML": "", "/old.php.bak": "", "/show": "", "/php": "php", "/x.php": "x.php.html", "/config": "index.html",
	} {
		if a := tree.Resolve(rules.Request{Path: path}); a.File.Path != want && path != "/show" {
			t.Errorf("%s shows %q, want %q", path, a.File.Path, want)
		}
		if a := ruled.Resolve(rules.Request{Path: path}); PHPSource(a.File.Path) {
			t.Errorf("with rules, %s shows %q", path, a.File.Path)
		}
	}
}

// Resolve returns a visible file of the tree. A redirect stays on the host and leads directly to a file.
func FuzzResolve(f *testing.F) {
	for _, path := range []string{
		"/", "/a", "/a/", "/a.html", "/index", "/b/index.html", "//evil.test/", "/%2e%2e/%2e%2e/etc/passwd",
		"/..%2f..%2fetc", "/%252e%252e/", "/a%00", "/%5c%5cevil", "/b//", "/.env", "/x/404.html", "/%", "", "a",
		"/c%2fd", "/index/", "/a//index.html",
	} {
		f.Add(path, "a.html\nb/index.html\nindex.html\n404.html\nx/404.html\na\nc/d", false)
		f.Add(path, "index.html\nindex\na/index/index.html\na/index.html\nb.html\nb/index.html\nc/index.html.html", true)
	}
	f.Fuzz(func(t *testing.T, path, list string, spa bool) {
		var paths []string
		for p := range strings.SplitSeq(list, "\n") {
			if checkPath(p) == "" && !Hidden(p) && !slices.Contains(paths, p) {
				paths = append(paths, p)
			}
		}
		fallback := ""
		if spa && len(paths) > 0 {
			fallback = paths[0]
		}
		tree := tree(t, fallback, paths...)
		a := tree.Resolve(rules.Request{Path: path})
		switch a.Kind {
		case Found, Missing:
			if f, ok := tree.Lookup(a.File.Path); !ok || f != a.File {
				t.Fatalf("Resolve(%q) names %q, which is not of the tree", path, a.File.Path)
			}
		case Redirected:
			base := &url.URL{Scheme: "https", Host: "site.test", Path: "/"}
			to, err := base.Parse(a.Location)
			if err != nil || to.Host != "site.test" || to.Scheme != "https" || !strings.HasPrefix(
				a.Location,
				"/",
			) || strings.HasPrefix(a.Location, "//") {
				t.Fatalf("Resolve(%q) redirects to %q: %v", path, a.Location, err)
			}
			if b := tree.Resolve(rules.Request{Path: a.Location}); b.Kind != Found {
				t.Fatalf("Resolve(%q) redirects to %q, which is %s", path, a.Location, show4(b))
			}
		default:
			if a.Kind != Nothing || a.Status != 404 || a.File != (File{}) || a.Location != "" {
				t.Fatalf("Resolve(%q) is nothing and says %+v", path, a)
			}
		}
	})
}

func TestMediaType(t *testing.T) {
	t.Parallel()
	for head, want := range map[string]string{
		"":                                 plain,
		"hello\n":                          plain,
		"<html><script>":                   plain, // never an HTML page
		"\x89PNG\r\n\x1a\n":                octets,
		strings.Repeat("ä", 400):           plain,
		"x" + strings.Repeat("ä", 400):     plain,
		string(bytes.Repeat([]byte{0}, 9)): octets,
	} {
		if got := sniff([]byte(head)); got != want {
			t.Errorf("sniff(%.20q) = %q, want %q", head, got, want)
		}
	}
	for ext, kind := range types {
		if strings.ContainsAny(kind, "\r\n") || strings.HasPrefix(kind, "text/") && !strings.HasSuffix(kind, "; charset=utf-8") {
			t.Errorf("%s: %q", ext, kind)
		}
	}
}

// File types for common downloads, whatever the case of their names.
func TestMediaTypesByName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"letter.odt":     "application/vnd.oasis.opendocument.text",
		"sums.ods":       "application/vnd.oasis.opendocument.spreadsheet",
		"places.kml":     "application/vnd.google-earth.kml+xml",
		"places.kmz":     "application/vnd.google-earth.kmz",
		"film.avi":       "video/x-msvideo",
		"film.mkv":       "video/x-matroska",
		"film.mpeg":      "video/mpeg",
		"film.3gp":       "video/3gpp",
		"all.rar":        "application/vnd.rar",
		"page.ps":        "application/postscript",
		"art.psd":        "image/vnd.adobe.photoshop",
		"style.xslt":     "application/xslt+xml",
		"api.wsdl":       "application/wsdl+xml",
		"walk.gpx":       "application/gpx+xml",
		"linux.torrent":  "application/x-bittorrent",
		"LETTER.ODT":     "application/vnd.oasis.opendocument.text",
		"a/b.c/film.MKV": "video/x-matroska",
	} {
		if got, _, _ := strings.Cut(MediaType(name), ";"); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
