package fileserver

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"slipway/internal/platform/blob"
	"slipway/internal/platform/fair"
)

// The number of files kept open while they are sent is limited. Files above the limit are still read completely, in
// parts, and verified.
func TestOpenFilesAreBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	blobs, err := blob.OpenDir(filepath.Join(dir, "blobs"))
	if err != nil {
		t.Fatal(err)
	}
	want := bytes.Repeat([]byte("0123456789"), 100_000)
	d, _, err := blobs.Put(t.Context(), bytes.NewReader(want))
	if err != nil {
		t.Fatal(err)
	}
	s := New(Config{Blobs: blobs, Bytes: 1 << 20, Looked: func(bool) {}})
	var files []io.ReadSeeker
	var ends []func()
	for range 2 * maxHeld {
		f, size, end, err := s.open(t.Context(), fair.Who{Owner: fmt.Sprint(len(ends) % 8)}, d)
		if err != nil || size != int64(len(want)) {
			t.Fatal(size, err)
		}
		if _, err := io.CopyN(io.Discard, f, 1000); err != nil {
			t.Fatal(err)
		}
		files, ends = append(files, f), append(ends, end)
	}
	if n := openBelow(t, dir); n > maxHeld {
		t.Errorf("%d files are open, want at most %d", n, maxHeld)
	}
	last := files[len(files)-1]
	if rest, err := io.ReadAll(last); err != nil || !bytes.Equal(rest, want[1000:]) {
		t.Errorf("%d bytes, %v", len(rest), err)
	}
	for at, whence := range map[int64]int{555_555: io.SeekStart, -444_445: io.SeekEnd} {
		if now, err := last.Seek(at, whence); now != 555_555 || err != nil {
			t.Fatal(now, err)
		}
		part := make([]byte, 70_000)
		if _, err := io.ReadFull(last, part); err != nil || !bytes.Equal(part, want[555_555:625_555]) {
			t.Errorf("another part, %v", err)
		}
	}
	damage(t, dir)
	f, _, end, err := s.open(t.Context(), fair.Who{Owner: fmt.Sprint(len(ends) % 8)}, d)
	if err != nil {
		t.Fatal(err)
	}
	ends = append(ends, end)
	if b, err := io.ReadAll(f); err == nil || len(b) == len(want) {
		t.Errorf("a damaged file is whole: %d bytes, %v", len(b), err)
	}
	for _, end := range ends {
		end()
	}
	if held, _ := s.held.Held(); held > 0 || openBelow(t, dir) > 0 {
		t.Errorf("%d places are taken, %d files are open", held, openBelow(t, dir))
	}
}

// openBelow counts this process's open files below dir.
func openBelow(t *testing.T, dir string) (n int) {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.HasPrefix(to, dir+"/") {
			if i, err := os.Stat(to); err == nil && i.Mode().IsRegular() {
				n++
			}
		}
	}
	return n
}

// damage changes a byte in the middle of the only long file below dir.
func damage(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		if i, err := e.Info(); err != nil || i.Size() < 1_000_000 {
			return err
		}
		if err := os.Chmod(path, 0o600); err != nil {
			return err
		}
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		_, err = f.WriteAt([]byte("x"), 500_000)
		return errors.Join(err, f.Close())
	})
	if err != nil {
		t.Fatal(err)
	}
}
