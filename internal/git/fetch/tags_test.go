package fetch

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// A build's repository has the current tags of the fetched history and the requested number of commits.
func TestTagsAndDepth(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	s := open(t, h, func(c *Config) { c.Depth = 3 })
	work := filepath.Join(h.root, "acme/site.work")
	tag := func(args ...string) {
		t.Helper()
		run(t, work, "git", append([]string{"-c", "user.name=T", "-c", "user.email=t@example.test", "tag", "-f"}, args...)...)
		run(t, work, "git", "push", "-q", "-f", "--tags", "origin")
	}
	commit := func(n int) { h.commit(t, "acme/site", "main", map[string]string{"x": fmt.Sprint(n)}) }
	r := Request{Site: "s", Repository: repo(t, "git.test/acme/site"), Branch: "main"}
	clone := func(depth int) (dir string) {
		t.Helper()
		r.Depth = depth
		dir = filepath.Join(t.TempDir(), "src")
		if err := fetch(t, s, r).Checkout(t.Context(), dir); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	shows := func(dir, want string, args ...string) {
		t.Helper()
		if got := strings.TrimSpace(run(t, dir, "git", append([]string{"-c", "safe.directory=*"}, args...)...)); got != want {
			t.Errorf("git %v: %q, want %q", args, got, want)
		}
	}
	commit(1)
	tag("v1.0.0", "-m", "first")
	for n := range 3 {
		commit(n + 2)
	}
	tag("v1.1.0", "-m", "second")
	tag("latest")
	commit(5)
	dir := clone(0)
	shows(dir, "latest\nv1.1.0", "tag")
	shows(dir, "3", "rev-list", "--count", "HEAD")
	if got := run(t, dir, "git", "-c", "safe.directory=*", "describe"); !strings.HasPrefix(got, "v1.1.0-1-g") {
		t.Errorf("git describe: %s", got)
	}
	tag("latest") // moves the tag
	commit(6)
	dir = clone(-1)
	shows(dir, "latest\nv1.0.0\nv1.1.0", "tag")
	shows(dir, "6", "rev-list", "--count", "HEAD")
	shows(dir, "1", "rev-list", "--count", "latest..HEAD")
	shows(dir, "false", "rev-parse", "--is-shallow-repository")
	r.Site = "other"
	shows(clone(1), "1", "rev-list", "--count", "HEAD")
	r.Commit = strings.TrimSpace(run(t, work, "git", "rev-parse", "v1.1.0^{commit}")) // an earlier commit
	shows(clone(2), "v1.1.0", "tag")
}
