package sites

import (
	"context"
	"net/http"

	"slipway/internal/platform/db"
	"slipway/internal/program/database"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/site"
	"slipway/internal/web/api/contract"
)

type databaseBody struct {
	ID         database.ID `json:"id" example:"db_25o5kzh3mc7yw4tn6pqd2xlfae"`
	SiteID     site.ID     `json:"siteId"`
	Engine     string      `json:"engine" enum:"mariadb"`
	Name       string      `json:"name"`
	Env        []string    `json:"env" doc:"Names of the variables that the site's programs connect with. Their values are never returned."`
	Status     string      `json:"status" enum:"creating,active,error"`
	Reason     *string     `json:"reason" doc:"The error, if its status is error."`
	SizeBytes  int64       `json:"sizeBytes"`
	LimitBytes int64       `json:"limitBytes" doc:"Maximum size. Beyond it no rows can be added; existing rows can be read and deleted."`
	Full       bool        `json:"full" doc:"Whether it exceeds its limit."`
	CreatedAt  string      `json:"createdAt" format:"date-time"`
}

func (a *API) databaseRoutes() {
	r := func(path, id, summary, doc string, s account.Scope) contract.Route {
		return contract.Route{Path: path, ID: id, Tag: "Databases", Summary: summary, Doc: doc, Scope: s, Noun: "database"}
	}
	contract.Get(a.API,
		r("/sites/{id}/databases", "listDatabases", "List a site's databases", "The first one made is first.", account.SitesRead),
		a.listDatabases)
	create := r("/sites/{id}/databases", "createDatabase", "Create a database",
		"Creates a MariaDB database with its own user. It becomes `active` shortly after. Running programs get the variables at "+
			"their next start, see `POST /sites/{id}/restart`. "+
			"Builds can't connect to it. The first database's variables are `DATABASE_URL`, `DB_HOST`, `DB_PORT`, `DB_DATABASE`, "+
			"`DB_USERNAME`, `DB_PASSWORD` and `DB_SOCKET`; those of other databases are prefixed with their name. Your own variable "+
			"of the same name takes precedence.",
		account.SitesWrite)
	create.Status, create.Limited = http.StatusCreated, true
	contract.Post(a.API, create, a.createDatabase)
	contract.Get(a.API, r("/databases/{id}", "getDatabase", "Read a database", "", account.SitesRead), a.getDatabase)
	contract.Change(a.API, http.MethodDelete,
		r("/databases/{id}", "deleteDatabase", "Delete a database", "With everything in it. There is no way back.", account.SitesWrite),
		a.deleteDatabase)
	contract.Post(a.API,
		r("/databases/{id}/rotate-password", "rotateDatabasePassword", "Rotate a database's password",
			"The old password stops working within seconds. Running programs get the new one at their next start.",
			account.SitesWrite),
		a.rotateDatabasePassword)
	dump := r("/databases/{id}/dump", "dumpDatabase", "Download a database as SQL",
		"The database at the moment of the request, as SQL that any MariaDB client loads: tables and rows, sequences, routines, triggers and "+
			"views. Nothing is locked. The last line of a complete dump is `-- slipway:end`; a download that breaks off ends without it. "+
			"An account downloads one dump at a time, for up to an hour. In a team, it takes the role developer.",
		account.BackupsRead)
	dump.Role = account.RoleDeveloper
	a.dumpRoute(dump)
	a.consoleRoutes()
}

func showDatabase(x database.Database) databaseBody {
	return databaseBody{
		ID:         x.ID,
		SiteID:     x.Site,
		Engine:     x.Engine,
		Name:       x.Name,
		Env:        x.EnvKeys(),
		Status:     string(x.Status),
		Reason:     contract.Some(x.Reason),
		SizeBytes:  x.Size,
		LimitBytes: x.Limit,
		Full:       x.Full,
		CreatedAt:  x.CreatedAt.String(),
	}
}

func (a *API) listDatabases(ctx context.Context, c account.Caller, in *contract.PartOf[site.ID]) (contract.Data[databaseBody], error) {
	if _, err := a.Site(ctx, c, in.ID); err != nil {
		return contract.Data[databaseBody]{}, err
	}
	list, err := a.Databases.List(ctx, a.DB, c.Owner, in.ID)
	return contract.Part(in.PartIn, contract.Each(list, showDatabase), err)
}

type createDatabaseIn struct {
	contract.ByID[site.ID]
	Body struct {
		Engine string `json:"engine" enum:"mariadb"`
		Name   string `json:"name,omitempty" pattern:"^[a-z][a-z0-9_]{0,31}$" patternDescription:"1 to 32 lowercase letters, digits and underscores, beginning with a letter" doc:"Unique in the site. Default: main."`
	}
}

func (a *API) createDatabase(
	ctx context.Context,
	tx *db.Tx,
	c account.Caller,
	in *createDatabaseIn,
) (_ databaseBody, did audit.Event, _ error) {
	if err := a.Allowed(ctx, tx, c, in.ID); err != nil {
		return databaseBody{}, did, err
	}
	x, err := a.Databases.CreateTx(ctx, tx, c.Owner, in.ID, database.NewDatabase{Engine: in.Body.Engine, Name: in.Body.Name})
	return showDatabase(x), audit.Event{Action: "database.created", Subject: string(in.ID), Detail: x.Name}, err
}

// database returns the caller's database, or a NotFound fault, also if the key is restricted to other sites.
func (a *API) database(ctx context.Context, r db.Reader, c account.Caller, id database.ID) (database.Database, error) {
	x, err := a.Databases.Get(ctx, r, c.Owner, id)
	if err != nil {
		return x, err
	}
	return x, c.RequireSite(x.Site)
}

func (a *API) getDatabase(ctx context.Context, c account.Caller, in *contract.ByID[database.ID]) (databaseBody, error) {
	x, err := a.database(ctx, a.DB, c, in.ID)
	return showDatabase(x), err
}

func (a *API) deleteDatabase(
	ctx context.Context, tx *db.Tx, c account.Caller, in *contract.ByID[database.ID],
) (_ contract.Message, did audit.Event, _ error) {
	x, err := a.database(ctx, tx, c, in.ID)
	if err != nil {
		return contract.Message{}, did, err
	}
	_, err = a.Databases.DeleteTx(ctx, tx, c.Owner, x.ID)
	return contract.Message{Message: "Database deleted"}, audit.Event{Action: "database.deleted", Subject: string(x.Site), Detail: x.Name}, err
}

func (a *API) rotateDatabasePassword(
	ctx context.Context,
	tx *db.Tx,
	c account.Caller,
	in *contract.ByID[database.ID],
) (_ databaseBody, did audit.Event, _ error) {
	x, err := a.database(ctx, tx, c, in.ID)
	if err != nil {
		return databaseBody{}, did, err
	}
	x, err = a.Databases.RotateTx(ctx, tx, c.Owner, x.ID)
	return showDatabase(x), audit.Event{Action: "database.rotated", Subject: string(x.Site), Detail: x.Name}, err
}
