package sandbox

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// The helper is written once, and again if the file differs. Old versions are deleted later.
func TestWriteHelper(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	old, err := writeHelper(dir, []byte("old"))
	if err != nil {
		t.Fatal(err)
	}
	path, err := writeHelper(dir, []byte("new"))
	if err != nil || path == old {
		t.Fatal(path, err)
	}
	first, err := os.Stat(path)
	if err != nil || first.Mode() != 0o755 {
		t.Fatal(first, err)
	}
	if again, err := writeHelper(dir, []byte("new")); err != nil || again != path {
		t.Fatal(again, err)
	}
	if same, err := os.Stat(path); err != nil || !os.SameFile(first, same) {
		t.Errorf("written twice: %v", err)
	}
	if _, err := os.Stat(old); err != nil {
		t.Errorf("a version that may run beside has lost its helper: %v", err)
	}
	if err := os.WriteFile(path, []byte("cut"), 0o755); err != nil {
		t.Fatal(err)
	}
	long := time.Now().Add(-helperKept - time.Hour)
	if err := os.Chtimes(old, long, long); err != nil {
		t.Fatal(err)
	}
	if _, err := writeHelper(dir, []byte("new")); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "new" {
		t.Errorf("the helper is %q, %v", text, err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) != 1 {
		t.Errorf("left are %v", left)
	}
}
