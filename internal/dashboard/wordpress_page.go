package dashboard

import (
	"context"

	"slipway/internal/account"
	"slipway/internal/db"
	"slipway/internal/fault"
	"slipway/internal/site"
	"slipway/internal/wordpress"
)

func (d *Dashboard) wordpressRoutes() []route {
	return []route{
		get("/sites/{id}/wordpress", user, d.wordpressPage),
		post("/sites/{id}/wordpress/login", user, d.loginWordPress, d.wordpressPage),
		post("/sites/{id}/wordpress/purge", user, d.purgeWordPress, d.wordpressPage),
		post("/sites/{id}/wordpress/settings", user, d.saveWordPress, d.wordpressPage),
	}
}

// IsWordPress reports whether the site is a WordPress.
func (h siteHead) IsWordPress() bool { return h.Site.Type == site.WordPress }

type wordpressData struct {
	siteHead
	State wordpress.State
	Error string // why WordPress does not answer
}

// startWordPress notes the settings of a WordPress site that was made in tx.
func (d *Dashboard) startWordPress(ctx context.Context, tx *db.Tx, q *request, s site.Site) error {
	u, err := d.Accounts.User(ctx, q.caller.User)
	if err != nil {
		return err
	}
	return d.WordPress.CreateTx(ctx, tx, s, wordpress.Settings{}, u.Email)
}

func (d *Dashboard) wordpressPage(ctx context.Context, q *request) (answer, error) {
	head, err := d.head(ctx, q, "wordpress")
	if err != nil {
		return answer{}, err
	}
	data := wordpressData{siteHead: head}
	if data.State, err = d.WordPress.Read(ctx, q.caller.Owner, head.Site.ID); err != nil {
		f := fault.As(err)
		if f == nil {
			return answer{}, err
		}
		data.Error = f.Message + ": " + f.Details
	}
	return page("site_wordpress", "WordPress of "+head.Site.Name, data), nil
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
	return goTo(l.URL, ""), err
}

func (d *Dashboard) purgeWordPress(ctx context.Context, q *request) (answer, error) {
	id := site.ID(q.PathValue("id"))
	err := d.actOn(ctx, q, func(tx *db.Tx) (account.AuditEvent, error) {
		return account.AuditEvent{Action: "wordpress.purged", Subject: string(id)}, d.WordPress.PurgeTx(ctx, tx, q.caller.Owner, id, nil)
	})
	return goTo("/sites/"+string(id)+"/wordpress", "Page cache purged"), err
}

func (d *Dashboard) saveWordPress(ctx context.Context, q *request) (answer, error) {
	id := site.ID(q.PathValue("id"))
	maintenance, xmlrpc, debug := q.checked("maintenance"), q.checked("xmlrpc"), q.checked("debug")
	err := d.actOn(ctx, q, func(tx *db.Tx) (account.AuditEvent, error) {
		return account.AuditEvent{Action: "site.updated", Subject: string(id), Detail: "wordpress"},
			d.WordPress.UpdateTx(ctx, tx, q.caller.Owner, id, wordpress.Patch{Maintenance: &maintenance, XMLRPC: &xmlrpc, Debug: &debug})
	})
	return goTo("/sites/"+string(id)+"/wordpress", "Saved. Restart the site to apply the change"), err
}
