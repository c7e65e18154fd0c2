package wordpress

import (
	"context"
	"strings"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/site"
	"slipway/internal/web/dashboard/shell"
	"slipway/internal/web/dashboard/sites"
	"slipway/internal/wordpress/wordpress"
)

func (d *Pages) rootRoutes() []shell.Route {
	return []shell.Route{
		shell.Get("/sites/{id}/wordpress/root", shell.User, d.rootPage).Takes(account.SitesRead),
		shell.Post("/sites/{id}/wordpress/root", shell.User, d.saveRootFile, d.rootPage).Takes(account.SitesWrite),
	}
}

type rootData struct {
	sites.SiteHead
	Files         []wordpress.RootFile
	Path, Content string // the file in the form
	Error         string // why there are none
}

func (d *Pages) rootPage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	head, err := d.Head(ctx, q, "wordpress")
	if err != nil {
		return shell.Answer{}, err
	}
	head.Sub = "Root files"
	data := rootData{SiteHead: head, Path: q.Query("path")}
	data.Files, err = d.WordPress.RootFiles(ctx, q.Caller.Owner, head.Site.ID)
	if f := fault.As(err); f != nil {
		data.Error = f.Message
	} else if err != nil {
		return shell.Answer{}, err
	}
	for _, f := range data.Files {
		if f.Path == data.Path {
			data.Content = f.Content
		}
	}
	return shell.Page("site_wordpress_root", "Root files of "+head.Site.Name, data), nil
}

// saveRootFile sets or deletes one file among the others.
func (d *Pages) saveRootFile(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	id, toast := shell.PathID[site.ID](q, "id"), "Saved. Visitors get it within seconds"
	path := strings.TrimPrefix(strings.TrimSpace(q.Value("path")), "/")
	content := strings.ReplaceAll(q.Value("content"), "\r\n", "\n")
	to := &content
	if q.Value("action") == "delete" {
		to, toast = nil, "Deleted"
	}
	err := d.ActOn(ctx, q, func(tx *db.Tx) (audit.Event, error) {
		changed, err := d.WordPress.SetRootFileTx(ctx, tx, q.Caller.Owner, id, path, to)
		if !changed {
			toast = "Nothing has changed"
			return audit.Unchanged, err
		}
		return audit.Event{Action: "site.updated", Subject: string(id), Detail: "root files"}, err
	})
	return shell.GoTo("/sites/"+string(id)+"/wordpress/root", toast), err
}
