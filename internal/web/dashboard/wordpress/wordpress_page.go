package wordpress

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"slipway/internal/deploy/screenshot"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/site"
	"slipway/internal/web/dashboard/shell"
	"slipway/internal/web/dashboard/sites"
	"slipway/internal/wordpress/difference"
	"slipway/internal/wordpress/wordpress"
)

func (d *Pages) Routes() []shell.Route {
	return slices.Concat(d.extensionRoutes(), d.wordpressUserRoutes(), d.rootRoutes(), []shell.Route{
		shell.Get("/sites/{id}/wordpress", shell.User, d.wordpressPage).Takes(account.SitesRead),
		shell.Get("/sites/{id}/wordpress/state/follow", shell.User, d.wordpressState).Takes(account.SitesRead),
		shell.Get("/sites/{id}/wordpress/follow", shell.User, d.wordpressLive).Takes(account.SitesRead),
		shell.Post("/sites/{id}/wordpress/login", shell.User, d.loginWordPress, d.wordpressPage).Takes(account.SitesWrite),
		shell.Post("/sites/{id}/wordpress/purge", shell.User, d.purgeWordPress, d.wordpressPage).Takes(account.SitesWrite),
		shell.Post("/sites/{id}/wordpress/settings", shell.User, d.saveWordPress, d.wordpressPage).Takes(account.SitesWrite),
		shell.Post("/sites/{id}/wordpress/update", shell.User, d.updateWordPress, d.wordpressPage).Takes(account.SitesWrite),
		shell.Post("/sites/{id}/wordpress/clone", shell.User, d.cloneWordPress, d.wordpressPage).Takes(account.SitesWrite).Wide(),
		shell.Get("/sites/{id}/wordpress/push", shell.User, d.pushPage).Takes(account.SitesWrite),
		shell.Post("/sites/{id}/wordpress/push", shell.User, d.pushWordPress, d.pushPage).Takes(account.SitesWrite),
		shell.Post("/sites/{id}/wordpress/replace", shell.User, d.replaceWordPress, d.wordpressPage).Takes(account.SitesWrite),
		shell.Post("/sites/{id}/wordpress/import", shell.User, d.importWordPress, d.wordpressPage).Takes(account.SitesWrite),
		shell.Post("/sites/{id}/wordpress/upload", shell.User, d.uploadArchive, d.wordpressPage).
			Takes(account.SitesWrite).Receives(d.receiveArchive),
	})
}

type wordpressData struct {
	sites.SiteHead
	State  wordpress.State
	At     db.Time // time of WordPress's report; 0: none
	Error  string  // why WordPress doesn't respond
	Stale  bool    // whether a new report is being requested
	Work   []wordpressWork
	Others []site.Site // possible push targets, the site's origin first
	Origin site.ID     // site that it was cloned from; empty: none that can be a target
	// NoObjectCache is why the object cache is unavailable; empty: it is available.
	NoObjectCache string
}

// ObjectCacheState describes the state of the object cache, or returns "" if it is off.
func (d wordpressData) ObjectCacheState() string {
	c := d.State.ObjectCache
	switch c.Status {
	case wordpress.ObjectsActive:
		if c.Shared {
			return "Active on the Redis server of this installation"
		}
		share := 0
		if all := c.Hits + c.Misses; all > 0 {
			share = int(100 * c.Hits / all)
		}
		return fmt.Sprintf("Active: %d objects, %d MiB, %d %% hits", c.Keys, c.Bytes>>20, share)
	case wordpress.ObjectsPending:
		return "Starts when the site is restarted; redeploy a site whose last deployment is older than this setting"
	case wordpress.ObjectsPaused:
		return "Paused while a command, a terminal, a worker or another deployment of the site runs"
	case wordpress.ObjectsReplaced:
		return "Not used: wp-content has an object-cache.php of its own"
	case wordpress.ObjectsDown:
		return "Redis does not respond. WordPress works without it"
	case wordpress.ObjectsUnavailable:
		return "Not available: " + d.NoObjectCache
	}
	return ""
}

// Has describes what an import or replacement affects: "128 posts, 3 users and 1,204 files". It is "" if unknown.
func (d wordpressData) Has() string {
	c := d.State.Content
	var parts []string
	add := func(a difference.Amount, kind string) {
		if a.Count > 0 {
			parts = append(parts, contentWord(a.Count, kind, a.Name))
		}
	}
	for _, p := range c.Posts[:min(len(c.Posts), 6)] {
		add(p, p.Type)
	}
	for _, x := range []struct {
		kind string
		of   *difference.Amount
	}{{"comment", c.Comments}, {"user", c.Users}, {"file", c.Files}} {
		if x.of != nil {
			add(*x.of, x.kind)
		}
	}
	return shell.Enumerate(parts)
}

// LastChange returns the time of the content's last change; 0 means unknown.
func (d wordpressData) LastChange() (at db.Time) {
	c := d.State.Content
	for _, p := range c.Posts {
		at = max(at, p.Changed.At())
	}
	for _, a := range []*difference.Amount{c.Comments, c.Users, c.Files} {
		if a != nil {
			at = max(at, a.Changed.At())
		}
	}
	return at
}

// Updates reports whether any update is available.
func (d wordpressData) Updates() bool {
	newer := func(x wordpress.Extension) bool { return x.UpdateVersion != "" }
	return d.State.LatestVersion != "" && d.State.LatestVersion != d.State.Version ||
		slices.ContainsFunc(d.State.Plugins, newer) || slices.ContainsFunc(d.State.Themes, newer)
}

// wordpressWork is an operation on the page.
type wordpressWork struct {
	Name, Message, Error string
	Percent              int
	Site                 site.ID // site that it created; empty: none
	Over, Failed         bool
	At, Ended            db.Time

	Changed  []wordpress.Changed // updated components with their versions
	Pictures []workPicture       // screenshots before and after the latest update
}

// workPicture is a screenshot of an operation.
type workPicture struct {
	Label, Path string
	At          db.Time
}

// pictures returns the screenshots taken during an update.
func pictures(id site.ID, found []screenshot.Found, from, to db.Time) (out []workPicture) {
	for _, kind := range []screenshot.Kind{screenshot.Before, screenshot.After} {
		for _, f := range found {
			if f.Kind == kind && f.MadeAt >= from && f.MadeAt <= to {
				out = append(out, workPicture{
					map[screenshot.Kind]string{screenshot.Before: "Before", screenshot.After: "After"}[kind],
					sites.ScreenshotPath(id, f), f.MadeAt,
				})
			}
		}
	}
	return out
}

// workNames holds the operations' display names.
var workNames = map[string]string{
	"wordpress.update":         "Update",
	"wordpress.search_replace": "Search and replace",
	"wordpress.purge":          "Purge of the page cache",
	"site.clone":               "Clone",
	"site.push":                "Push",
	"wordpress.import":         "Import",
	"wordpress.extensions":     "Plugins and themes",
	"wordpress.user":           "User",
	"wordpress.address":        "Primary domain",
}

func (d *Pages) wordpressPage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	head, err := d.Head(ctx, q, "wordpress")
	if err != nil {
		return shell.Answer{}, err
	}
	data := wordpressData{SiteHead: head, NoObjectCache: d.WordPress.NoObjectCache()}
	if q.Query("refresh") != "" { // for browsers without scripts
		if _, err = d.WordPress.Read(ctx, q.Caller.Owner, head.Site.ID); err != nil && fault.As(err) == nil {
			return shell.Answer{}, err
		}
	}
	why := fault.As(err)
	if data.State, data.At, err = d.WordPress.Stored(ctx, q.Caller.Owner, head.Site.ID); err != nil {
		why = fault.As(err)
		if why == nil {
			return shell.Answer{}, err
		}
	}
	if why != nil {
		data.Error = why.Message + ": " + why.Details
	}
	if data.Work, err = d.wordpressWork(ctx, q, head.Site.ID); err != nil {
		return shell.Answer{}, err
	}
	data.Stale = data.Error == "" && data.stale()
	if err == nil && data.At != 0 {
		if data.Others, data.Origin, err = d.WordPress.Others(ctx, q.Caller.Owner, head.Site.ID); err != nil {
			return shell.Answer{}, err
		}
		data.Others = slices.DeleteFunc(data.Others, func(s site.Site) bool { return !q.Caller.Allows(s.ID) })
	}
	return shell.Page("site_wordpress", "WordPress of "+head.Site.Name, data), nil
}

func (d *Pages) wordpressWork(ctx context.Context, q *shell.Request, id site.ID) ([]wordpressWork, error) {
	list, err := d.WordPress.Operations(ctx, q.Caller.Owner, id)
	if err != nil {
		return nil, err
	}
	taken, err := d.Screenshots.OfSites(ctx, q.Caller.Owner, []site.ID{id})
	if err != nil {
		return nil, err
	}
	var out []wordpressWork
	for _, o := range list {
		if name := workNames[o.Kind]; name != "" {
			var result struct {
				SiteID  site.ID
				Updated []wordpress.Changed
			}
			if o.CompletedAt != 0 && o.Error == "" && len(o.Result) > 0 {
				_ = json.Unmarshal(o.Result, &result) // no site if the result names none
			}
			out = append(out, wordpressWork{
				Name:    name,
				Message: o.Message,
				Error:   o.Error,
				Percent: int(max(0, o.Progress) * 100),
				Site:    result.SiteID,
				Over:    o.CompletedAt != 0,
				Failed:  o.Error != "",
				At:      o.CreatedAt,
				Ended:   o.CompletedAt,

				Changed:  result.Updated,
				Pictures: pictures(id, taken[id], o.CreatedAt, o.CompletedAt),
			})
		}
	}
	return out, nil
}

// factsLife is how long WordPress's report is considered current.
const factsLife = time.Minute

// stale reports whether WordPress must report again, because the report is old or precedes the end of an operation.
func (d wordpressData) stale() bool {
	if db.Now().Sub(d.At) > factsLife {
		return true
	}
	return slices.ContainsFunc(d.Work, func(w wordpressWork) bool { return !w.Over || w.Ended > d.At })
}

// The delays before asking a WordPress that doesn't respond again, doubled each time.
const (
	firstAgain   = 2 * time.Second
	longestAgain = 5 * time.Minute
)

// wordpressState requests WordPress's report in the background, waking it, and ends once a new report is stored, which
// the page then shows. If WordPress doesn't respond, the page shows why, and it retries with increasing delays.
func (d *Pages) wordpressState(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	head, err := d.Head(ctx, q, "wordpress")
	if err != nil {
		return shell.Answer{}, err
	}
	data := wordpressData{SiteHead: head}
	wait, next := firstAgain, time.Time{}
	return shell.LivePart(time.Second, func(ctx context.Context) ([]byte, bool, error) {
		if now := time.Now(); !now.Before(next) {
			fresh, err := d.askWordPress(ctx, q, &data)
			if fresh {
				return nil, true, nil
			}
			data.Error = ""
			if f := fault.As(err); f != nil {
				data.Error = f.Message + ": " + f.Details
				next, wait = time.Now().Add(wait), min(2*wait, longestAgain)
			} else if err != nil {
				return nil, false, err
			}
		}
		data.Stale = data.Error == ""
		html, err := d.Part(ctx, q, "site_wordpress", "wordpress-state", data)
		return html, false, err
	}), nil
}

// askWordPress refreshes data. It requests a new report if the stored one is stale, unless an operation is running.
// fresh is true if nothing is stale any more.
func (d *Pages) askWordPress(ctx context.Context, q *shell.Request, data *wordpressData) (fresh bool, err error) {
	if data.State, data.At, err = d.WordPress.Stored(ctx, q.Caller.Owner, data.Site.ID); err != nil {
		return false, err
	}
	if data.Work, err = d.wordpressWork(ctx, q, data.Site.ID); err != nil || !data.stale() {
		return err == nil, err
	}
	if working(data.Work) {
		return false, nil
	}
	data.State, err = d.WordPress.Read(ctx, q.Caller.Owner, data.Site.ID)
	return err == nil, err
}

// wordpressLive updates the operations as they progress.
func (d *Pages) wordpressLive(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	head, err := d.Head(ctx, q, "wordpress")
	if err != nil {
		return shell.Answer{}, err
	}
	return shell.LivePart(time.Second, func(ctx context.Context) ([]byte, bool, error) {
		html, _, err := d.workPart(ctx, q, head, "site_wordpress")
		return html, false, err
	}), nil
}

// workPart renders the operations for a page.
func (d *Pages) workPart(ctx context.Context, q *shell.Request, head sites.SiteHead, page string) ([]byte, []wordpressWork, error) {
	work, err := d.wordpressWork(ctx, q, head.Site.ID)
	if err != nil {
		return nil, nil, err
	}
	html, err := d.Part(ctx, q, page, "wordpress-operations", wordpressData{SiteHead: head, Work: work})
	return html, work, err
}

// working reports whether an operation is running.
func working(work []wordpressWork) bool {
	return slices.ContainsFunc(work, func(w wordpressWork) bool { return !w.Over })
}

// loginWordPress signs the owner in to wp-admin with a one-time link.
func (d *Pages) loginWordPress(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	head, err := d.Head(ctx, q, "wordpress")
	if err != nil {
		return shell.Answer{}, err
	}
	l, err := d.WordPress.Login(ctx, q.Caller.Owner, head.Site.ID)
	if err != nil {
		return shell.Answer{}, err
	}
	err = d.ActOn(ctx, q, func(*db.Tx) (audit.Event, error) {
		return audit.Event{Action: "wordpress.login", Subject: string(head.Site.ID)}, nil
	})
	return shell.Onward(shell.OnwardData{To: l.URL}), err
}

func (d *Pages) purgeWordPress(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	return d.actOnWordPress(ctx, q, "wordpress.purged", "Page cache purged", func(tx *db.Tx, id site.ID) error {
		return d.WordPress.PurgeTx(ctx, tx, q.Caller.Owner, id, nil)
	})
}

// actOnWordPress performs an action on the site and redirects to its page.
func (d *Pages) actOnWordPress(
	ctx context.Context, q *shell.Request, action, toast string, fn func(tx *db.Tx, id site.ID) error,
) (shell.Answer, error) {
	id := shell.PathID[site.ID](q, "id")
	err := d.ActOn(ctx, q, func(tx *db.Tx) (audit.Event, error) {
		return audit.Event{Action: action, Subject: string(id)}, fn(tx, id)
	})
	return shell.GoTo("/sites/"+string(id)+"/wordpress", toast), err
}

func (d *Pages) saveWordPress(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	maintenance, xmlrpc, debug, auto := q.Checked("maintenance"), q.Checked("xmlrpc"), q.Checked("debug"), wordpress.AutoOff
	if q.Checked("auto_update") {
		auto = wordpress.AutoMinor
	}
	p := wordpress.Patch{Maintenance: &maintenance, XMLRPC: &xmlrpc, Debug: &debug, AutoUpdate: &auto}
	if network := q.Value("network"); network != "" {
		p.Network = &network
	}
	if q.PostForm.Has("object_cache_shown") { // the page shows this option
		objects := q.Checked("object_cache")
		p.ObjectCache = &objects
	}
	for name, to := range map[string]**int64{"memory": &p.Memory, "upload": &p.Upload, "execution": &p.Execution} {
		if text := strings.TrimSpace(q.Value(name)); text != "" {
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				return shell.Answer{}, fault.New(fault.Invalid, "invalid_wordpress", "Invalid number",
					"write it in digits").Got(shell.Short(40, text))
			}
			*to = &n
		}
	}
	for name, to := range map[string]**[]string{
		"excluded_cookies": &p.PageCache.Cookies, "excluded_paths": &p.PageCache.Paths, "ignored_query": &p.PageCache.Query,
	} {
		if q.PostForm.Has(name) {
			list := strings.Fields(q.Value(name))
			*to = &list
		}
	}
	id, toast := shell.PathID[site.ID](q, "id"), "Saved. The site applies it within seconds"
	err := d.ActOn(ctx, q, func(tx *db.Tx) (audit.Event, error) {
		changed, err := d.WordPress.UpdateTx(ctx, tx, q.Caller.Owner, id, p)
		if !changed {
			toast = "Nothing has changed"
			return audit.Unchanged, err
		}
		return audit.Event{Action: "site.updated", Subject: string(id)}, err
	})
	return shell.GoTo("/sites/"+string(id)+"/wordpress", toast), err
}

func (d *Pages) updateWordPress(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	u := wordpress.Update{Core: q.Checked("core")}
	for name := range q.PostForm {
		if slug, ok := strings.CutPrefix(name, "plugin-"); ok {
			u.Plugins.Slugs = append(u.Plugins.Slugs, slug)
		}
		if slug, ok := strings.CutPrefix(name, "theme-"); ok {
			u.Themes.Slugs = append(u.Themes.Slugs, slug)
		}
	}
	return d.actOnWordPress(ctx, q, "wordpress.update", "Update started", func(tx *db.Tx, id site.ID) error {
		_, err := d.WordPress.UpdateNowTx(ctx, tx, q.Caller.Owner, id, u)
		return err
	})
}

func (d *Pages) cloneWordPress(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	return d.actOnWordPress(ctx, q, "site.cloned", "Clone started", func(tx *db.Tx, id site.ID) error {
		_, err := d.WordPress.CloneTx(ctx, tx, q.Caller.Owner, id, q.Value("clone"))
		return err
	})
}

func (d *Pages) replaceWordPress(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	if !q.Checked("dry") {
		if err := d.ConfirmedHere(ctx, q, "nothing was replaced"); err != nil {
			return shell.Answer{}, err
		}
	}
	return d.actOnWordPress(ctx, q, "wordpress.search_replace", "Search and replace started", func(tx *db.Tx, id site.ID) error {
		_, err := d.WordPress.ReplaceTx(ctx, tx, q.Caller.Owner, id, wordpress.Replace{
			From: q.Value("from"),
			To:   q.Value("to"),
			Dry:  q.Checked("dry"),
		})
		return err
	})
}

// importWordPress starts an import from a URL.
func (d *Pages) importWordPress(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	if err := d.ConfirmedHere(ctx, q, "nothing was imported"); err != nil {
		return shell.Answer{}, err
	}
	return d.actOnWordPress(ctx, q, "wordpress.import", "Import started", func(tx *db.Tx, id site.ID) error {
		_, err := d.WordPress.ImportFromTx(ctx, tx, q.Caller.Owner, id, wordpress.Download{
			URL:    strings.TrimSpace(q.Value("url")),
			SHA256: strings.TrimSpace(q.Value("sha256")),
		})
		return err
	})
}
