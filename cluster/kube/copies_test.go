package kube

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"slipway/cluster/pod"
	"slipway/internal/platform/id"
	"slipway/internal/program/runtime"
)

// Copies don't exceed their total size, nor an owner's share of it. The least recently used copies are deleted first.
func TestCopiesAreBounded(t *testing.T) {
	t.Parallel()
	s, err := newCopies(filepath.Join(t.TempDir(), "copies"))
	if err != nil {
		t.Fatal(err)
	}
	add := func(owner id.Owner, n int, size int64) bool {
		t.Helper()
		c := &copied{
			key: copyKey{"program-of-" + string(owner), runtime.Stored{Folder: "up", Path: strconv.Itoa(n)}}, owner: owner,
			is: pod.File{Size: size}, asked: time.Now(), file: filepath.Join(s.dir, string(owner)+strconv.Itoa(n)),
		}
		if err := os.WriteFile(c.file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if !s.reserve(c) {
			return false
		}
		s.by[c.key] = s.order.PushFront(c)
		return true
	}
	has := func(owner string, n int) bool {
		f, _ := s.cached(copyKey{"program-of-" + owner, runtime.Stored{Folder: "up", Path: strconv.Itoa(n)}})
		if f == nil {
			return false
		}
		f.Close()
		return true
	}
	if !add("b", 1, 10) {
		t.Fatal("a small file was refused")
	}
	for n := range 4 {
		add("a", n, maxOwnerCopies/4)
	}
	has("a", 0) // so 1 is the least recently used
	if !add("a", 4, 1) || has("a", 1) || !has("a", 0) || !has("a", 4) || !has("b", 1) {
		t.Error("the cache dropped another copy than the least recently used one")
	}
	if _, err := os.Stat(filepath.Join(s.dir, "a1")); err == nil {
		t.Error("a dropped copy is still on the disk")
	}
	for _, owner := range []id.Owner{"c", "d", "e", "f"} {
		for n := range 4 {
			add(owner, n, maxOwnerCopies/4)
		}
	}
	if s.bytes > maxCopies || has("a", 2) || has("b", 1) || !has("f", 3) {
		t.Errorf("%d bytes of %d", s.bytes, int64(maxCopies))
	}
	if add("a", 9, maxOwnerCopies+1) {
		t.Error("a copy over the owner's limit was accepted")
	}
	for _, owner := range []string{"a", "b", "c", "d", "e", "f"} {
		s.forget("program-of-" + owner)
	}
	left, err := os.ReadDir(s.dir)
	if err != nil || len(left) > 1 || s.bytes != 0 || len(s.owners) != 0 || len(s.by) != 0 { // a9 was never stored
		t.Errorf("%d bytes and %d files are left, %v", s.bytes, len(left), err)
	}
}
