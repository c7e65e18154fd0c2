package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// Write replaces the content and the mode and leaves no other file. A failed Write changes nothing.
func TestWrite(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "id")
	for _, content := range []string{"one", "another"} {
		if err := Write(path, []byte(content), 0o640); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); string(got) != content || err != nil {
			t.Errorf("got %q, %v; want %q", got, err, content)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o640 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Write(filepath.Join(dir, "folder"), nil, 0o600); err == nil {
		t.Error("Write replaced a folder")
	}
	if err := Write(filepath.Join(dir, "none", "id"), nil, 0o600); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("in a folder that is missing: %v", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("left: %v, %v", entries, err)
	}
}

// Of several concurrent Creates of a file, one succeeds, and the file is complete.
func TestCreate(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "key")
	var created atomic.Int64
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			switch err := Create(path, fmt.Append(nil, n), 0o600); {
			case err == nil:
				created.Add(1)
			case !errors.Is(err, fs.ErrExist):
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got, err := os.ReadFile(path); created.Load() != 1 || len(got) != 1 || err != nil {
		t.Errorf("%d succeeded, content %q, %v", created.Load(), got, err)
	}
}

// Full recognizes the errors of a full disk and of an exceeded quota, however they are wrapped.
func TestFull(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]bool{
		&fs.PathError{Op: "write", Path: "a", Err: syscall.ENOSPC}:         true,
		fmt.Errorf("store: %w", errors.Join(nil, syscall.EDQUOT)):          true,
		&fs.PathError{Op: "open", Path: "no space left", Err: os.ErrExist}: false,
		nil: false,
	} {
		if Full(err) != want {
			t.Errorf("Full(%v) = %v", err, !want)
		}
	}
}
