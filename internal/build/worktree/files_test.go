package worktree

import (
	"fmt"
	"io/fs"
	"strings"
	"testing"
)

func TestCleanDir(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"": "", ".": "", "/": "", "./": "", "dist": "dist", "./dist/": "dist", "/dist": "dist",
		"a//b/./c": "a/b/c", "a/../b": "b", " dist ": "dist", "ä/ö": "ä/ö",
	} {
		if got, ok := CleanDir(in); got != want || !ok {
			t.Errorf("CleanDir(%q) = %q, %v, want %q", in, got, ok, want)
		}
	}
	for _, in := range []string{"..", "../x", "a/../../b", "/..", "a\\b", "a\x00b", "a\nb", "a/..//../etc", string([]byte{0xff})} {
		if got, ok := CleanDir(in); ok {
			t.Errorf("CleanDir(%q) = %q, want a refusal", in, got)
		}
	}
}

func TestGlob(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		patterns []string
		dir      string
		want     bool
	}{
		{[]string{"packages/*"}, "packages/a", true},
		{[]string{"packages/*"}, "packages/a/b", false},
		{[]string{"./packages/*/"}, "packages/a", true},
		{[]string{"packages/**"}, "packages/a/b", true},
		{[]string{"**/app"}, "x/y/app", true},
		{[]string{"**/app"}, "app", true},
		{[]string{"apps/*", "!apps/old"}, "apps/old", false},
		{[]string{"!apps/old", "apps/*"}, "apps/old", true},
		{[]string{"apps/[x"}, "apps/[x", false},
	} {
		if got := (Workspace{Patterns: tt.patterns}).Holds(tt.dir); got != tt.want {
			t.Errorf("%q holds %q: %v, want %v", tt.patterns, tt.dir, got, tt.want)
		}
	}
}

func TestNodeVersion(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"v20.11.0": "20.11.0", "lts/*": "lts/*", "lts/iron": "20", "Jod": "22", "node": "latest", "22": "22", "20.x": "20.x",
		">=18 <23": ">=18 <23", "^20.0.0 || >=22": "^20.0.0 || >=22", "22 # ours": "22", "*": "*",
	} {
		if got, ok := NodeVersion(in); got != want || !ok {
			t.Errorf("NodeVersion(%q) = %q, %v, want %q", in, got, ok, want)
		}
	}
	for _, in := range []string{"", "lts/nonsense", "$(id)", "../../etc", "20;id", "file:x", strings.Repeat("1", 200), "system"} {
		if got, ok := NodeVersion(in); ok {
			t.Errorf("NodeVersion(%q) = %q, want a refusal", in, got)
		}
	}
}

// many is a number of files, in folders that are listed before the files that identify a project.
type many int

func (n many) Paths() []string {
	var list []string
	for i := range n {
		list = append(list, fmt.Sprintf("0/%d.html", i))
	}
	return append(list, "index.html", "web/package.json")
}

func (many) Dangling() []string { return nil }

func (many) ReadFile(string, int64) ([]byte, error) { return nil, fs.ErrNotExist }

// If there are too many files to list, those near the root are listed.
func TestTreeOfTooManyFiles(t *testing.T) {
	t.Parallel()
	tree := NewTree(many(MaxPaths + 10))
	if !tree.Has("index.html") || !tree.Truncated() || len(tree.List) != MaxPaths {
		t.Errorf("index.html is listed: %v, cut: %v, %d files", tree.Has("index.html"), tree.Truncated(), len(tree.List))
	}
}
