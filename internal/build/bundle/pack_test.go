package bundle

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
)

func unpack(t *testing.T, pack []byte, id ID, most int64) (string, error) {
	t.Helper()
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	return dir, Unpack(bytes.NewReader(pack), id, root, most)
}

// A pack makes the same tree as Open. A pack that is truncated, changed, too large or of another bundle is refused.
func TestPack(t *testing.T) {
	t.Parallel()
	b, _ := start(t)
	s := store(t, b, map[string]string{
		"server.js": "run", "bin/tool*": "tool", "copy/tool": "tool", "again/tool": "tool", "empty": "", "node_modules/.bin/tool": "-> ../../bin/tool",
	})
	other := store(t, b, map[string]string{"server.js": "other"})
	want, done, err := b.Open(t.Context(), "anna", s.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	var out bytes.Buffer
	if err := b.WritePack(t.Context(), s.ID, &out); err != nil {
		t.Fatal(err)
	}
	pack := out.Bytes()
	if n := bytes.Count(pack, []byte("tool")); n != 1 {
		t.Errorf("a content that three files have is sent %d times", n)
	}
	got, err := unpack(t, pack, s.ID, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if g, w := list(t, got), list(t, want); !slices.Equal(g, w) {
		t.Errorf("the tree holds\n%s\nwant\n%s", strings.Join(g, "\n"), strings.Join(w, "\n"))
	}
	for i := range pack {
		changed := bytes.Clone(pack)
		changed[i] ^= 1
		if _, err := unpack(t, changed, s.ID, 1<<20); err == nil {
			t.Errorf("a pack whose byte %d was changed is taken", i)
		}
		if _, err := unpack(t, pack[:i], s.ID, 1<<20); !errors.Is(err, ErrPack) {
			t.Errorf("a pack of %d bytes of %d: %v", i, len(pack), err)
		}
	}
	if _, err := unpack(t, pack, other.ID, 1<<20); !errors.Is(err, ErrPack) {
		t.Errorf("the pack of another bundle: %v", err)
	}
	if _, err := unpack(t, pack, s.ID, 10); err == nil {
		t.Error("a pack over the limit was accepted")
	}
}
