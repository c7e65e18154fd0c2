package fetch

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"slipway/internal/platform/id"

	"slipway/internal/platform/fault"
)

// tree writes a tree into a host's bare repository, and creates the repository if needed.
func (h *host) tree(t testing.TB, repo string, entries string) string {
	t.Helper()
	bare := filepath.Join(h.root, repo+".git")
	if _, err := os.Stat(bare); err != nil {
		run(t, ".", "git", "init", "-q", "--bare", "-b", "main", bare)
	}
	cmd := exec.Command("git", "-C", bare, "mktree")
	cmd.Stdin = strings.NewReader(entries)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("mktree: %v", err)
	}
	return strings.TrimSpace(string(out))
}

// publish commits a tree as the branch main.
func (h *host) publish(t testing.TB, repo, tree string) {
	t.Helper()
	bare := filepath.Join(h.root, repo+".git")
	commit := strings.TrimSpace(run(t, bare, "git", "commit-tree", "-m", "bomb", tree))
	run(t, bare, "git", "update-ref", "refs/heads/main", commit)
}

// A pack of one kilobyte can contain any number of paths, because a tree can be used in many places. Listing paths
// stops at the limits with an error.
func TestPathsAreBounded(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	s := open(t, h, nil)
	h.commit(t, "acme/seed", "main", map[string]string{"x": "x"})
	blob := strings.TrimSpace(run(t, filepath.Join(h.root, "acme/seed.work"), "git", "hash-object", "x"))
	leaf := func(repo string) string {
		h.tree(t, repo, "")
		cmd := exec.Command("git", "-C", filepath.Join(h.root, repo+".git"), "hash-object", "-w", "--stdin")
		cmd.Stdin = strings.NewReader("x")
		out, err := cmd.Output()
		if err != nil || strings.TrimSpace(string(out)) != blob {
			t.Fatalf("hash-object: %s %v", out, err)
		}
		return blob
	}
	nest := func(repo, tree string, levels, width int, name string) string {
		for range levels {
			var b strings.Builder
			for i := range width {
				fmt.Fprintf(&b, "040000 tree %s\t%d%s\n", tree, i, name)
			}
			tree = h.tree(t, repo, b.String())
		}
		return tree
	}
	for name, tt := range map[string]struct {
		make func(repo string) string
		want string
	}{
		"sum": {func(repo string) string {
			var b strings.Builder
			for i := range 100 {
				fmt.Fprintf(&b, "100644 blob %s\t%02d%s\n", leaf(repo), i, strings.Repeat("x", 248))
			}
			return nest(repo, h.tree(t, repo, b.String()), 3, 10, strings.Repeat("y", 230))
		}, "64 MiB"},
		"length": {func(repo string) string {
			return nest(repo, h.tree(t, repo, "100644 blob "+leaf(repo)+"\tx\n"), 5, 1, strings.Repeat("y", 240))
		}, "1024 bytes"},
		"depth": {func(repo string) string {
			return nest(repo, h.tree(t, repo, "100644 blob "+leaf(repo)+"\tx\n"), 64, 1, "")
		}, "64 folders deep"},
		"empty folders": {func(repo string) string { return nest(repo, h.tree(t, repo, ""), 40, 2, "") }, "200000 folders"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			repository := "acme/" + strings.ReplaceAll(name, " ", "-")
			h.publish(t, repository, tt.make(repository))
			_, err := s.Fetch(t.Context(), Request{
				Site:       id.Site(strings.ReplaceAll(name, " ", "-")),
				Repository: repo(t, "git.test/"+repository),
				Branch:     "main",
			})
			if f := fault.As(err); f == nil || f.Kind != fault.TooLarge || !strings.Contains(f.Details, tt.want) {
				t.Fatalf("Fetch = %v, want %q", err, tt.want)
			}
		})
	}
}

// A credential is sent only to the host that it was stored for.
func TestCredentialIsForOneHost(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	s := open(t, h, nil)
	h.commit(t, "acme/private", "main", map[string]string{"x": "x"})
	r := Request{
		Site:       "s",
		Repository: repo(t, "git.test/acme/private"),
		Branch:     "main",
		Credential: &Credential{Token: token, Host: "git.test"},
	}
	fetch(t, s, r)
	before := h.requests.Load()
	r.Credential = &Credential{Token: token, Host: "elsewhere.test"}
	if _, err := s.Fetch(t.Context(), r); !fault.Is(err, fault.Forbidden) || !strings.Contains(err.Error(), "elsewhere.test") {
		t.Errorf("Fetch = %v", err)
	}
	if _, _, err := s.Branches(t.Context(), r); !fault.Is(err, fault.Forbidden) {
		t.Errorf("Branches = %v", err)
	}
	if after := h.requests.Load(); after != before {
		t.Errorf("the host was asked %d times with another host's credential", after-before)
	}
}
