package configure

import (
	"context"
	"net/url"
	"slices"
	"strconv"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/oauth"
	"slipway/internal/tenant/site"
	"slipway/internal/web/dashboard/shell"
	"slipway/internal/web/dashboard/sites"
)

func (d *Pages) hookRoutes() []shell.Route {
	// A hook's ID is secret, so it is sent in form bodies and never in URLs.
	return []shell.Route{
		shell.Get("/sites/{id}/hooks", shell.User, d.hooksPage).Takes(account.DeploymentsWrite),
		shell.Post("/sites/{id}/hooks", shell.User, d.createHook, d.hooksPage).Takes(account.DeploymentsWrite),
		shell.Post("/sites/{id}/hooks/edit", shell.User, d.editHookPage, d.hooksPage).Takes(account.DeploymentsWrite),
		shell.Post("/sites/{id}/hooks/save", shell.User, d.saveHook, d.editHookPage).Takes(account.DeploymentsWrite),
		shell.Post("/sites/{id}/hooks/rotate", shell.User, d.rotateHook, d.hooksPage).Takes(account.DeploymentsWrite),
		shell.Post("/sites/{id}/hooks/switch", shell.User, d.switchHook, d.hooksPage).Takes(account.DeploymentsWrite),
		shell.Post("/sites/{id}/hooks/delete", shell.User, d.deleteHook, d.hooksPage).Takes(account.DeploymentsWrite),
	}
}

// hookRow is a deploy hook with its URL.
type hookRow struct {
	site.Hook
	ID   string // the secret
	URL  string
	Curl string
	Last string // page of its last deployment, or empty
	Over bool   // whether it has expired
}

// hooksPerPage keeps a page below 100 KB.
const hooksPerPage = 20

type hooksData struct {
	sites.SiteHead
	Hooks []hookRow // newest first
	Form  hookForm  // for a new hook
	Pages shell.Pages
}

func (d *Pages) hooksPage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	head, err := d.Head(ctx, q, "hooks")
	if err != nil {
		return shell.Answer{}, err
	}
	hooks, err := d.Sites.Hooks(ctx, q.Caller.Owner, head.Site.ID)
	if err != nil {
		return shell.Answer{}, err
	}
	slices.Reverse(hooks)
	n := shell.PageNumber(q)
	from := min((n-1)*hooksPerPage, len(hooks))
	data := hooksData{
		SiteHead: head,
		Pages:    shell.Turn(n, len(hooks), hooksPerPage, func(p int) string { return head.Base() + "/hooks?page=" + strconv.Itoa(p) }),
	}
	for _, h := range hooks[from:min(from+hooksPerPage, len(hooks))] {
		r := hookRow{Hook: h, ID: h.ID.Reveal(), URL: d.APIURL + "/hooks/deploy/" + url.PathEscape(h.ID.Reveal())}
		r.Curl = "curl -X POST " + shell.Quote(r.URL)
		r.Over = h.Rules.ExpiresAt != 0 && h.Rules.ExpiresAt <= db.Now()
		if h.LastDeployment != "" {
			r.Last = head.Base() + "/deployments/" + h.LastDeployment
		}
		data.Hooks = append(data.Hooks, r)
	}
	return shell.Page("site_hooks", "Deploy hooks of "+head.Site.Name, data), nil
}

func (d *Pages) createHook(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	head, err := d.Head(ctx, q, "hooks")
	if err != nil {
		return shell.Answer{}, err
	}
	n, err := readHook(q, site.Hook{})
	if err != nil {
		return shell.Answer{}, err
	}
	err = d.ActOn(ctx, q, func(tx *db.Tx) (audit.Event, error) {
		h, err := d.Sites.CreateHookTx(ctx, tx, q.Caller.Owner, head.Site.ID, n)
		return audit.Event{Action: "hook.created", Subject: string(head.Site.ID), Detail: h.Name}, err
	})
	return shell.GoTo(head.Base()+"/hooks", "Deploy hook created"), atHook(err)
}

// changeHook performs an action on a hook of the page's site and writes the audit log without the hook's ID.
func (d *Pages) changeHook(
	ctx context.Context, q *shell.Request, action, says string, fn func(tx *db.Tx, id site.HookID) (site.Hook, error),
) (shell.Answer, error) {
	head, err := d.Head(ctx, q, "hooks")
	if err != nil {
		return shell.Answer{}, err
	}
	id := site.HookID(q.Value("hook"))
	of, err := d.Sites.HookSite(ctx, q.Caller.Owner, id)
	if err == nil && of != head.Site.ID {
		err = fault.Missing("deploy hook")
	}
	if err != nil {
		return shell.Answer{}, err
	}
	err = d.ActOn(ctx, q, func(tx *db.Tx) (audit.Event, error) {
		h, err := fn(tx, id)
		return audit.Event{Action: action, Subject: string(head.Site.ID), Detail: h.Name}, err
	})
	return shell.GoTo(head.Base()+"/hooks", says), err
}

func (d *Pages) rotateHook(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	return d.changeHook(
		ctx,
		q,
		"hook.rotated",
		"URL rotated. The previous URL no longer works",
		func(tx *db.Tx, id site.HookID) (site.Hook, error) {
			h, err := d.Sites.UpdateHookTx(ctx, tx, q.Caller.Owner, id, site.PatchHook{Rotate: true})
			if err == nil {
				err = d.OAuth.RenamedTx(ctx, tx, oauth.DeployHook, id.Ref(), h.ID.Ref())
			}
			return h, err
		},
	)
}

func (d *Pages) switchHook(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	on := q.Value("to") == "on"
	says := "Deploy hook disabled"
	if on {
		says = "Deploy hook enabled"
	}
	return d.changeHook(ctx, q, "hook.updated", says, func(tx *db.Tx, id site.HookID) (site.Hook, error) {
		return d.Sites.UpdateHookTx(ctx, tx, q.Caller.Owner, id, site.PatchHook{Active: &on})
	})
}

func (d *Pages) deleteHook(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	return d.changeHook(ctx, q, "hook.deleted", "Deploy hook deleted", func(tx *db.Tx, id site.HookID) (site.Hook, error) {
		return site.Hook{}, d.Sites.DeleteHookTx(ctx, tx, q.Caller.Owner, id)
	})
}
