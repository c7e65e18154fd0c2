package hold

import (
	"strings"
	"testing"

	"slipway/internal/build/release"
	"slipway/internal/platform/blob"
	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
)

// A held release's blobs are kept until the hold ends. A release that can't be read doesn't prevent a garbage
// collection.
func TestRoots(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	blobs, err := blob.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	releases := release.New(release.Config{Blobs: blobs})
	make := func(text string) release.ID {
		t.Helper()
		w, err := releases.Begin(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Add(t.Context(), "index.html", "", strings.NewReader(text)); err != nil {
			t.Fatal(err)
		}
		rel, err := w.Seal(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return rel.ID
	}
	marked := func() map[blob.Digest]bool {
		t.Helper()
		out := map[blob.Digest]bool{}
		if err := Roots(t.Context(), d, releases, func(x blob.Digest) { out[x] = true }); err != nil {
			t.Fatal(err)
		}
		return out
	}
	keep := func(id release.ID) {
		t.Helper()
		if err := Release(t.Context(), d, id); err != nil {
			t.Fatal(err)
		}
	}
	sql := func(q string, args ...any) {
		t.Helper()
		if err := d.Write(t.Context(), func(tx *db.Tx) error { _, err := tx.Exec(t.Context(), q, args...); return err }); err != nil {
			t.Fatal(err)
		}
	}
	first, second := make("first"), make("second")
	keep("") // a deployment without a base release
	keep(first)
	gone := release.ID(strings.Repeat("ab", 32))
	keep(gone)
	got := marked()
	if !got[blob.Sum([]byte("first"))] || got[blob.Sum([]byte("second"))] {
		t.Errorf("marked %v", got)
	}
	keep(second)
	if got := marked(); !got[blob.Sum([]byte("first"))] || !got[blob.Sum([]byte("second"))] {
		t.Errorf("with both kept, marked %v", got)
	}
	sql(`UPDATE release_holds SET until = $2 WHERE release = $1`, first, db.Now()-1)
	if got := marked(); got[blob.Sum([]byte("first"))] || !got[blob.Sum([]byte("second"))] {
		t.Errorf("with the first past its time, marked %v", got)
	}
	sql(`UPDATE release_holds SET until = $2 WHERE release = $1`, second, db.Now().Add(holdTime/100))
	keep(second) // renews the hold
	var rows int
	var until db.Time
	if err := d.QueryRow(t.Context(), `SELECT count(*) FROM release_holds`).Scan(&rows); err != nil || rows != 2 {
		t.Errorf("%d rows, %v; want those of the second and of the unreadable one", rows, err)
	}
	if err := d.QueryRow(
		t.Context(),
		`SELECT until FROM release_holds WHERE release = $1`,
		second,
	).Scan(&until); err != nil || until.Sub(db.Now()) < holdTime/2 {
		t.Errorf("kept until %s, %v", until, err)
	}
}
