package usage

import (
	"context"
	"fmt"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/id"
	"slipway/internal/tenant/limits"
)

// monthOf returns when the calendar month of a moment begins, and the next one, UTC.
func monthOf(t db.Time) (from, to db.Time) {
	at := t.Time().UTC()
	first := time.Date(at.Year(), at.Month(), 1, 0, 0, 0, 0, time.UTC)
	return db.At(first), db.At(first.AddDate(0, 1, 0))
}

// Month returns what an owner has used in this calendar month, UTC.
func (u *Usage) Month(ctx context.Context, r db.Reader, owner id.Owner, m Meter) (int64, error) {
	all, err := u.months(ctx, r, []id.Owner{owner}, m)
	return all[owner], err
}

// months returns what owners have used in this calendar month: the days that are sealed, what isn't yet, and what
// earlier versions counted.
func (u *Usage) months(ctx context.Context, r db.Reader, owners []id.Owner, m Meter) (map[id.Owner]int64, error) {
	from, to := monthOf(u.now())
	args := db.Args{m, from, to, limits.Month(from)}
	list := db.AddList(&args, owners)
	rows, err := r.Query(ctx, `
		SELECT owner_id, CAST(SUM(quantity) AS BIGINT) FROM (
			SELECT owner_id, quantity FROM usage_days WHERE meter = $1 AND day >= $2 AND day < $3 AND owner_id IN (`+list+`)
			UNION ALL
			SELECT owner_id, quantity - counted FROM usage_sources
			WHERE meter = $1 AND hour >= $2 AND hour < $3 AND counted < quantity AND owner_id IN (`+list+`)
			UNION ALL
			SELECT owner_id, quantity FROM usage_before WHERE meter = $1 AND month = $4 AND owner_id IN (`+list+`)
		) AS used GROUP BY owner_id`, args...)
	out := map[id.Owner]int64{}
	_, err = db.Collect(rows, err, func(s db.Scanner) (o id.Owner, err error) {
		var n int64
		if err := s.Scan(&o, &n); err != nil {
			return o, err
		}
		out[o] = n
		return o, nil
	})
	if err != nil {
		return nil, fmt.Errorf("add up usage: %w", err)
	}
	return out, nil
}

// UsedBySite reports whether a site of the owner's has used any of a meter in this calendar month.
func (u *Usage) UsedBySite(ctx context.Context, r db.Reader, owner id.Owner, site id.Site, m Meter) (used bool, err error) {
	from, to := monthOf(u.now())
	err = r.QueryRow(ctx, `
		SELECT EXISTS (SELECT 1 FROM usage_sites WHERE owner_id = $1 AND meter = $2 AND day >= $3 AND day < $4 AND site_id = $5)
		OR EXISTS (SELECT 1 FROM usage_sources
			WHERE owner_id = $1 AND meter = $2 AND hour >= $3 AND hour < $4 AND counted < quantity AND site_id = $5)
		OR EXISTS (SELECT 1 FROM usage_before WHERE owner_id = $1 AND meter = $2 AND month = $6 AND site_id = $5)`,
		owner, m, from, to, site, limits.Month(from)).Scan(&used)
	if err != nil {
		return false, fmt.Errorf("look for usage of site: %w", err)
	}
	return used, nil
}
