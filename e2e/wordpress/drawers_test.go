package wordpress

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"slipway/e2e/world"
	"slipway/internal/deploy/screenshot"
)

// Updates of a WordPress take screenshots of the site before and after. The requests that the dashboard's pages of a
// WordPress show work when pasted into a shell.
func TestDrawersAndPictures(t *testing.T) {
	t.Parallel()
	world.Long(t)
	h := install(t)
	ok(t, h.Stop(t.Context()))
	h.Flags = append(h.Flags, "--browser", screenshot.Find(""))
	ok(t, h.Start(t.Context()))
	s := h.ready(h.create("Blog").ID)
	var staging struct{ ID string }
	h.call("POST", "/sites/"+s.ID+"/clone", map[string]any{"name": "Staging"}, &staging)
	h.ended(staging.ID, "success")
	h.offer("6.1.91")
	var op workBody
	h.call("POST", "/sites/"+s.ID+"/wordpress/update", map[string]any{"core": true}, &op)
	h.ended(op.ID, "success")
	p, err := h.Person("ada@example.test")
	ok(t, err)
	at := "/sites/" + s.ID + "/wordpress"
	page, err := p.Open("http://"+h.Listen+at, nil)
	ok(t, err)
	for _, want := range []string{"<code>6.1.90</code> → <code>6.1.91</code>", "The site before the update", "The site after the update"} {
		if !strings.Contains(page.Body, want) {
			t.Errorf("the page of the update lacks %s", want)
		}
	}
	for _, part := range strings.Split(page.Body, `src="`)[1:] {
		path, _, _ := strings.Cut(part, `"`)
		if strings.HasSuffix(path, ".shot") {
			if picture, err := p.Open("http://"+h.Listen+path, nil); err != nil || !strings.HasPrefix(picture.Body, "\xff\xd8\xff") {
				t.Errorf("%s: %d, %v", path, picture.Status, err)
			}
		}
	}
	drawers, err := p.Drawers(at, at+"/users", at+"/push")
	ok(t, err)
	// TestDrawers in e2e runs those of other pages.
	drawers = slices.DeleteFunc(drawers, func(d world.Drawer) bool { return !strings.Contains(d.Page, "/wordpress") })
	dir := t.TempDir()
	ok(t, os.WriteFile(filepath.Join(dir, "site.tar.gz"), h.export(s), 0o600))
	before := func(string) error { // each request's operation ends before the next request
		h.until("the end of all operations", func() bool {
			var sites struct{ Data []siteBody }
			h.call("GET", "/sites?limit=100", nil, &sites)
			for _, x := range sites.Data {
				var list struct{ Data []struct{ Status string } }
				h.call("GET", "/sites/"+x.ID+"/operations", nil, &list)
				for _, o := range list.Data {
					if o.Status == "pending" || o.Status == "running" {
						return false
					}
				}
			}
			return true
		})
		return nil
	}
	n, failed, err := h.RunDrawers(t.Context(), dir, drawers, map[string]string{"SLIPWAY_KEY": h.key, "VALUE": "x", "API_TOKEN": "x"}, before)
	ok(t, err)
	for _, f := range failed {
		t.Error(f)
	}
	t.Logf("%d requests", n)
}
