package thumbnail

import (
	"path/filepath"
	"testing"

	"slipway/internal/build/release"
	"slipway/internal/platform/blob"
	"slipway/internal/platform/dbtest"
)

// What is no longer there is no failure, and what is broken is given up.
func TestThumbnailOfNothing(t *testing.T) {
	t.Parallel()
	blobs, err := blob.OpenDir(filepath.Join(t.TempDir(), "blobs"))
	if err != nil {
		t.Fatal(err)
	}
	x := New(dbtest.New(t), release.New(release.Config{Blobs: blobs}))
	if err := x.draw(t.Context(), Draw{"0000000000000000000000000000000000000000000000000000000000000000"}, 1); err != nil {
		t.Error(err)
	}
	if err := x.draw(t.Context(), Draw{"nonsense"}, 1); err == nil {
		t.Error("a thumbnail was drawn of nonsense")
	}
}
