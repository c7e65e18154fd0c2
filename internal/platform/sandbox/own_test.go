package sandbox

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestOwn(t *testing.T) {
	t.Parallel()
	outside := filepath.Join(t.TempDir(), "outside")
	dir := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(outside, nil, 0o644))
	must(os.MkdirAll(filepath.Join(dir, "a", "b"), 0o755))
	must(os.WriteFile(filepath.Join(dir, "a", "b", "f"), nil, 0o644))
	must(os.Link(filepath.Join(dir, "a", "b", "f"), filepath.Join(dir, "twin")))
	must(os.Symlink(outside, filepath.Join(dir, "link")))
	must(os.Symlink(filepath.Dir(outside), filepath.Join(dir, "linkdir")))
	must(Own(dir, testUID))
	must(Own(dir, testUID)) // a second call changes nothing
	owner := func(p string) int {
		t.Helper()
		st, err := os.Lstat(p)
		must(err)
		return int(st.Sys().(*syscall.Stat_t).Uid)
	}
	want := testUID
	if !isRoot() {
		want = os.Geteuid()
	}
	for _, p := range []string{"", "a", "a/b", "a/b/f", "twin", "link", "linkdir"} {
		if got := owner(filepath.Join(dir, p)); got != want {
			t.Errorf("%q belongs to %d", p, got)
		}
	}
	for _, p := range []string{outside, filepath.Dir(outside)} {
		if owner(p) != os.Geteuid() {
			t.Errorf("%s was given away", p)
		}
	}
	if !isRoot() {
		return
	}
	if err := os.Link(outside, filepath.Join(dir, "stolen")); err != nil {
		t.Fatal(err)
	}
	if err := Own(dir, testUID); err == nil || !strings.Contains(err.Error(), "more names outside") {
		t.Errorf("Own with a foreign hard link: %v", err)
	}
	if owner(outside) != 0 {
		t.Error("the file outside the tree was given to the user")
	}
	if err := Own(dir, 0); err == nil {
		t.Error("Own gave a tree to root")
	}
}
