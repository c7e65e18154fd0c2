package backup

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"slipway/internal/tenant/site"
)

// NewestStored returns a site's newest backup that includes files, from which its storage can be rebuilt.
func TestNewestStored(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.site("blog", map[string]string{"index.html": "hello"})
	dir := w.folder(s.ID, map[string]string{"cat.jpg": "meow"})
	if x, err := w.NewestStored(t.Context(), s.ID); x != nil || err != nil {
		t.Errorf("without a backup: %v, %v", x, err)
	}
	w.backUp(s.ID, NewBackup{})
	ok(t, os.WriteFile(filepath.Join(dir, "cat.jpg"), []byte("purr"), 0o600))
	newest := w.backUp(s.ID, NewBackup{Includes: []string{Files}})
	want := contents(t, dir)
	ok(t, os.WriteFile(filepath.Join(dir, "cat.jpg"), []byte("hiss"), 0o600))
	w.restoreTo(newest.ID, RestoreTo{Includes: []string{Files}}) // takes a backup of the current files first
	ok(t, os.WriteFile(filepath.Join(dir, "cat.jpg"), []byte("yowl"), 0o600))
	w.backUp(s.ID, NewBackup{Includes: []string{Settings}})
	x, err := w.NewestStored(t.Context(), s.ID)
	ok(t, err)
	if len(x.Folders) != 1 || x.Folders[0] != "uploads" {
		t.Errorf("folders: %v", x.Folders)
	}
	renewed := 0
	ok(t, x.PutBack(t.Context(), w.c.Storage, s.ID, func(context.Context, site.ID) error { renewed++; return nil }))
	if got := contents(t, dir); !maps.Equal(got, want) || renewed != 1 {
		t.Errorf("the site has %v, want %v; renewed %d times", got, want, renewed)
	}
}
