package dashboard

import (
	"context"
	"slices"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/program/database"
	"slipway/internal/tenant/account"
)

func (d *Dashboard) databaseRoutes() []route {
	return []route{
		get("/sites/{id}/databases", user, d.databasesPage),
		post("/sites/{id}/databases", user, d.createDatabase, d.databasesPage),
		post("/sites/{id}/databases/rotate", user, d.rotateDatabase, d.databasesPage),
		post("/sites/{id}/databases/delete", user, d.deleteDatabase, d.databasesPage),
	}
}

type databasesData struct {
	siteHead
	List []database.Database
	Why  string        // no database can be made here
	Slow []ProgramLine // the latest slow queries, the newest first
}

// slowQueries is how many of them the page shows.
const slowQueries = 10

func (d *Dashboard) databasesPage(ctx context.Context, q *request) (answer, error) {
	head, err := d.head(ctx, q, "databases")
	if err != nil {
		return answer{}, err
	}
	data := databasesData{siteHead: head, Why: d.Databases.Unavailable()}
	if data.List, err = d.Databases.List(ctx, d.DB, q.caller.Owner, head.Site.ID); err != nil {
		return answer{}, err
	}
	if d.Programs != nil && len(data.List) > 0 {
		data.Slow, err = d.Programs.ProgramLog(ctx, head.Site.ID, ProgramFilter{Stream: "system", Search: "Slow query", Limit: slowQueries})
		slices.Reverse(data.Slow)
	}
	return page("site_databases", "Databases of "+head.Site.Name, data), err
}

func (d *Dashboard) createDatabase(ctx context.Context, q *request) (answer, error) {
	head, err := d.head(ctx, q, "databases")
	if err != nil {
		return answer{}, err
	}
	err = d.actOn(ctx, q, func(tx *db.Tx) (account.AuditEvent, error) {
		x, err := d.Databases.CreateTx(ctx, tx, q.caller.Owner, head.Site.ID, database.NewDatabase{Name: q.value("name")})
		return account.AuditEvent{Action: "database.created", Subject: string(head.Site.ID), Detail: x.Name}, err
	})
	return goTo(head.Base()+"/databases", "Database created"), err
}

// changeDatabase does something to a database of this very site.
func (d *Dashboard) changeDatabase(
	ctx context.Context,
	q *request,
	action, says string,
	fn func(tx *db.Tx, id database.ID) (database.Database, error),
) (answer, error) {
	head, err := d.head(ctx, q, "databases")
	if err != nil {
		return answer{}, err
	}
	err = d.actOn(ctx, q, func(tx *db.Tx) (account.AuditEvent, error) {
		x, err := d.Databases.Get(ctx, tx, q.caller.Owner, database.ID(q.value("database")))
		if err == nil && x.Site != head.Site.ID {
			err = fault.Missing("database")
		}
		if err == nil {
			x, err = fn(tx, x.ID)
		}
		return account.AuditEvent{Action: action, Subject: string(head.Site.ID), Detail: x.Name}, err
	})
	return goTo(head.Base()+"/databases", says), err
}

func (d *Dashboard) rotateDatabase(ctx context.Context, q *request) (answer, error) {
	return d.changeDatabase(ctx, q, "database.rotated", "Password rotated", func(tx *db.Tx, id database.ID) (database.Database, error) {
		return d.Databases.RotateTx(ctx, tx, q.caller.Owner, id)
	})
}

func (d *Dashboard) deleteDatabase(ctx context.Context, q *request) (answer, error) {
	return d.changeDatabase(ctx, q, "database.deleted", "Database deleted", func(tx *db.Tx, id database.ID) (database.Database, error) {
		return d.Databases.DeleteTx(ctx, tx, q.caller.Owner, id)
	})
}
