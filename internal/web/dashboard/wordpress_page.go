package dashboard

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
	"slipway/internal/wordpress/wordpress"
)

func (d *Dashboard) wordpressRoutes() []route {
	return []route{
		get("/sites/{id}/wordpress", user, d.wordpressPage),
		get("/sites/{id}/wordpress/follow", user, d.wordpressLive),
		post("/sites/{id}/wordpress/login", user, d.loginWordPress, d.wordpressPage),
		post("/sites/{id}/wordpress/purge", user, d.purgeWordPress, d.wordpressPage),
		post("/sites/{id}/wordpress/settings", user, d.saveWordPress, d.wordpressPage),
		post("/sites/{id}/wordpress/update", user, d.updateWordPress, d.wordpressPage),
		post("/sites/{id}/wordpress/clone", user, d.cloneWordPress, d.wordpressPage),
		post("/sites/{id}/wordpress/push", user, d.pushWordPress, d.wordpressPage),
		post("/sites/{id}/wordpress/replace", user, d.replaceWordPress, d.wordpressPage),
		post("/sites/{id}/wordpress/import", user, d.importWordPress, d.wordpressPage),
	}
}

// IsWordPress reports whether the site is a WordPress.
func (h siteHead) IsWordPress() bool { return h.Site.Type == site.WordPress }

type wordpressData struct {
	siteHead
	State  wordpress.State
	Error  string // why WordPress does not answer
	Work   []wordpressWork
	Others []site.Site // that this one can be pushed to
	// NoObjectCache says why the server offers no object cache; empty: it does.
	NoObjectCache string
}

// ObjectCacheState says in words what the site's object cache is doing; empty where it is off.
func (d wordpressData) ObjectCacheState() string {
	c := d.State.ObjectCache
	switch c.Status {
	case wordpress.ObjectsActive:
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

// Updates reports whether something has a newer version.
func (d wordpressData) Updates() bool {
	newer := func(x wordpress.Extension) bool { return x.UpdateVersion != "" }
	return d.State.LatestVersion != "" && d.State.LatestVersion != d.State.Version || slices.ContainsFunc(
		d.State.Plugins,
		newer,
	) || slices.ContainsFunc(d.State.Themes, newer)
}

// wordpressWork is an operation as the page shows it.
type wordpressWork struct {
	Name, Message, Error string
	Percent              int
	Over, Failed         bool
	At                   db.Time
}

// workNames are the kinds of operations in people's words.
var workNames = map[string]string{
	"wordpress.update":         "Update",
	"wordpress.search_replace": "Search and replace",
	"wordpress.purge":          "Purge of the page cache",
	"site.clone":               "Clone",
	"site.push":                "Push",
	"wordpress.import":         "Import",
}

// startWordPress notes the settings of a WordPress site that was made in tx.
func (d *Dashboard) startWordPress(ctx context.Context, tx *db.Tx, q *request, s site.Site) error {
	u, err := d.Accounts.User(ctx, q.caller.User)
	if err != nil {
		return err
	}
	return d.WordPress.CreateTx(ctx, tx, s, wordpress.Settings{Locale: strings.TrimSpace(q.value("locale"))}, u.Email)
}

func (d *Dashboard) wordpressPage(ctx context.Context, q *request) (answer, error) {
	head, err := d.head(ctx, q, "wordpress")
	if err != nil {
		return answer{}, err
	}
	data := wordpressData{siteHead: head, NoObjectCache: d.WordPress.NoObjectCache()}
	if data.State, err = d.WordPress.Read(ctx, q.caller.Owner, head.Site.ID); err != nil {
		f := fault.As(err)
		if f == nil {
			return answer{}, err
		}
		data.Error = f.Message + ": " + f.Details
	}
	if data.Work, err = d.wordpressWork(ctx, q, head.Site.ID); err != nil {
		return answer{}, err
	}
	if data.Error == "" {
		if data.Others, err = d.WordPress.Others(ctx, q.caller.Owner, head.Site.ID); err != nil {
			return answer{}, err
		}
	}
	return page("site_wordpress", "WordPress of "+head.Site.Name, data), nil
}

func (d *Dashboard) wordpressWork(ctx context.Context, q *request, id site.ID) ([]wordpressWork, error) {
	list, err := d.WordPress.Operations(ctx, q.caller.Owner, id)
	if err != nil {
		return nil, err
	}
	var out []wordpressWork
	for _, o := range list {
		if name := workNames[o.Kind]; name != "" {
			out = append(out, wordpressWork{
				name,
				o.Message,
				o.Error,
				int(max(0, o.Progress) * 100),
				o.CompletedAt != 0,
				o.Error != "",
				o.CreatedAt,
			})
		}
	}
	return out, nil
}

// wordpressLive sends the operations again whenever they have come further.
func (d *Dashboard) wordpressLive(ctx context.Context, q *request) (answer, error) {
	head, err := d.head(ctx, q, "wordpress")
	if err != nil {
		return answer{}, err
	}
	wake, stop := d.follow(q)
	return answer{live: live{wake: wake, stop: stop, poll: time.Second, render: func(ctx context.Context) ([]byte, bool, error) {
		data := wordpressData{siteHead: head}
		var err error
		if data.Work, err = d.wordpressWork(ctx, q, head.Site.ID); err != nil {
			return nil, false, err
		}
		html, err := d.part(ctx, q, "site_wordpress", "wordpress-operations", data)
		return html, false, err
	}}}, nil
}

// loginWordPress sends the owner into wp-admin by a link that works once.
func (d *Dashboard) loginWordPress(ctx context.Context, q *request) (answer, error) {
	head, err := d.head(ctx, q, "wordpress")
	if err != nil {
		return answer{}, err
	}
	l, err := d.WordPress.Login(ctx, q.caller.Owner, head.Site.ID)
	if err != nil {
		return answer{}, err
	}
	err = d.actOn(ctx, q, func(*db.Tx) (account.AuditEvent, error) {
		return account.AuditEvent{Action: "wordpress.login", Subject: string(head.Site.ID)}, nil
	})
	return onward(onwardData{To: l.URL}), err
}

func (d *Dashboard) purgeWordPress(ctx context.Context, q *request) (answer, error) {
	return d.actOnWordPress(ctx, q, "wordpress.purged", "Page cache purged", func(tx *db.Tx, id site.ID) error {
		return d.WordPress.PurgeTx(ctx, tx, q.caller.Owner, id, nil)
	})
}

// actOnWordPress does something to the site and returns to its page.
func (d *Dashboard) actOnWordPress(
	ctx context.Context,
	q *request,
	action, toast string,
	fn func(tx *db.Tx, id site.ID) error,
) (answer, error) {
	id := site.ID(q.PathValue("id"))
	err := d.actOn(ctx, q, func(tx *db.Tx) (account.AuditEvent, error) {
		return account.AuditEvent{Action: action, Subject: string(id)}, fn(tx, id)
	})
	return goTo("/sites/"+string(id)+"/wordpress", toast), err
}

func (d *Dashboard) saveWordPress(ctx context.Context, q *request) (answer, error) {
	maintenance, xmlrpc, debug, auto := q.checked("maintenance"), q.checked("xmlrpc"), q.checked("debug"), wordpress.AutoOff
	if q.checked("auto_update") {
		auto = wordpress.AutoMinor
	}
	p := wordpress.Patch{Maintenance: &maintenance, XMLRPC: &xmlrpc, Debug: &debug, AutoUpdate: &auto}
	if q.PostForm.Has("object_cache_shown") { // the page offers it
		objects := q.checked("object_cache")
		p.ObjectCache = &objects
	}
	for name, to := range map[string]**int64{"memory": &p.Memory, "upload": &p.Upload, "execution": &p.Execution} {
		if text := strings.TrimSpace(q.value(name)); text != "" {
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				return answer{}, &fault.Error{
					Kind:     fault.Invalid,
					Message:  "Invalid number",
					Details:  "write it in digits",
					Received: short(40, text),
					Code:     "invalid_wordpress",
				}
			}
			*to = &n
		}
	}
	id, toast := site.ID(q.PathValue("id")), "Saved. The site applies it within seconds"
	err := d.actOn(ctx, q, func(tx *db.Tx) (account.AuditEvent, error) {
		changed, err := d.WordPress.UpdateTx(ctx, tx, q.caller.Owner, id, p)
		if !changed {
			toast = "Nothing has changed"
			return account.Unchanged, err
		}
		return account.AuditEvent{Action: "site.updated", Subject: string(id)}, err
	})
	return goTo("/sites/"+string(id)+"/wordpress", toast), err
}

func (d *Dashboard) updateWordPress(ctx context.Context, q *request) (answer, error) {
	u := wordpress.Update{Core: q.checked("core")}
	for name := range q.PostForm {
		if slug, ok := strings.CutPrefix(name, "plugin-"); ok {
			u.Plugins.Slugs = append(u.Plugins.Slugs, slug)
		}
		if slug, ok := strings.CutPrefix(name, "theme-"); ok {
			u.Themes.Slugs = append(u.Themes.Slugs, slug)
		}
	}
	return d.actOnWordPress(ctx, q, "wordpress.update", "Update started", func(tx *db.Tx, id site.ID) error {
		_, err := d.WordPress.UpdateNowTx(ctx, tx, q.caller.Owner, id, u)
		return err
	})
}

func (d *Dashboard) cloneWordPress(ctx context.Context, q *request) (answer, error) {
	return d.actOnWordPress(ctx, q, "site.cloned", "Clone started", func(tx *db.Tx, id site.ID) error {
		_, err := d.WordPress.CloneTx(ctx, tx, q.caller.Owner, id, q.value("clone"))
		return err
	})
}

func (d *Dashboard) pushWordPress(ctx context.Context, q *request) (answer, error) {
	return d.actOnWordPress(
		ctx,
		q,
		"site.pushed",
		"Push started. Its progress is on the page of the other site",
		func(tx *db.Tx, id site.ID) error {
			_, err := d.WordPress.PushTx(ctx, tx, q.caller.Owner, id, site.ID(q.value("to")), q.checked("files"), q.checked("database"))
			return err
		},
	)
}

func (d *Dashboard) replaceWordPress(ctx context.Context, q *request) (answer, error) {
	return d.actOnWordPress(ctx, q, "wordpress.search_replace", "Search and replace started", func(tx *db.Tx, id site.ID) error {
		_, err := d.WordPress.ReplaceTx(ctx, tx, q.caller.Owner, id, wordpress.Replace{
			From: q.value("from"),
			To:   q.value("to"),
			Dry:  q.checked("dry"),
		})
		return err
	})
}

// importWordPress begins an import whose archive is at an address; one that is sent goes to
// the REST interface.
func (d *Dashboard) importWordPress(ctx context.Context, q *request) (answer, error) {
	return d.actOnWordPress(ctx, q, "wordpress.import", "Import started", func(tx *db.Tx, id site.ID) error {
		_, err := d.WordPress.ImportFromTx(ctx, tx, q.caller.Owner, id, wordpress.Download{
			URL:    strings.TrimSpace(q.value("url")),
			SHA256: strings.TrimSpace(q.value("sha256")),
		})
		return err
	})
}
