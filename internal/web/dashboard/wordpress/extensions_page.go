package wordpress

import (
	"context"
	"slices"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/site"
	"slipway/internal/web/dashboard/shell"
	"slipway/internal/web/dashboard/sites"
	"slipway/internal/wordpress/wordpress"
)

func (d *Pages) extensionRoutes() []shell.Route {
	manage := func(kind string) func(context.Context, *shell.Request) (shell.Answer, error) {
		return func(ctx context.Context, q *shell.Request) (shell.Answer, error) {
			return d.manageExtensions(ctx, q, kind)
		}
	}
	return []shell.Route{
		shell.Post("/sites/{id}/wordpress/plugins", shell.User, manage(wordpress.Plugin), d.wordpressPage).Takes(account.SitesWrite),
		shell.Post("/sites/{id}/wordpress/themes", shell.User, manage(wordpress.Theme), d.wordpressPage).Takes(account.SitesWrite),
	}
}

// deleteData is the page that confirms the deletion of plugins or themes.
type deleteData struct {
	sites.SiteHead
	Kind string
	List []wordpress.Extension
}

// manageExtensions performs a button's action on the selected plugins or themes. It asks for confirmation of deletions.
func (d *Pages) manageExtensions(ctx context.Context, q *shell.Request, kind string) (shell.Answer, error) {
	id := shell.PathID[site.ID](q, "id")
	if _, err := d.Sites.Get(ctx, q.Caller.Owner, id); err != nil {
		return shell.Answer{}, err
	}
	action, slugs := q.Value("action"), q.PostForm["slug"]
	if len(slugs) == 0 {
		return shell.Answer{}, fault.New(fault.Invalid, "", "No "+kind+" is selected",
			"select at least one, then choose what to do")
	}
	switch {
	case action == "update":
		u := wordpress.Update{Plugins: wordpress.Choice{Slugs: slugs}}
		if kind == wordpress.Theme {
			u = wordpress.Update{Themes: wordpress.Choice{Slugs: slugs}}
		}
		return d.actOnWordPress(ctx, q, "wordpress.update", "Update started", func(tx *db.Tx, id site.ID) error {
			_, err := d.WordPress.UpdateNowTx(ctx, tx, q.Caller.Owner, id, u)
			return err
		})
	case action == wordpress.Delete && !q.Checked("confirmed"):
		return d.confirmDelete(ctx, q, kind, slugs)
	}
	m := wordpress.Manage{Kind: kind, Action: action, Slugs: slugs}
	err := d.ActOn(ctx, q, func(tx *db.Tx) (audit.Event, error) {
		_, err := d.WordPress.ManageTx(ctx, tx, q.Caller.Owner, id, m)
		return audit.Event{Action: "wordpress.extensions", Subject: string(id), Detail: m.Words()}, err
	})
	return shell.GoTo("/sites/"+string(id)+"/wordpress", startWords[action]), err
}

// startWords holds the messages after starting an action.
var startWords = map[string]string{
	wordpress.Activate: "Activation started", wordpress.Deactivate: "Deactivation started", wordpress.Delete: "Deletion started",
	wordpress.EnableAutoUpdate: "Enabling automatic updates", wordpress.DisableAutoUpdate: "Disabling automatic updates",
}

func (d *Pages) confirmDelete(ctx context.Context, q *shell.Request, kind string, slugs []string) (shell.Answer, error) {
	head, err := d.Head(ctx, q, "wordpress")
	if err != nil {
		return shell.Answer{}, err
	}
	state, _, err := d.WordPress.Stored(ctx, q.Caller.Owner, head.Site.ID)
	if err != nil {
		return shell.Answer{}, err
	}
	data := deleteData{SiteHead: head, Kind: kind}
	have := state.Plugins
	if kind == wordpress.Theme {
		have = state.Themes
	}
	for _, slug := range slugs[:min(len(slugs), 200)] {
		x := wordpress.Extension{Slug: slug, Name: slug}
		if i := slices.IndexFunc(have, func(x wordpress.Extension) bool { return x.Slug == slug }); i >= 0 {
			x = have[i]
		}
		if x.Active {
			return shell.Answer{}, fault.New(fault.Conflict, "", x.Name+" is active",
				"nothing was deleted: deactivate it first, or activate another theme")
		}
		data.List = append(data.List, x)
	}
	data.Sub = "Delete " + kind + "s"
	return shell.Page("site_wordpress_delete", "Delete "+kind+"s of "+head.Site.Name, data), nil
}
