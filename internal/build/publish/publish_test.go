package publish

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"slipway/internal/build/framework"
	"slipway/internal/build/release"
	"slipway/internal/build/rules"
	"slipway/internal/git/fetch"
	"slipway/internal/platform/blob"
	"slipway/internal/platform/fault"
)

// links maps symbolic links to their targets; an empty target means a regular file.
type links map[string]string

func (l links) Read(_ context.Context, files []fetch.File, fn func(fetch.File, io.Reader) error) error {
	for _, f := range files {
		if err := fn(f, strings.NewReader(l[f.Path])); err != nil {
			return err
		}
	}
	return nil
}

// PHP source and hidden files are skipped, also under a link's name, with one warning each.
func TestLinksDontOpenWhatIsClosed(t *testing.T) {
	t.Parallel()
	all := []fetch.File{
		{Path: ".private/key", Mode: fetch.ModeFile},
		{Path: "site/a.php", Mode: fetch.ModeFile},
		{Path: "site/copy.txt", Mode: fetch.ModeFile},
		{Path: "site/key.txt", Mode: fetch.ModeSymlink},
		{Path: "site/keys", Mode: fetch.ModeSymlink},
		{Path: "site/link.txt", Mode: fetch.ModeSymlink},
		{Path: "site/z.phtml", Mode: fetch.ModeFile},
	}
	tree := links{"site/key.txt": "../.private/key", "site/keys": "../.private", "site/link.txt": "a.php"}
	var said log
	files, err := resolveLinks(t.Context(), tree, all, "site", said.say)
	var left []string
	for _, f := range files {
		left = append(left, f.Path)
	}
	if want := []string{".private/key", "site/copy.txt"}; err != nil || !slices.Equal(left, want) {
		t.Errorf("left: %v, %v", left, err)
	}
	if len(said) != 2 || !strings.HasPrefix(said[0], `warn: Skipped "site/a.php": PHP source`) || !strings.Contains(said[1], "Skipped 2 files") {
		t.Errorf("said %q", said)
	}
	all = append(all, fetch.File{Path: "site/_headers", Mode: fetch.ModeSymlink})
	slices.SortFunc(all, func(a, b fetch.File) int { return strings.Compare(a.Path, b.Path) })
	tree["site/_headers"] = "missing"
	if _, err := resolveLinks(t.Context(), tree, all, "site", said.say); !fault.Is(err, fault.Invalid) {
		t.Errorf("_headers that leads to nothing: %v", err)
	}
}

// inside accepts only paths below the folder, not paths that only start with its name.
func TestInside(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		folder, name, want string
		ok                 bool
	}{
		{"", "a/b", "a/b", true},
		{"dist", "dist/a", "a", true},
		{"dist", "dist/dist/a", "dist/a", true},
		{"a/b", "a/b/c", "c", true},
		{"dist", "distribution/a", "", false},
		{"dist", "dist", "", false},
		{"dist", "src/dist/a", "", false},
	} {
		if got, ok := inside(tt.folder, tt.name); ok != tt.ok || ok && got != tt.want {
			t.Errorf("%s in %q: %q, %v", tt.name, tt.folder, got, ok)
		}
	}
}

// Only simple names of folders in a wp-content become mounts.
func TestContentName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"themes": true, "mu-plugins": true, "my_plugin.v2": true, strings.Repeat("a", 100): true,
		strings.Repeat("a", 101): false, "a b": false, "a/b": false, "a\nb": false, "ä": false, "a:b": false, `a\b`: false,
	} {
		if got := contentName(name); got != want {
			t.Errorf("%q: %v", name, got)
		}
	}
}

// log collects messages.
type log []string

func (l *log) say(level, format string, args ...any) {
	*l = append(*l, level+": "+fmt.Sprintf(format, args...))
}

// An empty release is an error that names the folder, and problems of rules are logged as warnings.
func TestReport(t *testing.T) {
	t.Parallel()
	var said log
	if _, err := Report(release.Sealed{Files: 3}, errors.New("disk"), "dist", said.say); err == nil || len(said) > 0 {
		t.Errorf("after an error: %v, %q", err, said)
	}
	for folder, want := range map[string]string{"": "the repository contains", "dist": "the folder dist contains"} {
		_, err := Report(release.Sealed{}, nil, folder, said.say)
		if f := fault.As(err); f == nil || f.Kind != fault.Invalid || !strings.HasPrefix(f.Details, want) {
			t.Errorf("%q without files: %v", folder, err)
		}
	}
	rel := release.Sealed{Files: 1, Bytes: 1536, Reused: 0, Problems: []rules.Problem{{}}}
	if got, err := Report(rel, nil, "", said.say); err != nil || got.Files != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	if len(said) != 2 || !strings.HasPrefix(said[0], "warn: ") || said[1] != "info: Published 1 file, 1.5 KiB; 0 unchanged" {
		t.Errorf("said %q", said)
	}
}

// If many files couldn't be fetched, the warning names ten and counts the others.
func TestWarnUnfetched(t *testing.T) {
	t.Parallel()
	var names []string
	for i := range 12 {
		names = append(names, fmt.Sprintf("f%02d.png", i))
	}
	for n, want := range map[int]string{
		0:  "",
		1:  "f00.png",
		10: strings.Join(names[:10], ", "),
		11: "f09.png and 1 more",
		12: "f09.png and 2 more",
	} {
		var said log
		WarnUnfetched(slices.Clone(names[:n]), said.say)
		if (len(said) == 0) != (n == 0) || n > 0 && (!strings.HasSuffix(said[0], want) || strings.Contains(said[0], "f10.png")) {
			t.Errorf("of %d: %q", n, said)
		}
	}
}

func TestSize(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0 bytes", 1023: "1023 bytes", 1024: "1.0 KiB", 1 << 20: "1.0 MiB", 3 << 29: "1.5 GiB"} {
		if got := Size(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}

// commit is an in-memory source tree.
type commit map[string]string

func (c commit) Files(context.Context) (list []fetch.File, err error) {
	for name := range c {
		list = append(list, fetch.File{Path: name, Mode: fetch.ModeFile})
	}
	slices.SortFunc(list, func(a, b fetch.File) int { return strings.Compare(a.Path, b.Path) })
	return list, nil
}

func (c commit) Read(ctx context.Context, files []fetch.File, fn func(fetch.File, io.Reader) error) error {
	return links(c).Read(ctx, files, fn)
}

func (c commit) ReadFile(_ context.Context, name string, _ int64) ([]byte, error) {
	return []byte(c[name]), nil
}

// A WordPress site's repository may contain files for the site's root: files that other services look up there, and
// rules. No other file of the repository is published there.
func TestRootFiles(t *testing.T) {
	t.Parallel()
	const key = "0123456789abcdef0123"
	yes := []string{
		"ads.txt", "app-ads.txt", "robots.txt", "google" + key + ".html", "BingSiteAuth.xml", "pinterest-1ab2c.html", key + ".txt", "favicon.ico",
		"apple-app-site-association", ".well-known/security.txt", ".well-known/apple-app-site-association", ".well-known/pki-validation/x.txt",
		"sogousiteverification.txt",
	}
	no := []string{
		"ads.php", "google" + key + ".php", ".well-known/x.php", ".well-known/x.php.txt.php", ".env", ".git/config", "readme.txt", "README.md", "license.txt",
		"index.html", "notes.txt", "passwords.txt", "composer.json", "package.json", "phpunit.xml", "theme.json", "wp-login.html", "inc/ads.txt", "style.css", "screenshot.png",
		".well-known/acme-challenge/x", ".well-known/.htaccess",
	}
	blobs, err := blob.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct{ at, root, output string }{
		"at the top":           {"", "", "wp-content"},
		"a wp-content":         {"", "", ""},
		"in a folder":          {"site/", "site", "wp-content"},
		"beside its content":   {"web/", "", "web/app"},
		"of a folder's folder": {"site/web/", "site", "web/app"},
	} {
		c := commit{tt.at + "_redirects": "/old /new 301\n", "slipway.toml": ""}
		for _, name := range slices.Concat(yes, no) {
			c[tt.at+name] = "x"
		}
		releases := release.New(release.Config{Blobs: blobs})
		var said log
		rel, err := Release(t.Context(), releases, "", nil, func(w *release.Writer) error {
			return RootFiles(t.Context(), w, c, framework.Plan{Root: tt.root, Output: tt.output}, said.say)
		})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		tree, err := releases.Load(t.Context(), rel.ID)
		if err != nil {
			t.Fatal(err)
		}
		for i, name := range slices.Concat(yes, no) {
			if _, ok := tree.Lookup(name); ok != (i < len(yes)) {
				t.Errorf("%s: %s is at the root: %v", tt.at, name, ok)
			}
		}
		if !tree.Ruled() || rel.Files != len(yes) || len(said) != 1 {
			t.Errorf("%s: rules: %v, %d files, said %q", name, tree.Ruled(), rel.Files, said)
		}
	}
}
