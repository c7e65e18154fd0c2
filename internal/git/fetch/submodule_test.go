package fetch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"slipway/internal/platform/id"

	"slipway/internal/platform/fault"

	"github.com/google/go-cmp/cmp"
)

// link commits a submodule at path that points to a commit, declared with url.
func (h *host) link(t testing.TB, repo, path, commit, url string) string {
	t.Helper()
	work := filepath.Join(h.root, repo+".work")
	run(t, work, "git", "update-index", "--add", "--cacheinfo", "160000,"+commit+","+path)
	f, err := os.OpenFile(filepath.Join(work, ".gitmodules"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString("[submodule \"" + path + "\"]\n\tpath = " + path + "\n\turl = " + url + "\n"); err != nil {
		t.Fatal(err)
	}
	run(t, work, "git", "add", ".gitmodules")
	run(t, work, "git", "commit", "-q", "-m", "link")
	run(t, work, "git", "push", "-q", "-f", "origin", "HEAD")
	return strings.TrimSpace(run(t, work, "git", "rev-parse", "HEAD"))
}

// Submodules, including nested ones, are fetched at the recorded commit: from the same host with the site's credential,
// from other hosts without it.
func TestSubmodules(t *testing.T) {
	t.Parallel()
	h, other := newHost(t), newHost(t)
	s := open(t, h, func(c *Config) { c.Hosts["other.test"] = other.URL })
	icons := other.commit(t, "pub/icons", "main", map[string]string{"icon.svg": "<svg/>"})
	other.commit(t, "pub/icons", "main", map[string]string{"icon.svg": "newer"})
	h.commit(t, "acme/private-theme", "main", map[string]string{"layout.html": "layout"})
	theme := h.link(t, "acme/private-theme", "assets/icons", icons, "https://other.test/pub/icons.git")
	h.commit(t, "acme/private", "main", map[string]string{"index.html": "home"})
	h.link(t, "acme/private", "themes/x", theme, "../private-theme.git")

	r := Request{
		Site:       "site",
		Repository: repo(t, "git.test/acme/private"),
		Branch:     "main",
		Credential: &Credential{Token: token, Host: "git.test"},
	}
	for range 2 { // the second time from the caches
		tree := fetch(t, s, r)
		want := map[string]string{"index.html": "home", "themes/x/layout.html": "layout", "themes/x/assets/icons/icon.svg": "<svg/>"}
		got := contents(t, tree)
		for name := range got {
			if strings.HasSuffix(name, ".gitmodules") {
				delete(got, name)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("files (-want +got)\n%s", diff)
		}
		dir := filepath.Join(t.TempDir(), "out")
		if err := tree.Checkout(t.Context(), dir); err != nil {
			t.Fatal(err)
		}
		for name, text := range want {
			if b, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(b) != text {
				t.Errorf("%s: %q %v", name, b, err)
			}
		}
		if b, err := tree.ReadFile(t.Context(), "themes/x/layout.html", 100); err != nil || string(b) != "layout" {
			t.Errorf("ReadFile: %q %v", b, err)
		}
		tree.Close()
	}
	if len(s.moduleSites("site")) != 2 {
		t.Errorf("caches: %v", s.moduleSites("site"))
	}
	if err := s.Forget(t.Context(), "site"); err != nil || len(s.moduleSites("site")) != 0 {
		t.Errorf("after Forget: %v, %v", s.moduleSites("site"), err)
	}
}

// A submodule that can't be fetched fails the deployment with its name and the reason. The site's credential isn't sent
// to other hosts.
func TestSubmodulesFailInWords(t *testing.T) {
	t.Parallel()
	h, other := newHost(t), newHost(t)
	s := open(t, h, func(c *Config) { c.Hosts["other.test"] = other.URL })
	commit := other.commit(t, "acme/private", "main", map[string]string{"x": "x"})
	for name, tt := range map[string]struct{ url, want string }{
		"private elsewhere": {"https://other.test/acme/private", "not found, or it is private"},
		"absent":            {"https://git.test/acme/absent", "not found"},
		"file":              {"file:///etc", "only https and ssh"},
		"plain http":        {"http://git.test/acme/x", "only https and ssh"},
		"climbs":            {"../../../../etc", "points outside"},
		"private address":   {"https://127.0.0.1/a/b", "is not allowed"},
		"ext":               {"ext::sh -c touch% /tmp/pwn", "ASCII without spaces"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			repository := "acme/private-" + strings.ReplaceAll(name, " ", "-")
			h.commit(t, repository, "main", map[string]string{"index.html": "x"})
			h.link(t, repository, "mod", commit, tt.url)
			_, err := s.Fetch(t.Context(), Request{
				Site:       id.Site(strings.ReplaceAll(name, " ", "-")),
				Repository: repo(t, "git.test/"+repository),
				Branch:     "main",
				Credential: &Credential{Token: token, Host: "git.test"},
			})
			if f := fault.As(err); f == nil || !strings.Contains(f.Message, "Submodule mod") || !strings.Contains(f.Message, tt.want) {
				t.Errorf("Fetch = %v, want %q", err, tt.want)
			}
		})
	}
	t.Run("cycle", func(t *testing.T) {
		t.Parallel()
		first := h.commit(t, "acme/cycle", "main", map[string]string{"x": "1"})
		for range 6 {
			first = h.link(t, "acme/cycle", "again", first, "./../cycle")
		}
		_, err := s.Fetch(t.Context(), Request{Site: "cycle", Repository: repo(t, "git.test/acme/cycle"), Branch: "main"})
		if !fault.Is(err, fault.TooLarge) || !strings.Contains(fault.As(err).Details, "submodules") {
			t.Errorf("Fetch = %v", err)
		}
	})
}

// A checkout is a repository with the commit, its branch and some history, but without the credential. Changes to it
// don't affect the cache.
func TestCheckoutIsARepository(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	s := open(t, h, nil)
	for i := range 15 {
		h.commit(t, "acme/private", "trunk", map[string]string{"index.html": strings.Repeat("x", i+1)})
	}
	commit := h.commit(t, "acme/private", "trunk", map[string]string{"last.html": "last"})
	tree := fetch(t, s, Request{
		Site:       "site",
		Repository: repo(t, "git.test/acme/private"),
		Branch:     "trunk",
		Credential: &Credential{Token: token, Host: "git.test"},
	})
	dir := filepath.Join(t.TempDir(), "out")
	if err := tree.Checkout(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	git := func(args ...string) string {
		t.Helper()
		return strings.TrimSpace(run(t, dir, "git", append([]string{"-c", "safe.directory=*"}, args...)...))
	}
	for want, args := range map[string][]string{
		commit:                              {"rev-parse", "HEAD"},
		"trunk":                             {"rev-parse", "--abbrev-ref", "HEAD"},
		"10":                                {"rev-list", "--count", "HEAD"},
		"":                                  {"status", "--porcelain"},
		"https://git.test/acme/private.git": {"remote", "get-url", "origin"},
	} {
		if got := git(args...); got != want {
			t.Errorf("git %v = %q, want %q", args, got, want)
		}
	}
	if git("log", "-1", "--format=%ct", "--", "index.html") == "" {
		t.Error("no date of a file")
	}
	git("config", "core.hooksPath", ".husky")
	if found := leaks(t, dir, token); len(found) > 0 {
		t.Errorf("the credential is in %v", found)
	}
	os.RemoveAll(filepath.Join(dir, ".git"))
	if contents(t, tree)["last.html"] != "last" {
		t.Error("the cache is gone with the checkout's repository")
	}
}

// A tag, annotated or not, is fetched if no branch has its name. Any commit can be fetched by its ID.
func TestTagsAndCommits(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	s := open(t, h, nil)
	first := h.commit(t, "acme/site", "main", map[string]string{"x": "1"})
	work := filepath.Join(h.root, "acme/site.work")
	run(t, work, "git", "tag", "v1.0")
	run(t, work, "git", "tag", "-a", "-m", "signed off", "v1.0-annotated")
	run(t, work, "git", "push", "-q", "origin", "--tags")
	second := h.commit(t, "acme/site", "main", map[string]string{"x": "2"})
	for _, host := range []string{"git.test", "files.test"} {
		for name, tt := range map[string]struct {
			r    Request
			want string
		}{
			"tag": {Request{Branch: "v1.0"}, first}, "annotated": {Request{Branch: "v1.0-annotated"}, first},
			"branch": {Request{Branch: "main"}, second}, "commit": {Request{Branch: "main", Commit: first}, first},
		} {
			tt.r.Site, tt.r.Repository = "s", repo(t, host+"/acme/site")
			tree := fetch(t, s, tt.r)
			if tree.Commit != tt.want || len(contents(t, tree)) != 1 {
				t.Errorf("%s %s: %s, want %s", host, name, tree.Commit, tt.want)
			}
			if err := tree.Checkout(t.Context(), filepath.Join(t.TempDir(), "out")); err != nil {
				t.Errorf("%s %s: %v", host, name, err)
			}
		}
	}
	if _, err := s.Fetch(t.Context(), Request{
		Site:       "s",
		Repository: repo(t, "git.test/acme/site"),
		Branch:     "v2",
	}); !fault.Is(err, fault.NotFound) || fault.As(err).Code != "branch_not_found" {
		t.Errorf("neither: %v", err)
	}
}
