package fetch

import (
	"strings"
	"testing"

	"slipway/internal/platform/fault"
)

func TestParseRepository(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"git.test/acme/site":                    "git.test/acme/site",
		"https://GitHub.com/Acme/Site.git":      "github.com/Acme/Site",
		"https://github.com/acme/site/":         "github.com/acme/site",
		" https://github.com/acme/site \r\n":    "github.com/acme/site",
		"HTTPS://github.com:443/acme/site.git/": "github.com/acme/site",
		"https://git@github.com/acme/site":      "github.com/acme/site",
		"https://git.test:8443/acme/site":       "git.test:8443/acme/site",
		"ssh://git@git.test/acme/site.git":      "git.test/acme/site",
		"ssh://git@git.test:22/acme/site.git":   "git.test/acme/site",
		"ssh://git@git.test:2222/acme/site.git": "git.test:2222/acme/site",
		"git@github.com:acme/site.git":          "github.com/acme/site",
		"git@git.test:group/sub/site":           "git.test/group/sub/site",
		"gitlab.com/group/sub/deeper/site":      "gitlab.com/group/sub/deeper/site",
		"github.com/acme/.github":               "github.com/acme/.github",
		"git.sr.ht/~user/repo":                  "git.sr.ht/~user/repo",
		"localhost:3000/acme/c++_x.y-z":         "localhost:3000/acme/c++_x.y-z",
		"127.0.0.1/acme/site":                   "127.0.0.1/acme/site",
		"dev.azure.com/org/project/_git/site":   "dev.azure.com/org/project/_git/site",
	} {
		r, err := ParseRepository(in)
		if err != nil || r.String() != want {
			t.Errorf("ParseRepository(%q) = %q, %v; want %q", in, r, err, want)
			continue
		}
		if again, err := ParseRepository(r.String()); err != nil || again != r {
			t.Errorf("%q isn't its own normal form: %q, %v", r, again, err)
		}
	}
}

var hostileRepositories = []string{
	"", " ", "x", "git.test", "git.test/", "git.test/site", "git.test//site", "/acme/site", "../../etc/passwd",
	"git.test/../b", "git.test/a/..", "git.test/a/...", "git.test/a/b..c", "git.test/a/./b", "file:///srv/git/a",
	"/srv/git/a", "ext::sh -c id", "ext::git.test/a/b", "git://git.test/a/b", "http://git.test/a/b",
	"ftp://git.test/a/b", "-oProxyCommand=id/a/b", "git.test/-a/b", "git.test/a/-b", "git.test/a/--upload-pack=x",
	"ssh://-oProxyCommand=id/a/b", "ssh://git@-x/a/b", "-x@git.test:a/b", "git@git.test:/etc/passwd",
	"git@git.test:../b", "git.test/a/b%2e", "git.test/a/b c", "git.test/a\n/b", "git.test/a/b\x00",
	"https://github.com/acme/site/tree/main", "github.com/acme/site/pull/7", "https://gitlab.com/group/sub/site/-/tree/main",
	"git.test/acme/site/src/branch/main", "https://bitbucket.org/acme/site/src/main",
	"git.test/a/b?x=y", "git.test/a/b#x", "git.test/a/b;id", "git.test/a/$(id)", "git.test/a/`id`", "git.test/a/b'c",
	`git.test/a/b\c`, `git.test\a\b`, "git.test/a/b:c", "git.test/a@b/c", "git.test:0/a/b", "git.test:99999/a/b",
	"git.test:abc/a/b", "git.test:-1/a/b", "git.test:022/a/b", "git..test/a/b", ".git.test/a/b", "git.test./a/b",
	"-git.test/a/b", "git_.test/a/b", "[::1]/a/b", "müller.test/a/b", "git.test/a/ö", "git.test/a/.git",
	"git.test/a/.git/b", "git.test/.git/a", "https://user:pass@git.test/a/b", "https://@git.test/a/b",
	"https://git.test/a/b@c:d", "https:///a/b",
	"git.test/" + strings.Repeat("a/", 30) + "b",
	strings.Repeat("a", 600) + "/a/b",
	"https://https://git.test/a/b",
}

// The URL of a page within a repository is refused with the repository's URL in the error, instead of being read as a
// repository called tree/main.
func TestParseRepositoryPages(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"https://github.com/acme/site/tree/main":           "github.com/acme/site; use that and set the branch",
		"https://github.com/acme/site/pull/7":              "github.com/acme/site",
		"https://gitlab.com/group/sub/site/-/tree/feature": "gitlab.com/group/sub/site; use that and set the branch",
		"https://git.test/acme/site/src/branch/main":       "git.test/acme/site; use that and set the branch",
	} {
		if _, err := ParseRepository(in); err == nil || !strings.HasSuffix(fault.As(err).Message, "the repository "+want) {
			t.Errorf("%s: %v, want %s", in, err, want)
		}
	}
}

func TestParseRepositoryRefuses(t *testing.T) {
	t.Parallel()
	for _, in := range hostileRepositories {
		r, err := ParseRepository(in)
		if f := fault.As(err); f == nil || f.Kind != fault.Invalid || r != (Repository{}) {
			t.Errorf("ParseRepository(%q) = %q, %v; want an Invalid fault", in, r, err)
		} else if strings.Contains(in, "pass") && (f.Received == any(in) && strings.Contains(in, ":pass")) {
			t.Errorf("ParseRepository(%q) echoes the password", in)
		}
	}
}

func TestCheckBranch(t *testing.T) {
	t.Parallel()
	for _, ok := range []string{
		"main", "feature/x", "fix-#41", "v1.2.3", "user@topic", "a+b", "0", strings.Repeat("a", 244),
		"#42-x", "fix(ui)", "it's", "feature/über", "a&b", "日本", "+a", "a/-b", "a./b", "a;id", "a$(id)", "a|b", `a"b`, "a`b`", "a%2e", "a{b", "👩‍💻",
	} {
		if err := CheckBranch(ok); err != nil {
			t.Errorf("CheckBranch(%q): %v", ok, err)
		}
	}
	for _, bad := range hostileBranches {
		if err := CheckBranch(bad); !fault.Is(err, fault.Invalid) {
			t.Errorf("CheckBranch(%q) = %v, want an Invalid fault", bad, err)
		}
	}
}

var hostileBranches = []string{
	"", "-x", "--upload-pack=touch PWN;git-upload-pack", "-", "a b", "a..b", "a//b", "a@{1}", "a.lock", "a.lock/b",
	"a/", "a.", "/a", ".a", "a/.b", "a~1", "a^", "a:b", "a?", "a*", "a[", `a\b`,
	"a\nb", "a\x00b", "a\x7fb", "a\u0085b", "a\u2028b", "a\u202eb", "a\xffb", "@", "refs/heads/a:refs/heads/b",
	strings.Repeat("a", 245),
}

// ParseRepository returns a normalized address without characters that a URL, an argument list or a path could misread.
func FuzzParseRepository(f *testing.F) {
	for _, s := range hostileRepositories {
		f.Add(s)
	}
	f.Add("git@git.test:a/b")
	f.Add("https://git.test:8443/a/b.git/")
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ParseRepository(s)
		if err != nil {
			if !fault.Is(err, fault.Invalid) {
				t.Fatalf("%q: %v", s, err)
			}
			return
		}
		n := r.String()
		if again, err := ParseRepository(n); err != nil || again != r {
			t.Fatalf("%q: normal form %q reads as %q, %v", s, n, again, err)
		}
		if strings.ContainsAny(
			n,
			" @%\\'\"`$;&|<>()?#*\n\r\t\x00",
		) || strings.Contains(n, "..") || strings.Contains(n, "//") || strings.HasPrefix(n, "-") || strings.Contains(n, "/-") {
			t.Fatalf("%q: normal form %q", s, n)
		}
	})
}

// A name that CheckBranch accepts is valid for git and never an option.
func FuzzCheckBranch(f *testing.F) {
	for _, s := range hostileBranches {
		f.Add(s)
	}
	f.Add("feature/x")
	f.Fuzz(func(t *testing.T, s string) {
		if CheckBranch(s) != nil {
			return
		}
		if s == "" || s[0] == '-' || strings.ContainsAny(
			s,
			" ~^:?*[\\\x7f",
		) || strings.Contains(s, "..") || strings.Contains(s, "@{") || strings.HasSuffix(s, ".lock") {
			t.Fatalf("%q accepted", s)
		}
	})
}
