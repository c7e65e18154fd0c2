package difference

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Files are compared by content. Caches don't count, and links lead nowhere.
func TestCompareFiles(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 100_000)
	a := tree(t, map[string]string{"same.txt": long, "size.txt": "1", "bytes.txt": long + "a", "new/one.txt": "", "cache/a": "1", "empty": ""})
	b := tree(t, map[string]string{"same.txt": long, "size.txt": "12", "bytes.txt": long + "b", "uploads/only.png": "", "cache/b": "22", "empty": ""})
	for _, dir := range []string{a, b} {
		if err := os.Symlink("/etc", filepath.Join(dir, "link")); err != nil {
			t.Fatal(err)
		}
	}
	d, err := Files(t.Context(), a, b)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(d.Examples)
	if d.Added != 1 || d.Removed != 1 || d.Changed != 2 || d.Unread != 0 || !slices.Equal(d.Examples, []string{"bytes.txt", "size.txt", "uploads/only.png"}) {
		t.Errorf("%+v", d)
	}
	if d, err = Files(t.Context(), a, a); err != nil || d.Added+d.Removed+d.Changed+d.Unread != 0 {
		t.Errorf("with itself: %+v, %v", d, err)
	}
}

// What a WordPress says of its content is bounded, and what is only for a comparison is not stored.
func TestContentIsBounded(t *testing.T) {
	t.Parallel()
	said := `{"posts": [{"type": "` + strings.Repeat("t", 300) + `", "count": -5, "newer": -1, "changed": 999999999999999}` + strings.Repeat(`,{"type":"x"}`, 200) + `],
		"users": {"count": 3, "newer": 2, "changed": 1700000000}, "files": {"count": 9}, "options": {"a": "1"}}`
	var c Content
	if err := json.Unmarshal([]byte(said), &c); err != nil {
		t.Fatal(err)
	}
	c.Bound()
	if p := c.Posts[0]; len(c.Posts) != maxPostTypes || len(p.Type) > 30 || p.Count != 0 || p.Newer != 0 || p.Changed != 0 || p.Name != p.Type {
		t.Errorf("%d types, the first %+v", len(c.Posts), p)
	}
	if c.Files != nil || c.Comments != nil || c.Users.Changed.At() != 1_700_000_000_000 {
		t.Errorf("%+v", c)
	}
	if got := c.WithoutComparison(); got.Options != nil || got.Users.Newer != 0 || got.Users.Count != 3 || c.Users.Newer != 2 {
		t.Errorf("stored: %+v", got)
	}
	names := Digests{"same": "1", "value": "1", "here": "1"}.Differing(Digests{"same": "1", "value": "2", "there": "1"})
	if !slices.Equal(names, []string{"here", "there", "value"}) {
		t.Errorf("options that differ: %v", names)
	}
}
