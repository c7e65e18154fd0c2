package configure

import (
	"context"
	"slices"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/program/database"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/web/dashboard/shell"
	"slipway/internal/web/dashboard/sites"
)

func (d *Pages) databaseRoutes() []shell.Route {
	return []shell.Route{
		shell.Get("/sites/{id}/databases", shell.User, d.databasesPage).Takes(account.SitesRead),
		shell.Post("/sites/{id}/databases", shell.User, d.createDatabase, d.databasesPage).Takes(account.SitesWrite),
		shell.Post("/sites/{id}/databases/rotate", shell.User, d.rotateDatabase, d.databasesPage).Takes(account.SitesWrite),
		shell.Post("/sites/{id}/databases/delete", shell.User, d.deleteDatabase, d.databasesPage).Takes(account.SitesWrite),
	}
}

type databasesData struct {
	sites.SiteHead
	List []database.Database
	Why  string              // why databases are unavailable
	Slow []sites.ProgramLine // latest slow queries, newest first
}

// slowQueries is the number of slow queries shown.
const slowQueries = 10

func (d *Pages) databasesPage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	head, err := d.Head(ctx, q, "databases")
	if err != nil {
		return shell.Answer{}, err
	}
	data := databasesData{SiteHead: head, Why: d.Databases.Unavailable()}
	if data.List, err = d.Databases.List(ctx, d.DB, q.Caller.Owner, head.Site.ID); err != nil {
		return shell.Answer{}, err
	}
	if d.Programs != nil && len(data.List) > 0 {
		data.Slow, err = d.Programs.ProgramLog(ctx, head.Site.ID, sites.ProgramFilter{Stream: "system", Search: "Slow query", Limit: slowQueries})
		slices.Reverse(data.Slow)
	}
	return shell.Page("site_databases", "Databases of "+head.Site.Name, data), err
}

func (d *Pages) createDatabase(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	head, err := d.Head(ctx, q, "databases")
	if err != nil {
		return shell.Answer{}, err
	}
	err = d.ActOn(ctx, q, func(tx *db.Tx) (audit.Event, error) {
		x, err := d.Databases.CreateTx(ctx, tx, q.Caller.Owner, head.Site.ID, database.NewDatabase{Name: q.Value("name")})
		return audit.Event{Action: "database.created", Subject: string(head.Site.ID), Detail: x.Name}, err
	})
	return shell.GoTo(head.Base()+"/databases", "Database created"), err
}

// changeDatabase performs an action on a database of the page's site.
func (d *Pages) changeDatabase(
	ctx context.Context,
	q *shell.Request, action, says string,
	fn func(tx *db.Tx, id database.ID) (database.Database, error),
) (shell.Answer, error) {
	head, err := d.Head(ctx, q, "databases")
	if err != nil {
		return shell.Answer{}, err
	}
	err = d.ActOn(ctx, q, func(tx *db.Tx) (audit.Event, error) {
		x, err := d.Databases.Get(ctx, tx, q.Caller.Owner, database.ID(q.Value("database")))
		if err == nil && x.Site != head.Site.ID {
			err = fault.Missing("database")
		}
		if err == nil {
			x, err = fn(tx, x.ID)
		}
		return audit.Event{Action: action, Subject: string(head.Site.ID), Detail: x.Name}, err
	})
	return shell.GoTo(head.Base()+"/databases", says), err
}

func (d *Pages) rotateDatabase(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	return d.changeDatabase(ctx, q, "database.rotated", "Password rotated", func(tx *db.Tx, id database.ID) (database.Database, error) {
		return d.Databases.RotateTx(ctx, tx, q.Caller.Owner, id)
	})
}

func (d *Pages) deleteDatabase(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	return d.changeDatabase(ctx, q, "database.deleted", "Database deleted", func(tx *db.Tx, id database.ID) (database.Database, error) {
		return d.Databases.DeleteTx(ctx, tx, q.Caller.Owner, id)
	})
}
