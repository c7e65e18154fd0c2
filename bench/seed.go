package main

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"

	"slipway/e2e/world"
	"slipway/internal/platform/db"
)

// open opens an installation's database, which must not be in use.
func open(ctx context.Context, w *world.World) (*db.DB, error) {
	for i, f := range w.Flags {
		if f == "--database" {
			return db.Open(ctx, db.Config{URL: w.Flags[i+1]})
		}
	}
	return db.Open(ctx, db.Config{URL: "sqlite:" + filepath.Join(w.Data, "slipway.db")})
}

// emptyDatabase creates a database in a PostgreSQL cluster and returns its URL.
func emptyDatabase(ctx context.Context, cluster, name string) (string, error) {
	admin, err := db.Open(ctx, db.Config{URL: cluster})
	if err != nil {
		return "", err
	}
	defer admin.Close()
	for _, q := range []string{"DROP DATABASE IF EXISTS " + name, "CREATE DATABASE " + name} {
		if err := admin.Admin(ctx, q); err != nil {
			return "", err
		}
	}
	u, err := url.Parse(cluster)
	if err != nil {
		return "", err
	}
	u.Path = "/" + name
	return u.String(), nil
}

// on returns the name of the database for a row's text; empty for SQLite.
func (b *bench) on() string {
	if b.postgres == "" {
		return ""
	}
	return ", PostgreSQL"
}

// seedSites writes active sites of the user to the database, which must not be in use, and returns their ids. Sites
// with a release are live.
func seedSites(ctx context.Context, w *world.World, n int, release string) ([]string, error) {
	d, err := open(ctx, w)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	var owner string
	if err := d.QueryRow(ctx, `SELECT owner_id FROM users LIMIT 1`).Scan(&owner); err != nil {
		return nil, err
	}
	ids := make([]string, 0, n)
	for len(ids) < n {
		err := d.Write(ctx, func(tx *db.Tx) error {
			for range min(2000, n-len(ids)) {
				id := db.NewID("site")
				if err := seedSite(ctx, tx, owner, id, fmt.Sprintf("seeded-%d", len(ids)), release); err != nil {
					return err
				}
				ids = append(ids, id)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return ids, d.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `
			INSERT INTO site_counts (owner_id, type, status, n) VALUES ($1, 'static', 'active', $2)
			ON CONFLICT (owner_id, type, status) DO UPDATE SET n = site_counts.n + excluded.n`, owner, n)
		return err
	})
}

func seedSite(ctx context.Context, tx *db.Tx, owner, id, slug, release string) error {
	var version int64
	if err := tx.QueryRow(ctx, `UPDATE live_version SET n = n + 1 WHERE id = 1 RETURNING n`).Scan(&version); err != nil {
		return err
	}
	now := db.Now()
	_, err := tx.Exec(ctx, `
		INSERT INTO sites (id, owner_id, name, slug, type, runtime, status, status_reason, repository, branch, framework, build,
			credential, needs_redeploy, live_deployment, live_release, live_version, created_at, updated_at, deleted_at, search)
		VALUES ($1, $2, $3, $4, 'static', 'static', 'active', '', 'git.test/bench/seeded', 'main', '', '{}', '', FALSE, '', $5, $6, $7, $7, 0,
			$4 || ' ' || $4 || ' git.test/bench/seeded')`,
		id, owner, strings.ToUpper(slug), slug, release, version, now)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `INSERT INTO slugs (slug, owner_id, site_id, released_at) VALUES ($1, $2, $3, 0)`, slug, owner, id)
	return err
}

// seedLike writes live sites that share the release of the site with the id.
func seedLike(ctx context.Context, w *world.World, n int, id string) error {
	d, err := open(ctx, w)
	if err != nil {
		return err
	}
	var release string
	err = d.QueryRow(ctx, `SELECT live_release FROM sites WHERE id = $1`, id).Scan(&release)
	d.Close()
	if err == nil {
		_, err = seedSites(ctx, w, n, release)
	}
	return err
}
