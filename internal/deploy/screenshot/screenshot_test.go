package screenshot

import (
	"bytes"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"testing"

	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/job"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
)

// A screenshot is visible only to its owner, isn't shown while the site requires a password or a sign-in, and is
// deleted with the site.
func TestWhoSees(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	job.New(job.Config{DB: d})
	s := New(Config{DB: d, Sites: site.New(site.Config{DB: d, Domain: "sites.test"})})
	ctx := t.Context()
	const owner = account.OwnerID("usr_ada")
	id := site.ID("site_harbor")
	if err := d.Admin(ctx, `INSERT INTO sites (id, owner_id, name, slug, type, runtime, status, status_reason, repository, branch, framework, build, credential, needs_redeploy, live_deployment, live_release, live_version, created_at, updated_at, deleted_at)
		VALUES ('site_harbor', 'usr_ada', 'Harbor', 'harbor', 'static', '', 'active', '', '', '', '', '', '', FALSE, 'dep', 'rel', 1, 1, 1, 0)`); err != nil {
		t.Fatal(err)
	}
	seen := func(owner account.OwnerID) bool {
		t.Helper()
		all, err := s.OfSites(ctx, owner, []site.ID{id})
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.ImageOf(ctx, owner, id, Live)
		if (err == nil) != (len(all[id]) == 1) {
			t.Errorf("listed: %v, read: %v", all, err)
		}
		return err == nil
	}
	if seen(owner) {
		t.Error("there is a picture before one was taken")
	}
	if err := s.store(ctx, id, Live, []byte("a picture")); err != nil {
		t.Fatal(err)
	}
	if !seen(owner) || seen("usr_eve") {
		t.Error("the owner sees none, or a stranger does")
	}
	for settings, want := range map[string]bool{
		`{"protection": "all", "hash": "x"}`: false, `{"signIn": "all"}`: false, `no JSON`: false, `{"protection": "previews", "hash": "x"}`: true,
	} {
		if err := d.Admin(ctx, `DELETE FROM site_serving`); err != nil {
			t.Fatal(err)
		}
		if err := d.Admin(ctx, `INSERT INTO site_serving (site_id, settings) VALUES ('site_harbor', '`+settings+`')`); err != nil {
			t.Fatal(err)
		}
		if got := seen(owner); got != want {
			t.Errorf("with %s it is seen: %v", settings, got)
		}
		target, err := s.find(ctx, id)
		if err != nil || target.open != want || !target.live {
			t.Errorf("with %s: %+v, %v", settings, target, err)
		}
	}
	if err := d.Admin(ctx, `UPDATE sites SET deleted_at = 2`); err != nil {
		t.Fatal(err)
	}
	if err := Tidy(ctx, d); err != nil {
		t.Fatal(err)
	}
	var n int
	if err := d.QueryRow(ctx, `SELECT count(*) FROM screenshots`).Scan(&n); err != nil || n != 0 {
		t.Errorf("%d pictures stay after the site: %v", n, err)
	}
}

// encode accepts only a PNG of the expected size.
func TestEncode(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	picture := func(w, h int) []byte {
		var b bytes.Buffer
		if err := png.Encode(&b, image.NewRGBA(image.Rect(0, 0, w, h))); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	for name, b := range map[string][]byte{
		"ok": picture(viewWidth, viewHeight), "large": picture(viewWidth, 4*viewHeight), "tiny": picture(1, 1), "no picture": []byte("<html>"),
		"cut short": picture(viewWidth, viewHeight)[:500], "endless": make([]byte, maxBytes+1),
	} {
		at := filepath.Join(dir, "page.png")
		if err := os.WriteFile(at, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := encode(at); (err == nil) != (name == "ok") {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
	if err := os.Remove(filepath.Join(dir, "page.png")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "page.png")); err != nil {
		t.Fatal(err)
	}
	if _, err := encode(filepath.Join(dir, "page.png")); err == nil {
		t.Error("a link that leads out of the folder was followed")
	}
}
