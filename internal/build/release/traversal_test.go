package release

import (
	"strings"
	"testing"

	"slipway/internal/build/rules"
)

// No path escapes from a tree: encoded, doubly encoded, with backslashes, NUL, overlong UTF-8, or very long. With and
// without rules that forward the rest of a path, no unpublished file is served, and nothing fails.
func TestTraversal(t *testing.T) {
	t.Parallel()
	corpus := []string{
		"/../etc/passwd", "/..", "/a/../../etc/passwd", "/./.env", "/.env", "/.git/config", "/a/.git/HEAD",
		"/.ssh/id_rsa", "/.well-known/../.env", "/a/.well-known/x", "/%2e%2e/etc/passwd", "/%2e%2e%2fetc%2fpasswd",
		"/..%2f..%2fetc/passwd", "/%2E%2E/%2E%2E/x", "/a/%2e./x", "/.%2e/x", "/%2eenv", "/%2egit/config",
		"/%252e%252e/etc/passwd", "/%252e%252e%252fetc", "/%25%32%65%25%32%65/x", "/..\\..\\windows\\win.ini",
		"/..%5c..%5cwindows", "/a%5c..%5c.env", "/%5c%5cserver%5cshare", "/.%5c.env", "/a%00.html", "/%00",
		"/.env%00.html", "/index.html%00", "/a%0d%0aX: 1", "/%0a", "/%7f", "/\x00", "/%c0%ae%c0%ae/etc", "/%c0%af",
		"/%e0%80%ae", "/%ff%fe", "/%", "/%2", "/%zz", "/a%", "//", "///etc/passwd", "//../x", "/a//../b",
		"/....//....//etc", "/..;/x", "/a;/../x",
		"/" + strings.Repeat("a/", 3000),
		"/" + strings.Repeat("a", 10_000),
		"/" + strings.Repeat("../", 1000),
		"/" + strings.Repeat("%2e%2e/", 1000),
		"", "x", "*", "http://x/", "/_redirects", "/_headers", "/%5fredirects",
	}
	paths := func() []string {
		return []string{"index.html", "a.html", "a/b.txt", "404.html", ".well-known/security.txt"}
	}
	for name, files := range map[string]map[string]string{
		"files": nil,
		"rules": {"_redirects": "/a/* /:splat 200\n/* /:splat 200!\n/:x /:x 200!\n/:a/:b /:b 200!\n", "_headers": "/*\n  X-Path: :splat\n"},
		"moved": {"_redirects": "/* /:splat 302\n/:a/* /:splat 302!\n"},
	} {
		tree, _ := ruledTree(t, paths(), files)
		for _, p := range corpus {
			a := tree.Resolve(rules.Request{Path: p, Host: "site.test"})
			if a.Kind == Found && Hidden(a.File.Path) {
				t.Errorf("%s: %.60q finds %s", name, p, a.File.Path)
			}
			if a.Status < 200 || a.Status >= 500 {
				t.Errorf("%s: %.60q has status %d", name, p, a.Status)
			}
			if a.Kind == Redirected && (!strings.HasPrefix(
				a.Location,
				"/",
			) || strings.HasPrefix(
				a.Location,
				"//",
			) || strings.Contains(a.Location+"/", "/../") || strings.ContainsAny(a.Location, "\\\r\n\x00")) {
				t.Errorf("%s: %.60q leads to %.80q", name, p, a.Location)
			}
			if a.Kind == Found && (strings.Contains(
				p,
				"passwd",
			) || strings.Contains(strings.ToLower(p), "env") || strings.Contains(p, "git")) {
				t.Errorf("%s: %.60q is found: %s", name, p, a.File.Path)
			}
		}
	}
}
