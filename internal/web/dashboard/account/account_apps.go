package account

import (
	"context"
	"strings"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/oauth"
	"slipway/internal/web/dashboard/shell"
)

type grantsData struct {
	Grants []grantRow
	Apps   []oauth.App
	Team   bool
	May    bool             // whether the caller may decide about the team's apps
	List   []oauth.Approval // the team's decisions
}

type grantRow struct {
	oauth.Grant
	SiteNames []string
}

// grantsPage lists the account's authorized apps and the apps it registered.
func (d *Pages) grantsPage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	if d.OAuth == nil {
		return shell.Answer{}, fault.Missing("page")
	}
	grants, err := d.OAuth.Grants(ctx, q.Caller)
	if err != nil {
		return shell.Answer{}, err
	}
	var data grantsData
	for _, g := range grants {
		row := grantRow{Grant: g}
		if row.SiteNames, err = d.siteNames(ctx, q, g.Sites); err != nil {
			return shell.Answer{}, err
		}
		data.Grants = append(data.Grants, row)
	}
	data.Team = q.Caller.Team != ""
	if data.Team {
		data.May = q.Caller.Require(account.AppsWrite) == nil
		if data.List, err = d.OAuth.Approvals(ctx, q.Caller.Owner); err != nil {
			return shell.Answer{}, err
		}
	}
	data.Apps, err = d.OAuth.Apps(ctx, q.Caller.Owner)
	return shell.Page("account_apps", "Apps", data), err
}

func (d *Pages) revokeGrant(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	if d.OAuth == nil {
		return shell.Answer{}, fault.Missing("page")
	}
	id := shell.PathID[oauth.GrantID](q, "grant")
	err := d.ActOn(ctx, q, func(tx *db.Tx) (audit.Event, error) {
		g, err := d.OAuth.RevokeGrantTx(ctx, tx, q.Caller, id)
		if err == nil && g.User != q.User.ID { // members end grants they made themselves
			err = q.Caller.Require(account.AppsWrite)
		}
		return audit.Event{Action: "app.revoked", Subject: string(id), Detail: g.AppName}, err
	})
	return shell.GoTo("/account/apps", "Access revoked"), err
}

// decideApp approves an app for the team, or removes it from the list.
func (d *Pages) decideApp(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	if d.OAuth == nil || q.Caller.Team == "" {
		return shell.Answer{}, fault.Missing("page")
	}
	id, action, do, says := oauth.AppID(q.Value("app")), "app.approved", d.OAuth.ApproveAppTx, "App approved"
	if q.Value("decision") != "approve" {
		action, do, says = "app.approval_removed", d.OAuth.RemoveApprovalTx, "App removed"
	}
	err := d.Act(ctx, q, action, func(tx *db.Tx) (string, error) { return string(id), do(ctx, tx, q.Caller, id) })
	return shell.GoTo("/account/apps", says), err
}

type appData struct {
	App    oauth.App // zero: a new app
	Secret string    // shown once
}

func (d *Pages) newAppPage(_ context.Context, _ *shell.Request) (shell.Answer, error) {
	if d.OAuth == nil {
		return shell.Answer{}, fault.Missing("page")
	}
	return shell.Page("account_app", "Register app", appData{}), nil
}

func (d *Pages) appPage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	if d.OAuth == nil {
		return shell.Answer{}, fault.Missing("page")
	}
	app, err := d.OAuth.App(ctx, d.DB, q.Caller.Owner, shell.PathID[oauth.AppID](q, "client"))
	return shell.Page("account_app", app.Name, appData{App: app}), err
}

// redirectURIs returns a form's redirect URIs, one per line.
func redirectURIs(q *shell.Request) []string { return strings.Fields(q.Value("redirects")) }

// atApp assigns a fault to the field of an app's form.
func atApp(err error) error {
	f := fault.As(err)
	if f == nil {
		return err
	}
	fields := map[string]string{"invalid_name": "name", "invalid_website": "website", "invalid_redirect_uri": "redirects"}
	return shell.At(fields[f.Code], err)
}

func (d *Pages) createApp(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	if d.OAuth == nil {
		return shell.Answer{}, fault.Missing("page")
	}
	if err := d.Prove(ctx, q); err != nil {
		return shell.Answer{}, err
	}
	var app oauth.App
	var secret string
	err := d.ActOn(ctx, q, func(tx *db.Tx) (_ audit.Event, err error) {
		app, secret, err = d.OAuth.CreateAppTx(ctx, tx, q.Caller.Owner, oauth.NewApp{
			Name: q.Value("name"), Website: strings.TrimSpace(q.Value("website")), RedirectURIs: redirectURIs(q),
			Confidential: q.Value("kind") == "confidential",
		})
		return audit.Event{Action: "app.created", Subject: string(app.ID), Detail: app.Name}, err
	})
	if err != nil {
		return shell.Answer{}, atApp(err)
	}
	return shell.Page("account_app", app.Name, appData{app, secret}), nil
}

func (d *Pages) updateApp(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	if d.OAuth == nil {
		return shell.Answer{}, fault.Missing("page")
	}
	id := shell.PathID[oauth.AppID](q, "client")
	name, website, uris := q.Value("name"), strings.TrimSpace(q.Value("website")), redirectURIs(q)
	err := d.ActOn(ctx, q, func(tx *db.Tx) (audit.Event, error) {
		app, err := d.OAuth.UpdateAppTx(ctx, tx, q.Caller.Owner, id, oauth.AppChange{Name: &name, Website: &website, RedirectURIs: &uris})
		return audit.Event{Action: "app.updated", Subject: string(id), Detail: app.Name}, err
	})
	if err != nil {
		return shell.Answer{}, atApp(err)
	}
	return shell.GoTo("/account/oauth-apps/"+string(id), "App saved"), nil
}

func (d *Pages) rotateAppSecret(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	if d.OAuth == nil {
		return shell.Answer{}, fault.Missing("page")
	}
	if err := d.Prove(ctx, q); err != nil {
		return shell.Answer{}, err
	}
	id := shell.PathID[oauth.AppID](q, "client")
	var app oauth.App
	var secret string
	err := d.ActOn(ctx, q, func(tx *db.Tx) (_ audit.Event, err error) {
		app, secret, err = d.OAuth.RotateSecretTx(ctx, tx, q.Caller.Owner, id)
		return audit.Event{Action: "app.secret_rotated", Subject: string(id), Detail: app.Name}, err
	})
	return shell.Page("account_app", app.Name, appData{app, secret}), err
}

func (d *Pages) deleteOAuthApp(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	if d.OAuth == nil {
		return shell.Answer{}, fault.Missing("page")
	}
	id := shell.PathID[oauth.AppID](q, "client")
	err := d.Act(ctx, q, "app.deleted", func(tx *db.Tx) (string, error) {
		return string(id), d.OAuth.DeleteAppTx(ctx, tx, q.Caller.Owner, id)
	})
	return shell.GoTo("/account/apps", "App deleted"), err
}
