package cli

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"

	"slipway/internal/client/rest"
	"slipway/internal/client/upload"
	"slipway/internal/client/wparchive"
)

// wordpress shows what the archive of another WordPress contains and imports it into a site.
func (i importCommand) wordpress(ctx context.Context, e *Env) error {
	switch {
	case len(i.Only) == 0:
		return &Failure{exitUsage, errors.New("which WordPress? Give its archive or ssh address: slipway import wordpress FILE --site SITE")}
	case i.Account != "" || len(i.Repository) > 0 || i.API != "" || !i.Domains:
		return &Failure{exitUsage, errors.New("--account, --repository and --no-domains are for the sites of other platforms")}
	case i.Site == "" && !i.Plan: // a linked site isn't enough, because everything in it is replaced
		return needed("into which site? Give --site; everything in it is replaced")
	}
	a, err := i.open(ctx, e)
	if err != nil {
		return failure(err)
	}
	// The server may know an archive that this program doesn't.
	plan := wparchive.Plan{Kind: "Archive with wp-content and a .sql file, as the server checks"}
	if a != nil {
		defer a.Close()
		if plan, err = a.Plan(ctx); err != nil {
			return err
		}
	}
	if i.Plan {
		if i.JSON {
			b, err := json.Marshal(plan)
			if err != nil {
				return err
			}
			return e.json(b)
		}
		showArchive(e.Out, plan)
		return nil
	}
	c, err := i.client(e)
	if err != nil {
		return failure(err)
	}
	s, err := siteNamed(ctx, c, i.Site)
	if err != nil {
		return failure(err)
	}
	showArchive(e.Err, plan)
	if !i.Yes {
		if !e.Ask {
			return needed("nothing was imported: give --yes to replace everything in %s, or --plan to look only", printable(s.Slug))
		}
		fmt.Fprintf(e.Err, "Everything in %s at %s is replaced; a backup is made first. Type %s to continue: ",
			printable(s.Name), c.Server(), printable(s.Slug))
		line, err := e.line(ctx)
		if err != nil {
			return err
		}
		if line != s.Slug {
			return needed("nothing was imported")
		}
	}
	name := i.Only[0]
	if a != nil {
		f, err := os.CreateTemp("", "slipway-import-*.tar.gz")
		if err != nil {
			return err
		}
		name = f.Name()
		defer os.Remove(name)
		e.say("Converting it …")
		whole, err := a.Convert(ctx, f)
		for _, line := range whole.Left {
			if !slices.Contains(plan.Left, line) {
				e.say("Not carried: %s", printable(line))
			}
		}
		if closed := f.Close(); err == nil {
			err = closed
		}
		if err != nil {
			return failure(err)
		}
	}
	answer, err := e.sendArchive(ctx, c, s, name)
	if err != nil {
		return failure(err)
	}
	e.say("Importing …")
	return i.ended(ctx, e, c, answer, "Imported to "+printable(s.Name)+": "+printable(s.URL))
}

// open opens the named archive, or the WordPress on another machine. It returns nil if only the server can read the
// archive.
func (i importCommand) open(ctx context.Context, e *Env) (*wparchive.Archive, error) {
	if slices.ContainsFunc(i.Only, wparchive.IsSSH) {
		if len(i.Only) > 1 {
			return nil, &Failure{exitUsage, errors.New("a WordPress is imported by its one address, ssh://user@host/folder")}
		}
		e.say("Looking at %s …", printable(i.Only[0]))
		return wparchive.OpenSSH(ctx, i.Only[0], e.Ask)
	}
	for _, name := range i.Only {
		if info, err := os.Stat(name); err != nil || !info.Mode().IsRegular() {
			return nil, fmt.Errorf("%s is not a file", printable(name))
		}
	}
	e.say("Reading %s …", printable(i.Only[0]))
	return wparchive.Open(i.Only)
}

func showArchive(to io.Writer, p wparchive.Plan) {
	from := ""
	if p.Home != "" {
		from = " of " + printable(p.Home)
	}
	fmt.Fprintf(to, "%s%s\n", p.Kind, from)
	if p.Files > 0 {
		fmt.Fprintf(to, "  + %s of wp-content, %s\n", count(p.Files, "file"), size(p.Bytes))
		known := ""
		if p.SQL > 0 {
			known = " " + size(p.SQL) + ","
		}
		fmt.Fprintf(to, "  + database,%s tables %s*\n", known, printable(p.Prefix))
		fmt.Fprintln(to, "  + URLs are rewritten to the site's; its users are those of the archive")
	}
	for _, line := range p.Left {
		fmt.Fprintf(to, "  - not carried: %s\n", printable(line))
	}
}

// sendArchive uploads an archive and returns the import operation.
func (e *Env) sendArchive(ctx context.Context, c *rest.Client, s site, name string) (json.RawMessage, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	p := &progress{e: e}
	p.All = upload.Missing{Files: 1, Bytes: info.Size()}
	stop := p.show()
	defer stop()
	return c.Upload(ctx, rest.Body{
		Method: http.MethodPost, Path: "/sites/" + s.ID + "/wordpress/import", Type: "application/octet-stream", Size: info.Size(),
		Key: rand.Text(),
	}, func() (io.ReadCloser, error) {
		f, err := os.Open(name)
		return p.Count(f, err)
	})
}
