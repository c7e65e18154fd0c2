package fetch

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"slipway/internal/platform/fault"
)

// With OnBranch, a commit is fetched only if it is on the branch, although a host serves every commit that it stores.
func TestCommitsOfABranch(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"git.test", "files.test"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			h := newHost(t)
			s := open(t, h, func(c *Config) { c.Depth = 3 })
			first := h.commit(t, "acme/site", "main", map[string]string{"x": "0"})
			evil := h.commit(t, "acme/site", "evil", map[string]string{"x": "evil"}) // its parent is on main
			work := filepath.Join(h.root, "acme/site.work")
			run(t, work, "git", "checkout", "-q", "main")
			if at == "git.test" { // without a filter, the history comes with all files
				run(t, filepath.Join(h.root, "acme/site.git"), "git", "config", "uploadpack.allowFilter", "true")
			}
			var commits []string
			for n := range 9 {
				commits = append(commits, h.commit(t, "acme/site", "main", map[string]string{"x": strconv.Itoa(n + 1)}))
			}
			run(t, work, "git", "tag", "-a", "-m", "one", "v1")
			run(t, work, "git", "push", "-q", "origin", "v1")
			tag := strings.TrimSpace(run(t, work, "git", "rev-parse", "v1"))
			r := Request{Site: "s", Repository: repo(t, at+"/acme/site"), Branch: "main", OnBranch: true}
			is := func(commit, want string) {
				t.Helper()
				r.Commit = commit
				if got := contents(t, fetch(t, s, r))["x"]; got != want {
					t.Errorf("%s on %s: x is %q, want %q", commit, r.Branch, got, want)
				}
			}
			isNot := func(commit, code string) {
				t.Helper()
				r.Commit = commit
				tree, err := s.Fetch(t.Context(), r)
				if err == nil {
					tree.Close()
				}
				if f := fault.As(err); f == nil || f.Code != code {
					t.Errorf("%s on %s: %v, want %s", commit, r.Branch, err, code)
				}
			}
			is(commits[8], "9")
			is(commits[7], "8")
			is(commits[1], "2") // older than the history that is fetched
			is(first, "0")
			isNot(evil, "commit_not_on_branch")
			isNot(strings.Repeat("0", 39)+"1", "commit_not_on_branch")
			r.Branch = "evil"
			is(evil, "evil")
			isNot(commits[8], "commit_not_on_branch")
			r.Branch = "none"
			isNot(commits[8], codeNoBranch)
			r.Branch = "v1"
			is(commits[8], "9")
			is(tag, "9")
			isNot(evil, "commit_not_on_branch")
			// A forced push removes commits from the branch. They are refused, although they were fetched before.
			run(t, work, "git", "checkout", "-q", "-B", "main", commits[3])
			next := h.commit(t, "acme/site", "main", map[string]string{"x": "forced"})
			r.Branch = "main"
			isNot(commits[8], "commit_not_on_branch")
			is(next, "forced")
			is(commits[0], "1")
			// Without OnBranch any commit is fetched, as for an approved pull request.
			r.OnBranch, r.Commit = false, evil
			if got := contents(t, fetch(t, s, r))["x"]; got != "evil" {
				t.Errorf("any commit: x is %q", got)
			}
			if err := s.Forget(t.Context(), "s"); err != nil || len(s.moduleSites("s")) != 0 {
				t.Errorf("the history stays: %v, %v", s.moduleSites("s"), err)
			}
		})
	}
}
