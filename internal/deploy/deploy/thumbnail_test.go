package deploy

import (
	"bytes"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"testing"

	"slipway/internal/deploy/deployment"
	"slipway/internal/deploy/thumbnail"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
)

func icon(c color.Color) string {
	img := image.NewNRGBA(image.Rect(0, 0, 40, 40))
	draw.Draw(img, img.Bounds(), image.NewUniform(c), image.Point{}, draw.Src)
	var b bytes.Buffer
	if err := png.Encode(&b, img); err != nil {
		panic(err)
	}
	return b.String()
}

// thumbnail waits until the site has one of what it serves.
func (w *world) thumbnail(id site.ID) thumbnail.Summary {
	w.t.Helper()
	var p thumbnail.Summary
	w.until("there is a thumbnail", func() bool {
		all, err := w.thumbnails.OfSites(w.t.Context(), anna, []site.ID{id})
		ok(w.t, err)
		var there bool
		p, there = all[id]
		return there
	})
	return p
}

// What becomes live gets a thumbnail: by a deployment, by a rollback, and where one is
// missing. Only its owner sees it.
func TestThumbnails(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.commit("blog", map[string]string{
		"index.html":  "<title>First</title><meta name=theme-color content=#aa3311>",
		"favicon.ico": icon(color.NRGBA{200, 0, 0, 255}),
	})
	s := w.live(w.site("git.test/acme/blog").ID)
	p := w.thumbnail(s.ID)
	if p.Title != "First" || p.Color != "#aa3311" || !p.Icon || p.Image || p.Release != s.LiveRelease {
		t.Errorf("%+v", p)
	}
	b, kind, err := w.thumbnails.IconOf(t.Context(), anna, s.ID, p.Release)
	ok(t, err)
	if kind != "image/png" {
		t.Error("the icon is", kind)
	}
	if img, err := png.Decode(bytes.NewReader(b)); err != nil || img.Bounds().Dx() != 96 {
		t.Error("the icon:", err)
	}
	for name, err := range map[string]error{
		"no image":        second(w.thumbnails.ImageOf(t.Context(), anna, s.ID, p.Release)),
		"a stranger":      third(w.thumbnails.IconOf(t.Context(), "usr_eve", s.ID, p.Release)),
		"another release": third(w.thumbnails.IconOf(t.Context(), anna, s.ID, "0123")),
		"no site":         third(w.thumbnails.IconOf(t.Context(), anna, "site_x", p.Release)),
	} {
		if !fault.Is(err, fault.NotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if all, err := w.thumbnails.OfSites(t.Context(), account.OwnerID("usr_eve"), []site.ID{s.ID}); err != nil || len(all) != 0 {
		t.Errorf("a stranger sees %v, %v", all, err)
	}

	first := p.Release
	w.commit("blog", map[string]string{"index.html": "<h1>Second</h1>"})
	w.ended(w.trigger(s.ID, Trigger{Cause: deployment.ByAPI}).ID)
	w.until("the second has a thumbnail", func() bool { return w.thumbnail(s.ID).Title == "Second" })
	// The first one's goes with time, and comes back with its release.
	ok(t, w.db.Admin(t.Context(), `UPDATE thumbnails SET made_at = 1`))
	ok(t, thumbnail.Tidy(t.Context(), w.db))
	var n int
	ok(t, w.db.QueryRow(t.Context(), `SELECT count(*) FROM thumbnails`).Scan(&n))
	if n != 1 {
		t.Errorf("%d thumbnails are stored", n)
	}
	w.write(func(tx *db.Tx) error {
		_, err := w.RollbackTx(t.Context(), tx, anna, s.ID, "")
		return err
	})
	w.until("the first has a thumbnail again", func() bool { return w.thumbnail(s.ID).Release == first })

	w.until("the job has written its end", func() bool {
		var n int
		ok(
			t,
			w.db.QueryRow(
				t.Context(),
				`SELECT count(*) FROM jobs WHERE kind = 'deploy.thumbnail' AND state IN ('ready', 'running')`,
			).Scan(&n),
		)
		return n == 0
	})
	ok(t, w.db.Admin(t.Context(), `DELETE FROM thumbnails`))
	ok(t, thumbnail.Tidy(t.Context(), w.db))
	if p := w.thumbnail(s.ID); p.Title != "First" {
		t.Errorf("made up for: %+v", p)
	}
}

func second[T any](_ T, err error) error { return err }

func third[T, U any](_ T, _ U, err error) error { return err }
