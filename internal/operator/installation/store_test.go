package installation

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLockKeepsASecondProcessOut(t *testing.T) {
	t.Parallel()
	s := Store{DataDir: filepath.Join(t.TempDir(), "data")}
	release, err := s.Lock()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Lock(); err == nil || !strings.Contains(err.Error(), "already serves") {
		t.Fatalf("a second lock: %v", err)
	}
	release()
	again, err := s.Lock()
	if err != nil {
		t.Fatal(err)
	}
	again()
}

// The data directory, the database and the key are created so that other users can't open them, and wrong permissions
// are fixed.
func TestProtect(t *testing.T) {
	t.Parallel()
	s := Store{DataDir: filepath.Join(t.TempDir(), "data")}
	d, _, err := s.Open(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	want := map[string]os.FileMode{s.DataDir: 0o700, s.Path("secrets.key"): 0o600, s.Path("slipway.db"): 0o600, s.Path("slipway.db-wal"): 0o600}
	modes := func(when string) {
		t.Helper()
		for path, mode := range want {
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
				t.Errorf("%s, %s: %v, %v; want %04o", when, path, info.Mode(), err, mode)
			}
		}
	}
	modes("when they are made")
	if changed, err := s.Protect(); len(changed) != 0 || err != nil {
		t.Errorf("changed %q, %v", changed, err)
	}
	for path, mode := range want {
		if err := os.Chmod(path, mode|0o044); err != nil {
			t.Fatal(err)
		}
	}
	if changed, err := s.Protect(); len(changed) != len(want) || err != nil {
		t.Errorf("changed %q, %v; want a line for each of %d", changed, err, len(want))
	}
	modes("mended")
	if s.Find() != nil || (Store{DataDir: t.TempDir()}).Find() == nil {
		t.Error("an installation is there once it has a key")
	}
}
