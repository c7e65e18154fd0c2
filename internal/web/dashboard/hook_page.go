package dashboard

import (
	"context"
	"net/url"
	"slices"
	"strconv"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
)

func (d *Dashboard) hookRoutes() []route {
	// A hook's id is a secret: it goes in forms' bodies, never in addresses.
	return []route{
		get("/sites/{id}/hooks", user, d.hooksPage),
		post("/sites/{id}/hooks", user, d.createHook, d.hooksPage),
		post("/sites/{id}/hooks/edit", user, d.editHookPage, d.hooksPage),
		post("/sites/{id}/hooks/save", user, d.saveHook, d.editHookPage),
		post("/sites/{id}/hooks/rotate", user, d.rotateHook, d.hooksPage),
		post("/sites/{id}/hooks/switch", user, d.switchHook, d.hooksPage),
		post("/sites/{id}/hooks/delete", user, d.deleteHook, d.hooksPage),
	}
}

// hookRow is a deploy hook with what calls it.
type hookRow struct {
	site.Hook
	ID   string // the secret
	URL  string
	Curl string
	Last string // the page of the last deployment it caused, or empty
	Over bool   // it has expired
}

// hooksPerPage keeps a page of hooks under 100 KB.
const hooksPerPage = 20

type hooksData struct {
	siteHead
	Hooks []hookRow // the newest first
	Form  hookForm  // of a new one
	Pages pages
}

func (d *Dashboard) hooksPage(ctx context.Context, q *request) (answer, error) {
	head, err := d.head(ctx, q, "hooks")
	if err != nil {
		return answer{}, err
	}
	hooks, err := d.Sites.Hooks(ctx, q.caller.Owner, head.Site.ID)
	if err != nil {
		return answer{}, err
	}
	slices.Reverse(hooks)
	n := pageNumber(q)
	from := min((n-1)*hooksPerPage, len(hooks))
	data := hooksData{
		siteHead: head,
		Pages:    turn(n, len(hooks), hooksPerPage, func(p int) string { return head.Base() + "/hooks?page=" + strconv.Itoa(p) }),
	}
	for _, h := range hooks[from:min(from+hooksPerPage, len(hooks))] {
		r := hookRow{Hook: h, ID: h.ID.Reveal(), URL: d.APIURL + "/hooks/deploy/" + url.PathEscape(h.ID.Reveal())}
		r.Curl = "curl -X POST " + quote(r.URL)
		r.Over = h.Rules.ExpiresAt != 0 && h.Rules.ExpiresAt <= db.Now()
		if h.LastDeployment != "" {
			r.Last = head.Base() + "/deployments/" + h.LastDeployment
		}
		data.Hooks = append(data.Hooks, r)
	}
	return page("site_hooks", "Deploy hooks of "+head.Site.Name, data), nil
}

func (d *Dashboard) createHook(ctx context.Context, q *request) (answer, error) {
	head, err := d.head(ctx, q, "hooks")
	if err != nil {
		return answer{}, err
	}
	n, err := readHook(q, site.Hook{})
	if err != nil {
		return answer{}, err
	}
	err = d.actOn(ctx, q, func(tx *db.Tx) (account.AuditEvent, error) {
		h, err := d.Sites.CreateHookTx(ctx, tx, q.caller.Owner, head.Site.ID, n)
		return account.AuditEvent{Action: "hook.created", Subject: string(head.Site.ID), Detail: h.Name}, err
	})
	return goTo(head.Base()+"/hooks", "Deploy hook created"), atHook(err)
}

// changeHook does something to a hook of this very site, and says so in the audit log
// without its id.
func (d *Dashboard) changeHook(
	ctx context.Context,
	q *request,
	action, says string,
	fn func(tx *db.Tx, id site.HookID) (site.Hook, error),
) (answer, error) {
	head, err := d.head(ctx, q, "hooks")
	if err != nil {
		return answer{}, err
	}
	id := site.HookID(q.value("hook"))
	of, err := d.Sites.HookSite(ctx, q.caller.Owner, id)
	if err == nil && of != head.Site.ID {
		err = fault.Missing("deploy hook")
	}
	if err != nil {
		return answer{}, err
	}
	err = d.actOn(ctx, q, func(tx *db.Tx) (account.AuditEvent, error) {
		h, err := fn(tx, id)
		return account.AuditEvent{Action: action, Subject: string(head.Site.ID), Detail: h.Name}, err
	})
	return goTo(head.Base()+"/hooks", says), err
}

func (d *Dashboard) rotateHook(ctx context.Context, q *request) (answer, error) {
	return d.changeHook(
		ctx,
		q,
		"hook.rotated",
		"URL rotated. The previous URL no longer works",
		func(tx *db.Tx, id site.HookID) (site.Hook, error) {
			return d.Sites.UpdateHookTx(ctx, tx, q.caller.Owner, id, site.PatchHook{Rotate: true})
		},
	)
}

func (d *Dashboard) switchHook(ctx context.Context, q *request) (answer, error) {
	on := q.value("to") == "on"
	says := "Deploy hook disabled"
	if on {
		says = "Deploy hook enabled"
	}
	return d.changeHook(ctx, q, "hook.updated", says, func(tx *db.Tx, id site.HookID) (site.Hook, error) {
		return d.Sites.UpdateHookTx(ctx, tx, q.caller.Owner, id, site.PatchHook{Active: &on})
	})
}

func (d *Dashboard) deleteHook(ctx context.Context, q *request) (answer, error) {
	return d.changeHook(ctx, q, "hook.deleted", "Deploy hook deleted", func(tx *db.Tx, id site.HookID) (site.Hook, error) {
		return site.Hook{}, d.Sites.DeleteHookTx(ctx, tx, q.caller.Owner, id)
	})
}
