//go:build browser

package wordpress

import (
	"slipway/e2e/browser"
	"slipway/e2e/world"
)

// inDashboard creates a WordPress in the dashboard and checks its pages in light, dark and phone views. The site is
// backed up and restored in three clicks, deleted with a backup, and restored. It returns the restored site.
func (h *installation) inDashboard() siteBody {
	t := h.t
	chromium := browser.Start(t, browser.Config{Name: "wordpress"})
	w := chromium.Window("http://" + h.Listen)
	w.Go("/sign-in")
	w.Type("#f-email", "ada@example.test")
	w.Type("#f-password", world.Password)
	w.Press("@submit")
	w.Go("/new?type=wordpress")
	w.Look("new")
	w.Type("#f-name", "Blog")
	w.Press("@create")
	s := h.ready(h.newest().ID)
	w.Go("/sites/" + s.ID)
	w.Look("overview")

	w.Go("/sites/" + s.ID + "/wordpress")
	w.Sees("h2", "WordPress 6.1.90")
	w.Sees("@wordpress-installed", "Twenty Twenty-Three")
	w.Sees("@command", "/wordpress/import", "@site.tar.gz")
	h.Hooks.Answer("/site.tar.gz", 404)
	w.Type("#f-url", h.Hooks.URL+"/site.tar.gz")
	w.Type("#f-import-confirm", "Blog")
	w.Press("@wordpress-import")
	w.Sees("@wordpress-operations", "Import", "Failed", "could not be downloaded: its server answered with status 404")
	w.Look("wordpress")
	w.Go("/sites/" + s.ID + "/databases")
	w.Sees("@database", "wordpress", "MariaDB")
	w.Look("databases")

	w.Go("/sites/" + s.ID + "/backups")
	w.Look("backups-none")
	w.Type("#f-note", "Before the redesign")
	w.Press("@back-up")
	w.Sees("@backup @status-verified")
	w.Sees("@backup", "GET / returned 200")
	w.Look("backups")
	list := h.backups(s)
	w.Click("@open-restore-" + list[0])
	w.Sees("@what-happens", "What is there now is backed up first, so you can undo this")
	w.Look("restore")
	w.Type("#confirm-"+list[0], "Blog")
	w.Press("@do-restore-" + list[0])
	w.Sees("@progress @status-success")
	w.Sees("@open-undo*", "Undo restore")
	w.Look("restored")

	w.Go("/sites/" + s.ID + "/settings")
	w.Click("@open-delete-site")
	w.Type("#delete-site-confirm", "Blog")
	w.Click("@tick-backup")
	w.Press("@do-delete-site")
	h.until("the site is gone", func() bool {
		return h.Call(t.Context(), h.key, "GET", "/sites/"+s.ID, nil, &struct{}{}) != nil
	})
	w.Go("/")
	w.Press("@deleted")
	w.Sees("h1", "Deleted sites")
	w.Look("deleted")
	deleted := w.Attr("@deleted-site", "id")
	w.Click("@open-restore-" + deleted)
	w.Look("deleted-restore")
	w.Press("@do-restore-" + deleted)
	back := h.ready(h.newest().ID)
	w.Go("/sites/" + back.ID + "/wordpress")
	w.Sees("@wordpress-installed", "Twenty Twenty-Three")
	return back
}

// newest returns the newest site.
func (h *installation) newest() siteBody {
	h.t.Helper()
	var all struct{ Data []siteBody }
	h.until("there is a site", func() bool {
		_ = h.Call(h.t.Context(), h.key, "GET", "/sites?limit=1", nil, &all)
		return len(all.Data) > 0
	})
	return all.Data[0]
}

// backups returns the IDs of a site's backups, newest first.
func (h *installation) backups(s siteBody) (ids []string) {
	h.t.Helper()
	var list struct{ Data []struct{ ID string } }
	h.call("GET", "/sites/"+s.ID+"/backups", nil, &list)
	for _, b := range list.Data {
		ids = append(ids, b.ID)
	}
	return ids
}
