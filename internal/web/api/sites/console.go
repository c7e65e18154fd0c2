package sites

import (
	"cmp"
	"context"
	"net/http"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"slipway/internal/platform/db"
	"slipway/internal/platform/panics"
	"slipway/internal/program/database"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/web/api/contract"
)

type tableBody struct {
	Name      string `json:"name"`
	View      bool   `json:"view"`
	Rows      int64  `json:"rows" doc:"About, as the server estimates."`
	SizeBytes int64  `json:"sizeBytes" doc:"With indexes."`
}

type answerBody struct {
	Columns      []string    `json:"columns"`
	Rows         [][]*string `json:"rows" doc:"Values as text. Null is NULL, and binary values are hexadecimal digits after 0x."`
	More         bool        `json:"more" doc:"Whether there are more rows."`
	Affected     int64       `json:"affected" doc:"Rows that the query changed."`
	Milliseconds int64       `json:"milliseconds"`
}

func showAnswer(x database.Answer) answerBody {
	return answerBody{
		Columns: append([]string{}, x.Columns...), More: x.More, Affected: x.Affected, Milliseconds: x.Took.Milliseconds(),
		Rows: contract.Each(x.Rows, func(row []database.Cell) []*string {
			return contract.Each(row, func(c database.Cell) *string {
				if c.Null {
					return nil
				}
				return &c.Text
			})
		}),
	}
}

func (a *API) consoleRoutes() {
	const rights = " It takes the site's `run.terminal`, as a terminal does, and the audit log has a line. " +
		"A user runs one query at a time, for up to 15 seconds."
	r := func(path, id, summary, doc string) contract.Route {
		return contract.Route{
			Path: "/databases/{id}/" + path, ID: id, Tag: "Databases", Summary: summary, Doc: doc + rights,
			Scope: account.SitesWrite, Noun: "database", Asks: true,
		}
	}
	contract.Get(a.API, r("tables", "getDatabaseTables", "List a database's tables", "Tables and views by name."), a.listTables)
	contract.Get(a.API, r("rows", "getDatabaseRows", "Read rows of a table", "A page of a table's rows, sorted and filtered."), a.listRows)
	query := r("query", "queryDatabase", "Query a database",
		"Runs one SQL statement with the site's rights in the database. Without `write` the database can't be changed. "+
			"At most 500 rows and 4 MiB are returned.")
	query.Private = true
	contract.Ask(a.API, query, a.queryDatabase)
	export := r("export", "exportTable", "Export rows of a table",
		"All rows of a table that the filter chooses, as CSV or as SQL that inserts them. "+
			"A download that is cut off ends without a complete response.")
	export.Method, export.Status = http.MethodGet, http.StatusOK
	op := a.Operation(export, reflect.TypeFor[string]())
	op.Responses["409"] = &huma.Response{}
	text := &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString}}
	op.Responses["200"].Content = map[string]*huma.MediaType{"text/csv": text, "application/sql": text}
	contract.Writes(a.API, export, op, a.exportTable)
}

// openConsole returns the caller's database if its site allows a terminal, and records what is done to it.
func (a *API) openConsole(ctx context.Context, c account.Caller, id database.ID, action, detail string) (database.Database, error) {
	x, err := a.consoleDatabase(ctx, c, id)
	if err != nil {
		return x, err
	}
	return x, a.DB.Write(ctx, func(tx *db.Tx) error {
		did := audit.Event{Action: action, Subject: string(x.Site), Detail: x.Name + detail}
		return a.Accounts.AuditTx(ctx, tx, c.Actor(contract.From(ctx).Addr), did)
	})
}

func (a *API) consoleDatabase(ctx context.Context, c account.Caller, id database.ID) (database.Database, error) {
	x, err := a.database(ctx, a.DB, c, id)
	if err != nil {
		return x, err
	}
	s, err := a.Site(ctx, c, x.Site)
	if err != nil {
		return x, err
	}
	return x, s.AllowsTerminal()
}

func person(c account.Caller) database.Person { return database.Person{Owner: c.Owner, User: c.User} }

type tablesBody struct {
	Tables []tableBody `json:"tables"`
}

func (a *API) listTables(ctx context.Context, c account.Caller, in *contract.ByID[database.ID]) (tablesBody, error) {
	x, err := a.openConsole(ctx, c, in.ID, "database.read", "")
	if err != nil {
		return tablesBody{}, err
	}
	list, err := a.Databases.Tables(ctx, person(c), x)
	return tablesBody{contract.Each(list, func(t database.Table) tableBody { return tableBody{t.Name, t.View, t.Rows, t.Size} })}, err
}

// FilterIn chooses rows of a table. It is exported because huma ignores embedded types that aren't.
type FilterIn struct {
	Table  string `query:"table" required:"true" maxLength:"64" doc:"Name of a table or view." example:"wp_posts"`
	Sort   string `query:"sort" maxLength:"64" doc:"A column. Default: the server's order." example:"ID"`
	Order  string `query:"order" enum:"asc,desc" doc:"Default: asc."`
	Column string `query:"column" maxLength:"64" doc:"The column of the condition. Default: all rows."`
	Is     string `query:"is" enum:"equals,contains,begins,less,greater,null,filled" doc:"The condition. Default: equals."`
	Value  string `query:"value" maxLength:"4096" doc:"The value of the condition."`
}

func (f FilterIn) filter() (database.Filter, error) {
	if err := contract.OneOf("order", f.Order, "asc", "desc"); err != nil {
		return database.Filter{}, err
	}
	return database.Filter{Table: f.Table, Sort: f.Sort, Descending: f.Order == "desc", Column: f.Column, Is: f.Is, Value: f.Value}, nil
}

type listRowsIn struct {
	contract.ByID[database.ID]
	FilterIn
	contract.PageIn
}

func (a *API) listRows(ctx context.Context, c account.Caller, in *listRowsIn) (answerBody, error) {
	f, err := in.filter()
	if err != nil {
		return answerBody{}, err
	}
	p, err := in.PageIn.Parse()
	if err != nil {
		return answerBody{}, err
	}
	f.Page, f.Limit = p.Page, p.Limit
	x, err := a.openConsole(ctx, c, in.ID, "database.read", " "+in.Table)
	if err != nil {
		return answerBody{}, err
	}
	got, err := a.Databases.Rows(ctx, person(c), x, f)
	return showAnswer(got), err
}

type queryDatabaseIn struct {
	contract.ByID[database.ID]
	Body struct {
		SQL   string `json:"sql" maxLength:"65536" example:"SELECT COUNT(*) FROM wp_posts"`
		Write bool   `json:"write,omitempty" doc:"Whether the statement may change the database."`
	}
}

func (a *API) queryDatabase(ctx context.Context, c account.Caller, in *queryDatabaseIn) (answerBody, error) {
	detail := " read" // its text may contain a secret
	if in.Body.Write {
		detail = " write"
	}
	x, err := a.openConsole(ctx, c, in.ID, "database.queried", detail)
	if err != nil {
		return answerBody{}, err
	}
	got, err := a.Databases.Ask(ctx, person(c), x, database.Statement{SQL: in.Body.SQL, Write: in.Body.Write})
	return showAnswer(got), err
}

type exportTableIn struct {
	contract.ByID[database.ID]
	FilterIn
	Format string `query:"format" enum:"csv,sql" doc:"Default: csv."`
}

func (a *API) exportTable(ctx context.Context, r contract.Route, in *exportTableIn) (func(huma.Context), error) {
	c, err := r.Permit(contract.From(ctx).Caller)
	if err != nil {
		return nil, err
	}
	if err := contract.OneOf("format", in.Format, database.Formats...); err != nil {
		return nil, err
	}
	format := cmp.Or(in.Format, database.Formats[0])
	f, err := in.filter()
	if err != nil {
		return nil, err
	}
	x, err := a.consoleDatabase(ctx, c, in.ID)
	if err != nil {
		return nil, err
	}
	return func(hctx huma.Context) {
		req, w := humago.Unwrap(hctx)
		ctx, cancel := context.WithTimeout(hctx.Context(), 15*time.Minute)
		defer cancel()
		out := &begun{w: w, name: in.Table + ".csv", kind: "text/csv; charset=utf-8"}
		if format == "sql" {
			out.name, out.kind = in.Table+".sql", "application/sql"
		}
		if req.Method == http.MethodHead {
			out.begin()
			return
		}
		if _, err := a.openConsole(ctx, c, in.ID, "database.downloaded", " "+in.Table); err != nil {
			a.Fail(w, req, err)
			return
		}
		// right: download under way
		panics.Go(func() {
			a.Watch(ctx, cancel, c, func(ctx context.Context) error {
				s, err := a.Site(ctx, c, x.Site)
				if err == nil {
					err = s.AllowsTerminal()
				}
				return err
			})
		})
		out.to = contract.Patiently(ctx, w)
		err := a.Databases.Export(ctx, person(c), x, f, format, out)
		switch {
		case err == nil:
		case !out.sent:
			a.Fail(w, req, err)
		default:
			a.Log.InfoContext(ctx, "export of table failed", "database", x.ID, "err", err)
			panic(http.ErrAbortHandler) // a partial export must not look complete
		}
	}, nil
}
