package database

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"slipway/internal/db"
)

// What counts as slow, and when a statement is ended.
const (
	slowAfter = time.Second
	slowLook  = 500 * time.Millisecond
	endAfter  = 15 * time.Minute
)

// watch reads sizes, holds databases to theirs, and tells sites of slow statements.
func (d *Databases) watch(ctx context.Context) {
	sizes, looks := time.NewTicker(d.c.Tick), time.NewTicker(slowLook)
	defer sizes.Stop()
	defer looks.Stop()
	seen := map[int64]slow{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-sizes.C:
			if err := d.endPreviews(ctx); err != nil && ctx.Err() == nil {
				d.c.Log.WarnContext(ctx, "databases of ended previews not deleted", "err", err)
			}
			if a := d.server.current(); a != nil {
				if err := d.measure(ctx, a); err != nil && ctx.Err() == nil {
					d.c.Log.WarnContext(ctx, "sizes of databases not read", "err", err)
				}
				if err := d.sweep(ctx); err != nil && ctx.Err() == nil {
					d.c.Log.WarnContext(ctx, "scratch databases not dropped", "err", err)
				}
			}
		case <-looks.C:
			if a := d.server.current(); a != nil && d.connected() {
				seen = d.slow(ctx, a, seen)
			}
		}
	}
}

// current returns the way to administer the server, nil while it is away.
func (s *server) current() *admin {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conns
}

// Memory returns how much the private server uses; 0 while it is away.
func (d *Databases) Memory() int64 {
	if d.server == nil {
		return 0
	}
	d.server.mu.Lock()
	usage := d.server.usage
	d.server.mu.Unlock()
	if usage == nil {
		return 0
	}
	return usage()
}

// connected reports whether any site is connected.
func (d *Databases) connected() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, w := range d.ways {
		if len(w.slots) > 0 {
			return true
		}
	}
	return false
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
	for id, x := range seen {
		if _, runs := now[id]; runs {
			continue
		}
		var site string
		if err := d.c.DB.QueryRow(ctx, `SELECT site_id FROM databases WHERE schema_name = $1`, x.schema).Scan(&site); err == nil {
			d.c.Say(site, fmt.Sprintf("Slow query: more than %.1f s: %s", x.took.Seconds(), strings.Join(strings.Fields(x.text), " ")))
		}
	}
	return now
}

// measure reads every size, notes what changed and holds each database to its limit.
func (d *Databases) measure(ctx context.Context, a *admin) error {
	rows, err := d.c.DB.Query(ctx, `SELECT `+columns+` FROM databases WHERE server = $1 AND status = 'active'`, d.name)
	list, err := db.Collect(rows, err, d.scan)
	if err != nil || len(list) == 0 {
		return err
	}
	size := d.server.files
	if d.server.dsn != nil {
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
		if full && n > x.Limit/10*9 && x.Full {
			if err := a.shrink(ctx, x.Schema); err != nil {
				d.c.Log.WarnContext(ctx, "database not shrunk", "database", x.ID, "err", err)
			}
		}
		if full == x.Full && (n == x.Size || max(n-x.Size, x.Size-n) < x.Size/100) {
			continue
		}
		if full != x.Full {
			if err := a.restrict(ctx, x.Schema, full); err != nil {
				return err
			}
			text := fmt.Sprintf("The database %s is over its limit of %d MiB: it can be read and rows can be deleted, nothing can be added", x.Name, x.Limit>>20)
			if !full {
				text = fmt.Sprintf("The database %s is below its limit again", x.Name)
			}
			d.c.Say(string(x.Site), text)
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
	entries, err := os.ReadDir(filepath.Join(s.work(), "data", schema))
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
