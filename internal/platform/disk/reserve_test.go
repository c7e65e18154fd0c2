//go:build linux

package disk_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"slipway/internal/platform/blob"
	"slipway/internal/platform/disk"
)

// small mounts a file system with these options, such as its size, on a new folder.
func small(t *testing.T, options string) (dir string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("NOT TESTED: only root can mount a small file system")
	}
	dir = filepath.Join(t.TempDir(), "small")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		t.Skipf("NOT TESTED: this machine can't mount a small file system: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

// free returns the free bytes and files.
func free(t *testing.T, dir string) (bytes, files int64) {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	return int64(st.Bavail) * st.Bsize, int64(st.Ffree)
}

// Files of releases and uploads leave a part of the disk to the service, in bytes and in number of files. They are
// accepted again when there is room.
func TestReserve(t *testing.T) {
	t.Parallel()
	const size, part = 40 << 20, 2 << 20 // a twentieth
	put := func(store *blob.Store, n int) error {
		b := make([]byte, n)
		_, _ = rand.Read(b)
		_, _, err := store.Put(context.Background(), bytes.NewReader(b))
		return err
	}
	fill := func(t *testing.T, dir string, n int) *blob.Store {
		t.Helper()
		store, err := blob.OpenDir(filepath.Join(dir, "blobs"))
		if err != nil {
			t.Fatal(err)
		}
		for range 10_000 {
			if err = put(store, n); err != nil {
				break
			}
		}
		if !disk.Full(err) || !strings.Contains(err.Error(), dir) {
			t.Fatalf("the disk was filled: %v", err)
		}
		return store
	}
	t.Run("bytes", func(t *testing.T) {
		t.Parallel()
		dir := small(t, fmt.Sprintf("size=%d", size))
		store := fill(t, dir, 1<<20)
		if left, _ := free(t, dir); left < part || left > part+(3<<20) {
			t.Errorf("%d bytes are left for the service, want %d", left, part)
		}
		// The service itself can still write; a tenant's upload can't.
		if err := os.WriteFile(filepath.Join(dir, "service"), make([]byte, 1<<20), 0o600); err != nil {
			t.Error(err)
		}
		if n, err := io.Copy(io.Discard, disk.Sparing(dir, bytes.NewReader(make([]byte, 8<<20)))); !disk.Full(err) {
			t.Errorf("%d bytes of an upload were read: %v", n, err)
		}
		for d, err := range store.List(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(filepath.Join(dir, "blobs", d.String()[:2], d.String())); err != nil {
				t.Fatal(err)
			}
		}
		if err := put(store, 1<<20); err != nil {
			t.Errorf("once there is room: %v", err)
		}
	})
	t.Run("files", func(t *testing.T) {
		t.Parallel()
		dir := small(t, "size=200m,nr_inodes=2000")
		fill(t, dir, 100)
		if _, left := free(t, dir); left < 90 || left > 110 {
			t.Errorf("%d files are left for the service, want a twentieth of 2000", left)
		}
	})
}
