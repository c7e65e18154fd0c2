// Package traffic owns each site's traffic over time: responses by status class, page views and bytes.
//
// Add adds counts to intervals of five minutes, which several nodes can share. A job sums up ended hours and days and
// deletes old intervals: five-minute intervals are kept for two days, hours for ninety and days for four hundred. Only
// intervals with visits are stored. Queries read the longest intervals that fit, and shorter ones where these aren't
// summed up yet.
//
// It also keeps names (top.go: pages, missing paths, referrers, countries) per day for a month, and an access log
// (log.go) for a week, limited in size.
//
// The package doesn't count requests itself. It sees networks rather than visitors, and can't tell people from
// programs.
package traffic

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/id"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/usage"
)

// The interval lengths and their retention.
const (
	fine = 5 * time.Minute
	hour = time.Hour
	day  = 24 * time.Hour

	keepFine = 48 * time.Hour
	keepHour = 90 * day
	keepDay  = 400 * day
)

// Config holds what Traffic needs.
type Config struct {
	DB    *db.DB
	Usage *usage.Usage   // usage of owners. Optional: without it Batch.Usage is ignored.
	Now   func() db.Time // Optional: nil means db.Now.

	SiteLog int64 // stored bytes of one site's access log. Optional: 0 means 4 MiB.
	AllLogs int64 // of all access logs. Optional: 0 means 1 GiB.
}

// Traffic is the service. It is safe for concurrent use.
type Traffic struct{ c Config }

// New returns the service. It starts nothing: Work registers its job.
func New(c Config) *Traffic {
	if c.Now == nil {
		c.Now = db.Now
	}
	c.SiteLog, c.AllLogs = cmp.Or(c.SiteLog, siteLog), cmp.Or(c.AllLogs, allLogs)
	return &Traffic{c}
}

// Counts holds numbers of responses and bytes.
type Counts struct {
	OK, Redirected, ClientErrors, ServerErrors int64 // responses with status 2xx, 3xx, 4xx, 5xx
	Pages                                      int64 // HTML pages among them
	Bytes                                      int64 // of bodies as sent
}

// Requests returns the number of responses.
func (c Counts) Requests() int64 { return c.OK + c.Redirected + c.ClientErrors + c.ServerErrors }

// Plus returns the sum of two counts.
func (c Counts) Plus(d Counts) Counts {
	return Counts{
		c.OK + d.OK, c.Redirected + d.Redirected, c.ClientErrors + d.ClientErrors, c.ServerErrors + d.ServerErrors,
		c.Pages + d.Pages, c.Bytes + d.Bytes,
	}
}

// columns lists the columns of Counts in its fields' order.
const columns = `ok, redirected, client_errors, server_errors, pages, bytes`

func (c *Counts) fields() []any {
	return []any{&c.OK, &c.Redirected, &c.ClientErrors, &c.ServerErrors, &c.Pages, &c.Bytes}
}

// floor rounds t down to a multiple of span.
func floor(t db.Time, span time.Duration) db.Time { return t - t%db.Time(span.Milliseconds()) }

// Batch describes counts to add. A repeated batch is added once, since the caller can't know whether a commit with a
// lost answer succeeded.
type Batch struct {
	Since   time.Time // start of the counts
	Counter string    // source of the counts. Optional: without it, repeated batches are added again.
	Number  int64     // increases with each batch of the counter, from 1

	Usage *usage.Source // written in the same transaction. Optional.
}

// Add adds sites' counts since b.Since in one transaction. It skips deleted sites.
func (t *Traffic) Add(ctx context.Context, b Batch, bySite map[id.Site]Counts, details ...Details) error {
	at := floor(db.At(b.Since), fine)
	slices.SortFunc(details, func(a, b Details) int { return strings.Compare(string(a.Site), string(b.Site)) })
	now := t.c.Now()
	bodies, err := packLines(now, details) // before the transaction, which blocks other writers
	if err != nil {
		return fmt.Errorf("pack access log: %w", err)
	}
	var used []usage.Row
	if b.Usage != nil && t.c.Usage != nil {
		used = b.Usage.Pending()
	}
	err = t.c.DB.Write(ctx, func(tx *db.Tx) error {
		if len(used) > 0 {
			if err := t.c.Usage.MergeTx(ctx, tx, used); err != nil {
				return err
			}
		}
		if first, err := b.claim(ctx, tx, now); err != nil || !first {
			return err
		}
		owners := map[string]account.OwnerID{}
		// Sorted, so that nodes that update the same rows can't deadlock.
		for ids := range slices.Chunk(slices.Sorted(maps.Keys(bySite)), 200) {
			if err := findOwners(ctx, tx, ids, owners); err != nil {
				return err
			}
			var rows []row
			for _, id := range ids {
				if _, open := owners[string(id)]; open {
					rows = append(rows, row{id, at, bySite[id]})
				}
			}
			if err := put(ctx, tx, fine, rows, "traffic.%s + excluded.%s"); err != nil {
				return fmt.Errorf("add traffic: %w", err)
			}
		}
		left := bodies
		for some := range slices.Chunk(details, 200) {
			var ids []id.Site
			for _, d := range some {
				ids = append(ids, d.Site)
			}
			if err := findOwners(ctx, tx, ids, owners); err != nil {
				return err
			}
			for n, d := range some {
				if owners[string(d.Site)] == "" {
					continue
				}
				if err := addNames(ctx, tx, d.Site, floor(at, day), d.Names); err != nil {
					return fmt.Errorf("add names of traffic: %w", err)
				}
				if err := addLines(ctx, tx, now, d.Site, left[n]); err != nil {
					return fmt.Errorf("add to access log: %w", err)
				}
			}
			left = left[len(some):]
		}
		return nil
	})
	if err == nil && b.Usage != nil {
		b.Usage.Written(used)
	}
	return err
}

// claim records a batch, and returns false if it was recorded before.
func (b Batch) claim(ctx context.Context, tx *db.Tx, now db.Time) (bool, error) {
	if b.Counter == "" {
		return true, nil
	}
	n, err := tx.Exec(ctx, `
		INSERT INTO traffic_batches (counter, number, at) VALUES ($1, $2, $3)
		ON CONFLICT (counter) DO UPDATE SET number = excluded.number, at = excluded.at WHERE traffic_batches.number < excluded.number`,
		b.Counter, b.Number, now)
	if err != nil {
		return false, fmt.Errorf("record batch of traffic: %w", err)
	}
	return n == 1, nil
}

// findOwners adds the owners of existing sites to owners.
func findOwners(ctx context.Context, r db.Reader, ids []id.Site, owners map[string]account.OwnerID) error {
	var args db.Args
	list := db.AddList(&args, ids)
	rows, err := r.Query(ctx, `SELECT id, owner_id FROM open_sites WHERE id IN (`+list+`)`, args...)
	_, err = db.Collect(rows, err, func(s db.Scanner) (id string, err error) {
		var owner account.OwnerID
		if err := s.Scan(&id, &owner); err != nil {
			return "", err
		}
		owners[id] = owner
		return id, nil
	})
	if err != nil {
		return fmt.Errorf("find sites: %w", err)
	}
	return nil
}

type row struct {
	site id.Site
	at   db.Time
	Counts
}

// put upserts rows of one span. as is the expression for a column (%s) that exists.
func put(ctx context.Context, tx *db.Tx, span time.Duration, rows []row, as string) error {
	if len(rows) == 0 {
		return nil
	}
	var q strings.Builder
	q.WriteString(`INSERT INTO traffic (site_id, span, at, ` + columns + `) VALUES `)
	var args db.Args
	for i, r := range rows {
		if i > 0 {
			q.WriteByte(',')
		}
		sep := byte('(')
		for _, v := range []any{string(r.site), span.Milliseconds(), r.at, r.OK, r.Redirected, r.ClientErrors, r.ServerErrors, r.Pages, r.Bytes} {
			q.WriteByte(sep)
			q.WriteString(args.Add(v))
			sep = ','
		}
		q.WriteByte(')')
	}
	q.WriteString(` ON CONFLICT (site_id, span, at) DO UPDATE SET `)
	for i, c := range strings.Split(columns, ", ") {
		if i > 0 {
			q.WriteString(", ")
		}
		q.WriteString(c + " = " + strings.ReplaceAll(as, "%s", c))
	}
	_, err := tx.Exec(ctx, q.String(), args...)
	return err
}

// ForgetSite deletes the data of a deleted site.
func (t *Traffic) ForgetSite(ctx context.Context, site id.Site) error {
	return t.c.DB.Write(ctx, func(tx *db.Tx) error {
		for _, table := range []string{"traffic", "traffic_top", "access_log"} {
			if _, err := tx.Exec(ctx, `DELETE FROM `+table+` WHERE site_id = $1`, site); err != nil {
				return fmt.Errorf("forget traffic: %w", err)
			}
		}
		return nil
	})
}
