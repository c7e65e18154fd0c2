package dashboard

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/operation"
	"slipway/internal/tenant/site"
	"slipway/internal/wordpress/wordpress"
)

// screenshot stores a screenshot of a site.
func (w *world) screenshot(id site.ID, kind string, at db.Time) {
	w.t.Helper()
	must(w.t, w.db.Admin(w.t.Context(), fmt.Sprintf(`INSERT INTO screenshots (site_id, kind, image, made_at) VALUES ('%s', '%s', '%s', %d)`,
		id, kind, base64.StdEncoding.EncodeToString([]byte("a picture: "+kind)), at)))
}

// An update shows what it changed, with versions and screenshots from before and after. Screenshots of an earlier
// update aren't shown.
func TestUpdatePictures(t *testing.T) {
	t.Parallel()
	var p blog
	w := p.world(t)
	u := w.user("ada@example.test", false)
	b := w.as(u.Email)
	at := w.liveWordPressNamed(u, b, "Press")
	id := site.ID(strings.Split(at, "/")[2])
	ops := operation.New(operation.Config{DB: w.db})
	ctx := t.Context()
	update := func() (o operation.Operation) {
		t.Helper()
		must(t, w.db.Write(ctx, func(tx *db.Tx) (err error) {
			o, err = ops.OpenTx(ctx, tx, u.Owner, operation.NewOperation{Kind: "wordpress.update", Site: id})
			return err
		}))
		return o
	}
	end := func(o operation.Operation) {
		t.Helper()
		must(t, w.db.Write(ctx, func(tx *db.Tx) error {
			return ops.EndTx(ctx, tx, o.ID, "Updated 2", "", map[string]any{"updated": []wordpress.Changed{
				{Kind: "core", From: "6.1.90", To: "6.1.91"}, {Kind: "plugin", Slug: "<b>shop", From: "2.0", To: "2.1"},
			}})
		}))
	}
	o := update()
	w.screenshot(id, "before", o.CreatedAt)
	w.screenshot(id, "after", o.CreatedAt)
	b.get(at).lacks(t, `data-test="pictures"`)
	end(o)
	page := b.get(at)
	page.want(
		t, 200, `WordPress <code>6.1.90</code> → <code>6.1.91</code>`, `&lt;b&gt;shop <span class="soft">plugin</span> <code>2.0</code> → <code>2.1</code>`,
		"The site before the update", "The site after the update",
	)
	for _, kind := range []string{"before", "after"} {
		path := fmt.Sprintf("/sites/%s/pictures/%s-%d.shot", id, kind, o.CreatedAt)
		if !strings.Contains(page.body, path) {
			t.Errorf("the page doesn't show %s", path)
		}
		if r := b.get(path); r.status != http.StatusOK || r.body != "a picture: "+kind || r.header.Get("Content-Type") != "image/jpeg" {
			t.Errorf("%s: %s", path, r)
		}
		w.user(kind+"@example.test", false)
		if r := w.as(kind + "@example.test").get(path); r.status != http.StatusNotFound {
			t.Errorf("a stranger gets the picture: %d", r.status)
		}
	}
	must(t, w.db.Admin(ctx, `UPDATE screenshots SET made_at = 1`))
	b.get(at).want(t, 200, `data-test="changed"`).lacks(t, `data-test="pictures"`)
}

// A site's card and overview show its screenshot.
func TestScreenshotOfSite(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	u := w.user("ada@example.test", false)
	b := w.as(u.Email)
	s := w.site(u, "Harbor")
	b.get("/").lacks(t, `data-test="screenshot"`)
	w.screenshot(s.ID, "live", 5)
	for _, at := range []string{"/", "/sites/" + string(s.ID)} {
		b.get(at).want(t, 200, fmt.Sprintf(`src="/sites/%s/pictures/live-5.shot"`, s.ID))
	}
	must(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
		hidden, word := "all", "a password for visitors"
		_, err := w.dash.Sites.UpdateServingTx(t.Context(), tx, u.Owner, s.ID, site.ServingPatch{Protection: &hidden, Password: &word}, "a hash")
		return err
	}))
	b.get("/").lacks(t, `data-test="screenshot"`)
}
