package database

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/id"
	"slipway/internal/platform/panics"
	"slipway/internal/platform/sandbox"
)

// What counts as slow, and when a statement is ended.
const (
	slowAfter = time.Second
	slowLook  = 500 * time.Millisecond
	endAfter  = 15 * time.Minute
)

// workMost bounds what a private server takes on disk beside databases: undo, temporary
// tables and files, each.
const workMost = 2 << 30

// clean deletes the databases of previews that have ended, and scratch databases whose time
// is over.
func (d *Databases) clean(ctx context.Context) {
	tick := time.NewTicker(d.c.Tick)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := d.endPreviews(ctx); err != nil && ctx.Err() == nil {
			d.c.Log.WarnContext(ctx, "databases of ended previews not deleted", "err", err)
		}
		if err := d.sweep(ctx); err != nil && ctx.Err() == nil {
			d.c.Log.WarnContext(ctx, "scratch databases not dropped", "err", err)
		}
	}
}

// watch reads the sizes of the databases on a server, holds them to theirs, and tells sites
// of slow statements. Tables that are rebuilt hold up nothing else.
func (d *Databases) watch(ctx context.Context, s *server) {
	sizes, looks := time.NewTicker(d.c.Tick), time.NewTicker(slowLook)
	defer sizes.Stop()
	defer looks.Stop()
	seen := map[int64]slow{}
	rebuild := make(chan string, maxPerSite) // share: total 20 a server; owner has a server of their own; edge rebuilt after a later look
	var rebuilding sync.WaitGroup
	rebuilding.Go(func() {
		for schema := range rebuild {
			if a := s.current(); a != nil && ctx.Err() == nil {
				if err := panics.Call(func() error { return a.shrink(ctx, schema) }); err != nil && ctx.Err() == nil {
					d.c.Log.WarnContext(ctx, "database not shrunk", "schema", schema, "err", err)
				}
			}
		}
	})
	defer rebuilding.Wait()
	defer close(rebuild)
	for {
		select {
		case <-ctx.Done():
			return
		case <-sizes.C:
			if a := s.current(); a != nil {
				if err := d.measure(ctx, s, a, rebuild); err != nil && ctx.Err() == nil {
					d.c.Log.WarnContext(ctx, "sizes of databases not read", "server", s.name, "err", err)
				}
				d.boundWork(ctx, s, a)
			}
		case <-looks.C:
			if held, _ := s.places.Held(); held == 0 && len(seen) == 0 {
				continue
			}
			if a := s.current(); a != nil {
				seen = d.slow(ctx, a, seen)
			}
		}
	}
}

// boundWork ends the connections to a private server whose temporary files take too much.
func (d *Databases) boundWork(ctx context.Context, s *server, a *admin) {
	s.mu.Lock()
	link := s.link
	s.mu.Unlock()
	if link == nil {
		return
	}
	n := sandbox.Size(filepath.Join(s.dir, "tmp"), d.c.Work)
	if n <= d.c.Work {
		n += link.Unlinked(s.dir)
	}
	if n <= d.c.Work {
		return
	}
	a.kickAll(ctx)
	d.tellAll(s, fmt.Sprintf("The database server's temporary files took more than %d MiB: its connections were ended", d.c.Work>>20))
}

// Memory returns how much the private servers use.
func (d *Databases) Memory() (sum int64) {
	for _, s := range d.all() {
		s.mu.Lock()
		link := s.link
		s.mu.Unlock()
		if link != nil {
			sum += link.Usage().Memory
		}
	}
	return sum
}

// slow tells the sites of statements that ended since the last look and took long.
func (d *Databases) slow(ctx context.Context, a *admin, seen map[int64]slow) map[int64]slow {
	list, err := a.running(ctx, slowAfter)
	if err != nil {
		return seen
	}
	now := map[int64]slow{}
	for _, x := range list {
		now[x.query] = x
		if x.took > endAfter {
			_, _ = a.sql.ExecContext(ctx, fmt.Sprintf("KILL QUERY ID %d", x.query))
		}
	}
	for query, x := range seen {
		if _, runs := now[query]; runs {
			continue
		}
		var site id.Site
		if err := d.c.DB.QueryRow(ctx, `SELECT site_id FROM databases WHERE schema_name = $1`, x.schema).Scan(&site); err == nil {
			d.c.Logs.Note(
				site,
				fmt.Sprintf("Slow query: more than %.1f s: %s", x.took.Seconds(), strings.Join(strings.Fields(x.text), " ")),
			)
		}
	}
	return now
}

// measure reads the sizes of the databases on a server, notes what changed and holds each to
// its limit. Schemas that hold free room are sent to rebuild. Without an administrator it only
// notes sizes.
func (d *Databases) measure(ctx context.Context, s *server, a *admin, rebuild chan<- string) error {
	rows, err := d.c.DB.Query(ctx, `SELECT `+columns+` FROM databases WHERE server = $1 AND status = 'active'`, s.name)
	list, err := db.Collect(rows, err, d.scan)
	if err != nil || len(list) == 0 {
		return err
	}
	size := s.files
	if s.outside != nil {
		all, err := a.sizes(ctx)
		if err != nil {
			return err
		}
		size = func(schema string) (int64, error) { return all[schema], nil }
	}
	for _, x := range list {
		n, err := size(x.Schema)
		if err != nil {
			return err
		}
		full := x.Full
		switch {
		case n > x.Limit:
			full = true
		case n < x.Limit/10*9:
			full = false
		}
		if a == nil {
			full = x.Full
		}
		if a != nil && full && n > x.Limit/10*9 && x.Full {
			select {
			case rebuild <- x.Schema:
			default: // after a later look
			}
		}
		if full == x.Full && (n == x.Size || max(n-x.Size, x.Size-n) < x.Size/100) {
			continue
		}
		if full != x.Full {
			if err := a.restrict(ctx, x.Schema, full); err != nil {
				return err
			}
			text := fmt.Sprintf(
				"The database %s is over its limit of %d MiB: it can be read and rows can be deleted, nothing can be added",
				x.Name,
				x.Limit>>20,
			)
			if !full {
				text = fmt.Sprintf("The database %s is below its limit again", x.Name)
			}
			d.c.Logs.Note(x.Site, text)
		}
		err = d.c.DB.Write(ctx, func(tx *db.Tx) error {
			_, err := tx.Exec(ctx, `UPDATE databases SET size_bytes = $2, is_full = $3 WHERE id = $1`, x.ID, n, full)
			return err
		})
		if err != nil {
			return fmt.Errorf("note size of database: %w", err)
		}
	}
	return nil
}

// files returns the bytes that a schema's files have.
func (s *server) files(schema string) (sum int64, err error) {
	entries, err := os.ReadDir(filepath.Join(s.dir, "data", schema))
	if os.IsNotExist(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read size of database: %w", err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil { // one that is gone has no size
			sum += info.Size()
		}
	}
	return sum, nil
}
