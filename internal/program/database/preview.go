package database

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/job"
	"slipway/internal/platform/panics"
	"slipway/internal/tenant/limits"
	"slipway/internal/tenant/site"
)

// Copy is the job that fills a preview's database with what the site's own holds. It may run
// twice: it begins anew.
type Copy struct{ From, To ID }

// Kind names the job.
func (Copy) Kind() string { return "database.copy" }

// copyTime limits a copy.
const copyTime = 30 * time.Minute

// PreviewEnv is like Env, for the programs of one of the site's previews. They have databases
// of their own, one for each that the site has and under the same variables: empty ones, or
// copies. Those that are missing are made, and waited for as long as ctx lasts. A preview
// that has ended has none.
func (d *Databases) PreviewEnv(
	ctx context.Context,
	id site.ID,
	preview string,
	copied bool,
) (env map[string]string, secrets []string, err error) {
	own, err := d.ofSite(ctx, d.c.DB, id)
	if err != nil || len(own) == 0 || preview == "" {
		return nil, nil, err
	}
	have, err := d.ofPreview(ctx, d.c.DB, id, preview)
	if err != nil {
		return nil, nil, err
	}
	if len(missing(own, have)) > 0 {
		err := d.c.DB.Write(ctx, func(tx *db.Tx) error { return d.makePreviewTx(ctx, tx, id, preview, copied) })
		if err != nil {
			return nil, nil, err
		}
	}
	for {
		if have, err = d.ofPreview(ctx, d.c.DB, id, preview); err != nil {
			return nil, nil, err
		}
		waiting, err := made(have)
		if err != nil {
			return nil, nil, err
		}
		if !waiting {
			return d.envOf(have)
		}
		select {
		case <-ctx.Done():
			return nil, nil, fmt.Errorf("%w: %w", context.Cause(ctx), &fault.Error{
				Kind:       fault.Unavailable,
				Message:    "The preview's database is still being created",
				Details:    "try again in a moment",
				Code:       "database_creating",
				RetryAfter: 10 * time.Second,
			})
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// made reports whether one of the databases is not there yet; the error says why it won't be.
func made(list []Database) (waiting bool, err error) {
	for _, x := range list {
		switch x.Status {
		case Failed:
			return false, fault.New(fault.Unavailable, "database_failed",
				fmt.Sprintf("The preview's database %s could not be created", x.Name),
				x.Reason)
		case Creating:
			waiting = true
		}
	}
	return waiting, nil
}

// retryAfter is how long a database that could not be made is left alone.
const retryAfter = 10 * time.Minute

func stale(x Database) bool { return x.Status == Failed && x.CreatedAt < db.Now().Add(-retryAfter) }

// missing returns those of a site's own databases that a preview has no counterpart of.
func missing(own, have []Database) (list []Database) {
	names := map[string]bool{}
	for _, x := range have {
		names[x.Name] = !stale(x)
	}
	for _, x := range own {
		if !names[x.Name] && x.Status == Active {
			list = append(list, x)
		}
	}
	return list
}

// makePreviewTx notes the databases that a preview lacks; jobs make them.
func (d *Databases) makePreviewTx(ctx context.Context, tx *db.Tx, id site.ID, preview string, copied bool) error {
	s, err := d.c.Sites.ByID(ctx, tx, id)
	if err != nil {
		return err
	}
	if _, err := d.c.Sites.LockTx(ctx, tx, s.Owner, id); err != nil {
		return err
	}
	var n int
	if err := tx.QueryRow(
		ctx,
		`SELECT count(*) FROM preview_keys WHERE site_id = $1 AND branch = $2`,
		id,
		preview,
	).Scan(&n); err != nil || n == 0 {
		return err
	}
	own, err := d.ofSite(ctx, tx, id)
	if err != nil {
		return err
	}
	have, err := d.ofPreview(ctx, tx, id, preview)
	if err != nil {
		return err
	}
	for _, x := range have {
		if stale(x) {
			if err := d.endTx(ctx, tx, x); err != nil {
				return err
			}
		}
	}
	for _, from := range missing(own, have) {
		if err := d.c.Limits.RequireTx(ctx, tx, s.Owner, limits.Databases, 1); err != nil {
			return err
		}
		x := db.ID[ID]("db")
		schema := "s" + strings.TrimPrefix(string(x), "db_")
		_, err := tx.Exec(ctx, `
			INSERT INTO databases (id, site_id, owner_id, engine, name, place, schema_name, password, server, status, reason, size_bytes, is_full,
			created_at, preview)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, '', $9, '', 0, FALSE, $10, $11)`,
			x, id, s.Owner, MariaDB, from.Name, from.place, schema, d.c.Seal.Seal(
				[]byte(newPassword()),
				purpose(x),
			), Creating, db.Now(), preview)
		if err != nil {
			return fmt.Errorf("insert database of preview: %w", err)
		}
		var work job.Args = Create{x}
		if copied {
			work = Copy{From: from.ID, To: x}
		}
		if _, err := job.Enqueue(ctx, tx, work, job.Options{
			Unique: "database/" + string(x),
			Group:  "database/" + string(x),
			Share:  string(s.Owner),
		}); err != nil {
			return err
		}
	}
	return nil
}

// copy fills a preview's database with the rows of the site's own.
func (d *Databases) copy(ctx context.Context, c Copy) error {
	x, err := d.byID(ctx, d.c.DB, c.To)
	if fault.Is(err, fault.NotFound) || err == nil && x.Status == Active {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := d.settle(ctx, x); err != nil {
		return err
	}
	r, w := io.Pipe()
	dumped := make(chan error, 1)
	go func() {
		err := panics.Call(func() error { return d.Dump(ctx, c.From, w) })
		w.CloseWithError(err)
		dumped <- err
	}()
	err = d.Refill(ctx, c.To, r)
	r.CloseWithError(errors.New("the copy has ended"))
	if failed := <-dumped; err != nil && failed != nil && fault.As(failed) != nil {
		return failed
	}
	return err
}

func (d *Databases) ofPreview(ctx context.Context, r db.Reader, id site.ID, preview string) ([]Database, error) {
	rows, err := r.Query(
		ctx,
		`SELECT `+columns+` FROM databases WHERE site_id = $1 AND preview = $2 AND status <> 'deleting' ORDER BY place`,
		id,
		preview,
	)
	list, err := db.Collect(rows, err, d.scan)
	if err != nil {
		return nil, fmt.Errorf("list databases of preview: %w", err)
	}
	return list, nil
}

// endPreviews deletes the databases of previews that have ended.
func (d *Databases) endPreviews(ctx context.Context) error {
	const ended = ` FROM databases WHERE preview <> '' AND status <> 'deleting' AND NOT EXISTS (
		SELECT 1 FROM preview_keys p WHERE p.site_id = databases.site_id AND p.branch = databases.preview) ORDER BY id LIMIT 100`
	var n int
	if err := d.c.DB.QueryRow(ctx, `SELECT count(*) FROM (SELECT id`+ended+`) x`).Scan(&n); err != nil || n == 0 {
		return err
	}
	return d.c.DB.Write(ctx, func(tx *db.Tx) error {
		rows, err := tx.Query(ctx, `SELECT `+columns+ended)
		list, err := db.Collect(rows, err, d.scan)
		if err != nil {
			return fmt.Errorf("list databases of ended previews: %w", err)
		}
		for _, x := range list {
			if err := d.endTx(ctx, tx, x); err != nil {
				return err
			}
		}
		return nil
	})
}
