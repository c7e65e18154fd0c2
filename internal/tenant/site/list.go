package site

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
)

// Filter selects sites. Zero fields match everything.
type Filter struct {
	Type   Type
	Status Status
	Tag    string
	Search string // part of a name, subdomain, domain, repository or tag; see search.go
	Sort   Sort   // Optional: defaults to newest first.
	First  []ID   // listed before all others, such as favorites. Optional.
	Only   []ID   // at most a few hundred; nil: all
	Page   int    // from 1
	Limit  int    // 1 to 100; 0: only count

	domains bool // whether any of the owner's domains contains Search
}

// Sort is the order of a list of sites.
type Sort string

const (
	ByCreated Sort = ""        // newest first
	ByName    Sort = "name"    // A to Z
	ByUpdated Sort = "updated" // most recently changed first
)

// order returns the ORDER BY clause. Unknown values mean ByCreated.
func (o Sort) order() string {
	switch o {
	case ByName:
		return "lower(name), id"
	case ByUpdated:
		return "updated_at DESC, id DESC"
	}
	return "created_at DESC, id DESC"
}

// List returns a page of the owner's sites in the order of f.Sort, and their total number.
func (s *Sites) List(ctx context.Context, owner account.OwnerID, f Filter) ([]Site, int, error) {
	if err := s.searching(ctx, owner, &f); err != nil {
		return nil, 0, err
	}
	w := where{sqlite: s.c.DB.Single()}
	w.and("owner_id = "+w.args.Add(owner), "deleted_at = 0")
	w.narrow(owner, f)
	page, offset := []Site{}, (f.Page-1)*f.Limit
	if f.Limit > 0 {
		rows, err := s.c.DB.Query(ctx, `SELECT `+columns+` FROM sites WHERE `+w.String()+`
			ORDER BY `+w.first(f.First)+f.Sort.order()+` LIMIT `+w.args.Add(f.Limit)+` + 0 OFFSET `+w.args.Add(offset), w.args...)
		if page, err = db.CollectInto(make([]Site, 0, min(f.Limit, 100)), rows, err, scanner()); err != nil {
			return nil, 0, fmt.Errorf("list sites: %w", err)
		}
		if n := len(page); n < f.Limit && (n > 0 || offset == 0) {
			return page, offset + n, nil // the last page implies the total
		}
	}
	total, err := s.total(ctx, owner, f)
	return page, total, err
}

// total returns the number of matching sites on all pages.
func (s *Sites) total(ctx context.Context, owner account.OwnerID, f Filter) (n int, err error) {
	w, q := where{sqlite: s.c.DB.Single()}, `SELECT count(*) FROM sites WHERE `
	w.and("owner_id = " + w.args.Add(owner))
	if clean(f.Search) == "" && f.Only == nil && f.Tag == "" { // these totals are stored
		q = `SELECT COALESCE(SUM(n), 0) FROM site_counts WHERE `
	} else {
		w.and("deleted_at = 0")
	}
	w.narrow(owner, f)
	if err := s.c.DB.QueryRow(ctx, q+w.String(), w.args...).Scan(&n); err != nil {
		return 0, fmt.Errorf("count sites: %w", err)
	}
	return n, nil
}

// Tally returns the number of the owner's sites in each status.
func (s *Sites) Tally(ctx context.Context, owner account.OwnerID) (map[Status]int, error) {
	rows, err := s.c.DB.Query(ctx, `SELECT status, SUM(n) FROM site_counts WHERE owner_id = $1 GROUP BY status`, owner)
	return counts[Status](rows, err)
}

// Owned returns each owner's number of sites, for operators.
func (s *Sites) Owned(ctx context.Context) (map[account.OwnerID]int, error) {
	rows, err := s.c.DB.Query(ctx, `SELECT owner_id, SUM(n) FROM site_counts GROUP BY owner_id`)
	return counts[account.OwnerID](rows, err)
}

// All returns a page of all owners' sites, newest first, for operators.
func (s *Sites) All(ctx context.Context, page, limit int) ([]Site, error) {
	rows, err := s.c.DB.Query(ctx, `
		SELECT `+columns+` FROM sites WHERE deleted_at = 0
		ORDER BY id DESC LIMIT $1 OFFSET $2`, limit, (page-1)*limit)
	list, err := db.Collect(rows, err, scan)
	if err != nil {
		return nil, fmt.Errorf("list all sites: %w", err)
	}
	return list, nil
}

// count updates site_counts for one change of one site.
func count(ctx context.Context, tx *db.Tx, owner account.OwnerID, t Type, status Status, by int) error {
	_, err := tx.Exec(ctx, `
		INSERT INTO site_counts (owner_id, type, status, n) VALUES ($1, $2, $3, $4)
		ON CONFLICT (owner_id, type, status) DO UPDATE SET n = site_counts.n + excluded.n`, owner, t, status, by)
	if err != nil {
		return fmt.Errorf("count site: %w", err)
	}
	return nil
}

func counts[K comparable](rows *sql.Rows, err error) (map[K]int, error) {
	out := map[K]int{}
	_, err = db.Collect(rows, err, func(row db.Scanner) (struct{}, error) {
		var k K
		var n int
		err := row.Scan(&k, &n)
		out[k] = n
		return struct{}{}, err
	})
	if err != nil {
		return nil, fmt.Errorf("count sites: %w", err)
	}
	return out, nil
}

// where builds a condition. It contains only the filters in use, so that the database can use the matching index.
type where struct {
	sqlite bool
	parts  []string
	args   db.Args
}

func (w *where) and(parts ...string) { w.parts = append(w.parts, parts...) }

func (w *where) String() string { return strings.Join(w.parts, " AND ") }

func (w *where) narrow(owner account.OwnerID, f Filter) {
	if f.Type != "" {
		w.and("type = " + w.args.Add(f.Type))
	}
	if f.Status != "" {
		w.and("status = " + w.args.Add(f.Status))
	}
	if f.Only != nil {
		w.and("id IN (" + db.AddList(&w.args, f.Only) + ")") // an empty list matches nothing
	}
	w.tagged(f.Tag)
	w.search(owner, f)
}

// first returns an ORDER BY prefix that lists some sites before all others, or "" for an empty list.
func (w *where) first(ids []ID) string {
	if len(ids) == 0 {
		return ""
	}
	return "CASE WHEN id IN (" + db.AddList(&w.args, ids) + ") THEN 0 ELSE 1 END, "
}

// Total returns the number of all owners' sites.
func Total(ctx context.Context, r db.Reader) (n int, err error) {
	if err := r.QueryRow(ctx, `SELECT COALESCE(SUM(n), 0) FROM site_counts`).Scan(&n); err != nil {
		return 0, fmt.Errorf("count sites: %w", err)
	}
	return n, nil
}
