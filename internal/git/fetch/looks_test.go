package fetch

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"slipway/internal/platform/fault"
)

// An inspection during which the process dies counts as a crash. After two crashes the repository is refused with an
// error, and other repositories aren't.
func TestLookThatKillsTheProcess(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.commit(t, "acme/deadly", "main", map[string]string{"x": "1"})
	h.commit(t, "acme/site", "main", map[string]string{"x": "1"})
	dir := t.TempDir()
	life := func() *Fetcher { return open(t, h, func(c *Config) { c.Dir = dir }) }
	deadly, site := repo(t, "git.test/acme/deadly"), repo(t, "git.test/acme/site")
	for range maxLookCrashes {
		s := life()
		fetch(t, s, Request{Site: "look_1", Repository: deadly, Branch: "main", Look: true}) // never closed, because the process died
	}
	s := life()
	if entries, _ := os.ReadDir(s.path("sites")); len(entries) > 0 {
		t.Errorf("looks left %v", entries)
	}
	if _, err := s.Fetch(t.Context(), Request{
		Site:       "look_2",
		Repository: deadly,
		Branch:     "main",
		Look:       true,
	}); !fault.Is(err, fault.Unavailable) {
		t.Errorf("the third look: %v", err)
	}
	for range 5 { // a completed inspection is no crash
		fetch(t, s, Request{Site: "look_3", Repository: site, Branch: "main", Look: true}).Close()
	}
	fetch(t, life(), Request{Site: "look_4", Repository: site, Branch: "main", Look: true}).Close()
	fetch(t, s, Request{Site: "site", Repository: deadly, Branch: "main"}) // deployments count separately
}

// A host that lists too many branches gets an error without using up memory.
func TestBranchesAreBounded(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	s := open(t, h, nil)
	id := strings.Repeat("a", 40)
	for name, c := range map[string]struct {
		refs int
		ref  func(i int) string
		ok   bool
	}{
		"branches":    {60_000, func(i int) string { return fmt.Sprint("refs/heads/b", i) }, false},
		"many tags":   {200_000, func(i int) string { return fmt.Sprint("refs/tags/v", i) }, true},
		"peeled tags": {20_000, func(i int) string { return fmt.Sprint("refs/tags/v", i/2, []string{"", "^{}"}[i%2]) }, true},
		"long names":  {2_000, func(i int) string { return fmt.Sprint("refs/heads/", strings.Repeat("long/", 5000), i) }, false},
		"other refs":  {50_000, func(i int) string { return fmt.Sprint("refs/pull/", i, "/head") }, true},
	} {
		f := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
			out := bufio.NewWriter(w)
			defer out.Flush()
			line := func(text string) { fmt.Fprintf(out, "%04x%s", len(text)+4, text) }
			line("# service=git-upload-pack\n")
			fmt.Fprint(out, "0000")
			line(id + " HEAD\x00symref=HEAD:refs/heads/b0\n")
			line(id + " refs/heads/b0\n")
			for i := range c.refs {
				line(id + " " + c.ref(i) + "\n")
			}
			fmt.Fprint(out, "0000")
		})
		h.intercept.Store(&f)
		list, _, err := s.Branches(t.Context(), Request{Site: "look_1", Repository: repo(t, "git.test/acme/many"), Look: true})
		if c.ok && (err != nil || !slices.Equal(list, []string{"b0"})) || !c.ok && !fault.Is(err, fault.TooLarge) {
			t.Errorf("%s: %d branches, %v", name, len(list), err)
		}
	}
}
