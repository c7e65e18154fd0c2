package backup

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"slipway/internal/backup/repository"
	"slipway/internal/backup/snapshot"
	"slipway/internal/tenant/operation"
)

// onDisk returns the disk space that a tree uses.
func onDisk(t *testing.T, dir string) (n int64) {
	t.Helper()
	ok(t, filepath.WalkDir(dir, func(name string, _ os.DirEntry, err error) error {
		var st syscall.Stat_t
		if err == nil {
			err = syscall.Lstat(name, &st)
		}
		n += 512 * st.Blocks
		return err
	}))
	return n
}

// A sparse file adds almost nothing to a backup and is restored as a sparse file.
func TestHolesStayHoles(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.site("blog", map[string]string{"index.html": "x"})
	dir := w.folder(s.ID, map[string]string{"small": "text"})
	f, err := os.Create(filepath.Join(dir, "holes"))
	ok(t, err)
	const size = 1<<30 + 12345
	ok(t, f.Truncate(size))
	for _, at := range []int64{0, 5000, 100 << 20, 100<<20 + repository.MaxPiece - 3, 600<<20 + 1, size - 4} {
		_, err := f.WriteAt([]byte("data"), at)
		ok(t, err)
	}
	ok(t, f.Close())
	want, err := os.ReadFile(filepath.Join(dir, "holes"))
	ok(t, err)

	b := w.backUp(s.ID, NewBackup{})
	if b.Status != Completed || b.VerifiedAt == 0 || b.Stored > 40<<20 {
		t.Fatalf("%s %q, stored %d bytes", b.Status, b.Error, b.Stored)
	}
	ok(t, os.Remove(filepath.Join(dir, "holes")))
	if o, _ := w.restoreTo(b.ID, RestoreTo{}); o.Status != operation.Success {
		t.Fatalf("restore: %+v", o)
	}
	got, err := os.ReadFile(filepath.Join(dir, "holes"))
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("the file is another: %d bytes, %v", len(got), err)
	}
	if n := onDisk(t, dir); n > 2<<20 {
		t.Errorf("restored it takes %d bytes on disk, and held 24", n)
	}
}

// The total length of file names is limited, however deep the directories are, because names are held in memory.
func TestNamesAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, fill := range map[string]func(dir string){
		"deep": func(dir string) {
			ok(t, os.MkdirAll(filepath.Join(dir, strings.Repeat(strings.Repeat("n", 200)+"/", 19)), 0o755))
			deep := filepath.Join(dir, strings.Repeat(strings.Repeat("n", 200)+"/", 19))
			for i := range 200 {
				ok(t, os.WriteFile(filepath.Join(deep, fmt.Sprint(i)), nil, 0o644))
			}
		},
		"links": func(dir string) {
			for i := range 400 {
				ok(t, os.Symlink(strings.Repeat("x", 2000), filepath.Join(dir, fmt.Sprint(i))))
			}
		},
		"folders": func(dir string) {
			for i := range 2000 {
				ok(t, os.Mkdir(filepath.Join(dir, fmt.Sprint(i)), 0o755))
			}
		},
	} {
		s := w.site("site"+name, map[string]string{"index.html": "x"})
		fill(w.folder(s.ID, map[string]string{"a": "b"}))
		c := snapshot.Collection{Writer: repository.NewWriter(t.Context(), w.c.Repository), Manifest: &snapshot.Manifest{}, MostNames: 400 << 10, Most: 1000}
		err := c.Folder(t.Context(), w.storage[s.ID][0])
		if err == nil || !strings.Contains(words(err), "backup") {
			t.Errorf("%s: %v, with %d bytes of names and %d entries", name, err, c.Names, c.Seen)
		}
		ok(t, c.Writer.Close())
	}
}

// A restore larger than the site's storage limit is refused before anything is written. Hard links count as separate
// files, because they are restored as such.
func TestRestoreFits(t *testing.T) {
	t.Parallel()
	room := int64(1 << 20)
	w := newWorld(t, func(c *Config) {
		c.Programs = &programs{room: func() int64 { return room }}
	})
	s := w.site("blog", map[string]string{"index.html": "x"})
	dir := w.folder(s.ID, map[string]string{"first": strings.Repeat("0123456789abcdef", 16<<10)})
	for i := range 8 {
		ok(t, os.Link(filepath.Join(dir, "first"), filepath.Join(dir, fmt.Sprint("again", i))))
	}
	b := w.backUp(s.ID, NewBackup{})
	if o, _ := w.restoreTo(b.ID, RestoreTo{}); o.Status == operation.Success || !strings.Contains(o.Error, "storage") {
		t.Errorf("into 1 MiB: %s, %q", o.Status, o.Error)
	}
	if o, _ := w.restoreTo(b.ID, RestoreTo{
		Includes: []string{Files},
		Paths:    []string{w.storage[s.ID][0].Name + "/first"},
	}); o.Status != operation.Success {
		t.Errorf("a part of it: %s, %q", o.Status, o.Error)
	}
	room = 4 << 20
	if o, _ := w.restoreTo(b.ID, RestoreTo{}); o.Status != operation.Success {
		t.Errorf("into 4 MiB: %s, %q", o.Status, o.Error)
	}
	for i := range 300 {
		ok(t, os.WriteFile(filepath.Join(dir, fmt.Sprint("empty", i)), nil, 0o644))
	}
	b = w.backUp(s.ID, NewBackup{})
	if o, _ := w.restoreTo(b.ID, RestoreTo{}); o.Status == operation.Success || !strings.Contains(o.Error, "storage") {
		t.Errorf("more empty files than 4 MiB may hold: %s, %q", o.Status, o.Error)
	}
}
