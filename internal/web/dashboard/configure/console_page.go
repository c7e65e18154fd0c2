package configure

import (
	"context"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/panics"
	"slipway/internal/program/database"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/site"
	"slipway/internal/web/dashboard/shell"
	"slipway/internal/web/dashboard/sites"
)

func (d *Pages) consoleRoutes() []shell.Route {
	return []shell.Route{
		shell.Get("/sites/{id}/databases/browse", shell.User, d.consolePage).Takes(account.SitesWrite),
		shell.Post("/sites/{id}/databases/query", shell.User, d.queryDatabase, d.consolePage).Takes(account.SitesWrite),
		shell.Get("/sites/{id}/databases/export", shell.User, d.exportTable).Takes(account.SitesWrite),
	}
}

// pageRows is the number of rows on a page.
const pageRows = 50

// consoleData is a database with its tables, and rows of one of them or a query's.
type consoleData struct {
	sites.SiteHead
	Database database.Database
	Allowed  bool
	Tables   []database.Table
	Filter   database.Filter
	Answer   *database.Answer // nil: none was asked for
	SQL      string           // the query, if Answer is a query's
	Write    bool
}

// Conditions lists the conditions of the filter.
func (consoleData) Conditions() []string { return database.Conditions }

// link returns the path of a page of the database with the filter changed.
func (c consoleData) link(page string, change func(f *database.Filter)) string {
	f := c.Filter
	change(&f)
	v := url.Values{"database": {string(c.Database.ID)}}
	for name, value := range map[string]string{"table": f.Table, "sort": f.Sort, "column": f.Column, "is": f.Is, "value": f.Value} {
		if value != "" {
			v.Set(name, value)
		}
	}
	if f.Descending {
		v.Set("order", "desc")
	}
	if f.Page > 1 {
		v.Set("page", strconv.Itoa(f.Page))
	}
	return c.Base() + "/databases/" + page + "?" + v.Encode()
}

// Table returns the path of a table's rows.
func (c consoleData) Table(name string) string {
	return c.link("browse", func(f *database.Filter) { *f = database.Filter{Table: name} })
}

// Sorted returns the path of the rows in the order of a column, and back again in the other direction.
func (c consoleData) Sorted(column string) string {
	return c.link("browse", func(f *database.Filter) {
		f.Descending = f.Sort == column && !f.Descending
		f.Sort, f.Page = column, 1
	})
}

// Before and After return the paths of the pages beside this one; empty: there is none.
func (c consoleData) Before() string {
	if c.Filter.Page <= 1 {
		return ""
	}
	return c.link("browse", func(f *database.Filter) { f.Page-- })
}

// After returns the path of the next page.
func (c consoleData) After() string {
	if c.Answer == nil || !c.Answer.More {
		return ""
	}
	return c.link("browse", func(f *database.Filter) { f.Page++ })
}

// Export returns the path of a download in a format.
func (c consoleData) Export(format string) string {
	return c.link("export", func(f *database.Filter) { f.Page = 1 }) + "&format=" + format
}

// console returns the page's database without its tables.
func (d *Pages) console(ctx context.Context, q *shell.Request, id string) (data consoleData, err error) {
	if data.SiteHead, err = d.Head(ctx, q, "databases"); err != nil {
		return data, err
	}
	x, err := d.Databases.Get(ctx, d.DB, q.Caller.Owner, database.ID(id))
	if err == nil && x.Site != data.Site.ID {
		err = fault.Missing("database")
	}
	data.Database, data.Allowed, data.Sub = x, data.Site.AllowsTerminal() == nil, "Database "+x.Name
	return data, err
}

// consoled records what a person does in a database of the page's site, if its owner allows that.
func (d *Pages) consoled(ctx context.Context, q *shell.Request, c consoleData, action, detail string) error {
	return d.ActOn(ctx, q, func(tx *db.Tx) (audit.Event, error) {
		s, err := d.Sites.GetTx(ctx, tx, q.Caller.Owner, c.Site.ID)
		if err == nil {
			err = s.AllowsTerminal()
		}
		return audit.Event{Action: action, Subject: string(c.Site.ID), Detail: c.Database.Name + detail}, err
	})
}

func rowFilter(q *shell.Request) database.Filter {
	return database.Filter{
		Table: q.Query("table"), Sort: q.Query("sort"), Descending: q.Query("order") == "desc",
		Column: q.Query("column"), Is: q.Query("is"), Value: q.Query("value"), Page: shell.PageNumber(q), Limit: pageRows,
	}
}

func (d *Pages) consolePage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	id := q.Query("database")
	if q.PostForm != nil {
		id = q.Value("database")
	}
	if id == "" {
		head, err := d.Head(ctx, q, "databases")
		return shell.GoTo(head.Base()+"/databases", ""), err
	}
	data, err := d.console(ctx, q, id)
	if err != nil || !data.Allowed {
		return shell.Page("site_database", "Database "+data.Database.Name, data), err
	}
	who := database.Person{Owner: q.Caller.Owner, User: q.Caller.User}
	if q.PostForm == nil {
		data.Filter = rowFilter(q)
	}
	table := data.Filter.Table
	if table != "" {
		table = " " + table
	}
	if err := d.consoled(ctx, q, data, "database.read", table); err != nil {
		return shell.Answer{}, err
	}
	if data.Tables, err = d.Databases.Tables(ctx, who, data.Database); err != nil {
		return shell.Answer{}, err
	}
	if table != "" {
		answer, err := d.Databases.Rows(ctx, who, data.Database, data.Filter)
		if err != nil {
			return shell.Answer{}, err
		}
		data.Answer = &answer
	}
	return shell.Page("site_database", "Database "+data.Database.Name, data), nil
}

// queryDatabase runs a statement and shows its rows.
func (d *Pages) queryDatabase(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	data, err := d.console(ctx, q, q.Value("database"))
	if err != nil {
		return shell.Answer{}, err
	}
	data.SQL, data.Write = q.Value("sql"), q.Checked("write")
	detail := " read" // its text may contain a secret
	if data.Write {
		detail = " write"
	}
	if err := d.consoled(ctx, q, data, "database.queried", detail); err != nil {
		return shell.Answer{}, err
	}
	who := database.Person{Owner: q.Caller.Owner, User: q.Caller.User}
	answer, err := d.Databases.Ask(ctx, who, data.Database, database.Statement{SQL: data.SQL, Write: data.Write})
	if err != nil {
		return shell.Answer{}, shell.At("sql", err)
	}
	data.Answer = &answer
	data.Tables, err = d.Databases.Tables(ctx, who, data.Database)
	return shell.Page("site_database", "Database "+data.Database.Name, data), err
}

func (d *Pages) exportTable(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	if q.Query("database") == "" {
		head, err := d.Head(ctx, q, "databases")
		return shell.GoTo(head.Base()+"/databases", ""), err
	}
	data, err := d.console(ctx, q, q.Query("database"))
	if err != nil {
		return shell.Answer{}, err
	}
	f, format := rowFilter(q), q.Query("format")
	if !slices.Contains(database.Formats, format) {
		format = database.Formats[0]
	}
	if err := d.consoled(ctx, q, data, "database.downloaded", " "+f.Table); err != nil {
		return shell.Answer{}, err
	}
	who := database.Person{Owner: q.Caller.Owner, User: q.Caller.User}
	first := f
	first.Limit, first.Page = 1, 1
	if _, err := d.Databases.Rows(ctx, who, data.Database, first); err != nil { // in words, while there is a page for them
		return shell.Answer{}, err
	}
	return shell.Raw(func(w http.ResponseWriter) {
		d.WhileAllowed(w, q, func(ctx context.Context, conn *http.ResponseController) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			// right: download under way
			panics.Go(func() { d.whileTerminal(ctx, cancel, q, data.Site.ID) })
			kind := "text/csv; charset=utf-8"
			if format == "sql" {
				kind = "application/sql"
			}
			w.Header().Set("Content-Type", kind)
			w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": f.Table + "." + format}))
			return d.Databases.Export(ctx, who, data.Database, f, format, sending{w, conn})
		})
	}), nil
}

// consoleCheck is the interval of checks that the site's owner still allows terminals.
const consoleCheck = 3 * time.Second

// whileTerminal calls end when the site no longer allows terminals. It returns when ctx ends.
func (d *Pages) whileTerminal(ctx context.Context, end func(), q *shell.Request, id site.ID) {
	tick := time.NewTicker(consoleCheck)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		s, err := d.Sites.Get(ctx, q.Caller.Owner, id)
		if err == nil {
			err = s.AllowsTerminal()
		}
		if fault.As(err) != nil { // an unavailable database doesn't end it
			end()
			return
		}
	}
}
