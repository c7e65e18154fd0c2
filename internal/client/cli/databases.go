package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"

	"slipway/internal/client/dumpfile"
	"slipway/internal/client/rest"
	"slipway/internal/client/terminal"
)

type dbCommand struct {
	List  listDatabases `cmd:"" help:"List a site's databases."`
	Dump  dumpDatabase  `cmd:"" help:"Write a database as SQL, to standard output or a file."`
	Shell databaseShell `cmd:"" help:"Open the MariaDB client on a database, in the site's sandbox."`
}

// database is a database in API responses.
type database struct {
	ID, Name, Engine, Status string
	SizeBytes                *int64
	Env                      []string // variables with which programs connect
}

type listDatabases struct{ ofSite }

// Run lists databases.
func (l listDatabases) Run(ctx context.Context, e *Env) error {
	_, _, all, err := l.databases(ctx, e)
	if err != nil {
		return failure(err)
	}
	return show(e, l.JSON, all, []string{"database", "name", "engine", "status", "size"}, func(d database) []string {
		return []string{d.ID, d.Name, d.Engine, d.Status, sizeOf(d.SizeBytes)}
	})
}

// databases returns a site's databases, oldest first.
func (o ofSite) databases(ctx context.Context, e *Env) (*rest.Client, site, []json.RawMessage, error) {
	c, s, err := o.find(ctx, e)
	if err != nil {
		return nil, s, nil, err
	}
	var page struct{ Data []json.RawMessage }
	err = c.Get(ctx, "/sites/"+s.ID+"/databases", &page)
	return c, s, page.Data, err
}

// database returns a site's database by name or id; without one, the oldest.
func (o ofSite) database(ctx context.Context, e *Env, name string) (*rest.Client, site, database, error) {
	c, s, all, err := o.databases(ctx, e)
	if err != nil {
		return c, s, database{}, err
	}
	list, err := decoded[database](all)
	for _, d := range list {
		if name == "" || name == d.Name || name == d.ID {
			return c, s, d, err
		}
	}
	what := "database"
	if name != "" {
		what += fmt.Sprintf(" %q", name)
	}
	if err == nil {
		err = &Failure{exitMissing, fmt.Errorf("%s has no %s: slipway db list shows those that it has", printable(s.Slug), what)}
	}
	return c, s, database{}, err
}

type dumpDatabase struct {
	ofSite
	Database string `arg:"" optional:"" help:"Database, by its name or id. Default: the site's first."`
	Output   string `env:"-" short:"o" help:"File to write, compressed if it ends with .gz. Default: standard output." type:"path" placeholder:"FILE"`
}

// Run writes a database's dump.
func (d dumpDatabase) Run(ctx context.Context, e *Env) error {
	switch {
	case d.Output == "" && d.JSON:
		return &Failure{exitUsage, errors.New("--json takes a file for the dump: give --output FILE")}
	case d.Output == "" && e.TTY:
		return &Failure{exitUsage, errors.New("standard output is a terminal: give --output FILE, or redirect it")}
	}
	c, s, x, err := d.database(ctx, e, d.Database)
	if err != nil {
		return failure(err)
	}
	var dump dumpfile.Dump
	stop := e.progress(func() string { return "Downloading " + printable(x.Name) + ", " + size(dump.Bytes()) })
	fetch := func(w io.Writer) error {
		return c.Download(ctx, "/databases/"+url.PathEscape(x.ID)+"/dump", "application/sql", w)
	}
	if d.Output == "" {
		err = dump.To(e.Out, fetch)
	} else {
		err = dump.ToFile(d.Output, fetch)
	}
	stop()
	if err != nil {
		return failure(err)
	}
	e.say("Dumped %s of %s, %s of SQL", printable(x.Name), printable(s.Name), size(dump.Bytes()))
	if !d.JSON {
		return nil
	}
	b, err := json.Marshal(map[string]any{"database": x.ID, "file": d.Output, "bytes": dump.Bytes()})
	if err != nil {
		return err
	}
	return e.json(b)
}

type databaseShell struct {
	ofSite
	Database string `arg:"" optional:"" help:"Database, by its name or id. Default: the site's first."`
}

// Run opens the MariaDB client where the site's programs run, so that the password stays there.
func (d databaseShell) Run(ctx context.Context, e *Env) error {
	if !e.Ask || !e.TTY || d.JSON {
		return &Failure{exitUsage, errors.New("slipway db shell takes a terminal, and no --json: slipway db dump writes a database as SQL")}
	}
	c, s, x, err := d.database(ctx, e, d.Database)
	if err != nil {
		return failure(err)
	}
	line, err := terminal.Database(x.Env)
	if err != nil {
		return err
	}
	return status(terminal.Attach(ctx, c, "/sites/"+s.ID, line))
}
