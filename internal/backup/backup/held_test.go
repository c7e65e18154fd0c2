package backup

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"slipway/internal/backup/repository"
	"slipway/internal/backup/snapshot"
	"slipway/internal/tenant/site"
)

// holding counts how often a site's writes are paused, and calls held with the count.
type holding struct {
	snapshot.Storage
	dir  string
	held func(times int)
	n    int
}

func (h *holding) FetchStorage(context.Context, site.ID) (io.Closer, error) {
	return io.NopCloser(nil), nil
}
func (h *holding) KeepStorage(context.Context, site.ID) error { return nil }
func (h *holding) StorageFolders(site.ID) (map[string]string, error) {
	return map[string]string{"data": h.dir}, nil
}

func (h *holding) Hold(site.ID) func() {
	h.n++
	h.held(h.n)
	return func() {}
}

// If a site's changes take too long to read while its writes are paused, the backup tries again later, up to three
// times.
func TestHeldAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dir := t.TempDir()
	ok(t, os.WriteFile(filepath.Join(dir, "a"), []byte("b"), 0o600))
	for quick, want := range map[int]int{1: 1, 3: 3, 9: 3} { // quick: the attempt that is fast enough
		c := snapshot.Collection{Writer: repository.NewWriter(t.Context(), w.c.Repository), Manifest: &snapshot.Manifest{}}
		h := &holding{dir: dir, held: func(n int) {
			c.Held = time.Nanosecond
			if n >= quick {
				c.Held = time.Hour
			}
		}}
		c.Storage = h
		err := c.Moment(t.Context(), "site_1", true, false)
		if h.n != want {
			t.Errorf("quick from time %d on: held %d times, want %d", quick, h.n, want)
		}
		if quick <= want && (err != nil || len(c.Manifest.Files) == 0) {
			t.Errorf("quick from time %d on: %v, with %d files", quick, err, len(c.Manifest.Files))
		}
		if quick > want && (err == nil || !strings.Contains(words(err), "changes too much") || len(c.Manifest.Files) != 0) {
			t.Errorf("never quick: %v, with %d files", err, len(c.Manifest.Files))
		}
		ok(t, c.Writer.Close())
	}
}
