package usage

import (
	"context"
	"fmt"
	"strings"

	"slipway/internal/platform/db"
	"slipway/internal/platform/id"
	"slipway/internal/tenant/limits"
)

// WindowOf returns the window of an owner's limits that contains a time.
func (u *Usage) WindowOf(ctx context.Context, r db.Reader, owner id.Owner, at db.Time) (limits.Window, error) {
	all, err := limits.Cycles(ctx, r, []id.Owner{owner})
	return all[owner].At(at), err
}

// Windows returns up to limit windows of an owner's limits, from the current one backwards.
func (u *Usage) Windows(ctx context.Context, owner id.Owner, limit int) (list []limits.Window, err error) {
	all, err := limits.Cycles(ctx, u.c.DB, []id.Owner{owner})
	for at := u.now(); len(list) < limit; {
		w := all[owner].At(at)
		if n := len(list); n > 0 {
			w.To = min(w.To, list[n-1].From)
		}
		list, at = append(list, w), w.From-1
	}
	return list, err
}

// CountsFrom returns the start of counting for a subscription with a new anchor: the current window's start, or the
// anchor if the owner never had a subscription.
func (u *Usage) CountsFrom(ctx context.Context, r db.Reader, owner id.Owner, anchor db.Time) (db.Time, error) {
	all, err := limits.Cycles(ctx, r, []id.Owner{owner})
	if c, ok := all[owner]; ok {
		return c.At(u.now()).From, err
	}
	return anchor, err
}

// windows returns the owners' windows that contain a time.
func (u *Usage) windows(ctx context.Context, r db.Reader, owners []id.Owner, at db.Time) (map[id.Owner]limits.Window, error) {
	all, err := limits.Cycles(ctx, r, owners)
	out := make(map[id.Owner]limits.Window, len(owners))
	for _, o := range owners {
		out[o] = all[o].At(at)
	}
	return out, err
}

// Current returns an owner's use of a meter in the current window.
func (u *Usage) Current(ctx context.Context, r db.Reader, owner id.Owner, m Meter) (int64, limits.Window, error) {
	w, err := u.WindowOf(ctx, r, owner, u.now())
	if err != nil {
		return 0, w, err
	}
	all, err := u.usedIn(ctx, r, map[id.Owner]limits.Window{owner: w}, m)
	return all[owner], w, err
}

// days returns the range of days that lie completely within a window.
func days(w limits.Window) (first, last db.Time) {
	first, last = floor(w.From+db.Time(day.Milliseconds())-1, day), floor(w.To, day)
	return first, max(first, last)
}

// usedIn returns owners' use, each in a window: sealed days and hours, unsealed rows, and monthly counts of old
// versions, which belong to the window that contains the month's start.
func (u *Usage) usedIn(ctx context.Context, r db.Reader, windows map[id.Owner]limits.Window, m Meter) (map[id.Owner]int64, error) {
	out := map[id.Owner]int64{}
	if len(windows) == 0 {
		return out, nil
	}
	args := db.Args{m}
	var of strings.Builder
	for o, w := range windows {
		first, last := days(w)
		if of.Len() > 0 {
			of.WriteString(", ")
		}
		fmt.Fprintf(&of, "(CAST(%s AS TEXT)", args.Add(o))
		for _, n := range []int64{int64(w.From), int64(w.To), int64(first), int64(last), limits.Month(w.From - 1), limits.Month(w.To - 1)} {
			fmt.Fprintf(&of, ", CAST(%s AS BIGINT)", args.Add(n))
		}
		of.WriteByte(')')
	}
	rows, err := r.Query(ctx, `
		WITH w (owner_id, begins, ends, first, last, before, month) AS (VALUES `+of.String()+`)
		SELECT owner_id, CAST(SUM(quantity) AS BIGINT) FROM (
			SELECT w.owner_id, quantity FROM w JOIN usage_days d ON d.owner_id = w.owner_id AND meter = $1 AND day >= first AND day < last
			UNION ALL
			SELECT w.owner_id, quantity FROM w JOIN usage_hours h ON h.owner_id = w.owner_id AND meter = $1 AND hour >= begins AND hour < first
				AND hour < ends
			UNION ALL
			SELECT w.owner_id, quantity FROM w JOIN usage_hours h ON h.owner_id = w.owner_id AND meter = $1 AND hour >= last AND hour < ends
			UNION ALL
			SELECT w.owner_id, quantity - counted FROM w JOIN usage_sources s ON s.owner_id = w.owner_id AND meter = $1
				AND hour >= begins AND hour < ends AND counted < quantity
			UNION ALL
			SELECT w.owner_id, quantity FROM w JOIN usage_before b ON b.owner_id = w.owner_id AND meter = $1
				AND b.month > w.before AND b.month <= w.month
		) AS used GROUP BY owner_id`, args...)
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

// partOfSource is the part of a source row that counts in the window from $3 to $4, given that the days from $5 to $6
// are counted by sealed days.
const partOfSource = `CASE WHEN hour < $5 OR hour >= $6 THEN quantity ELSE quantity - counted END`

// UsedBySite reports whether a site of the owner has used any of a meter in the current window.
func (u *Usage) UsedBySite(ctx context.Context, r db.Reader, owner id.Owner, site id.Site, m Meter) (used bool, err error) {
	w, err := u.WindowOf(ctx, r, owner, u.now())
	if err != nil {
		return false, err
	}
	first, last := days(w)
	err = r.QueryRow(ctx, `
		SELECT EXISTS (SELECT 1 FROM usage_sites WHERE owner_id = $1 AND meter = $2 AND day >= $5 AND day < $6 AND site_id = $7)
		OR EXISTS (SELECT 1 FROM usage_sources
			WHERE owner_id = $1 AND meter = $2 AND hour >= $3 AND hour < $4 AND `+partOfSource+` > 0 AND site_id = $7)
		OR EXISTS (SELECT 1 FROM usage_before WHERE owner_id = $1 AND meter = $2 AND month > $8 AND month <= $9 AND site_id = $7)`,
		owner, m, w.From, w.To, first, last, site, limits.Month(w.From-1), limits.Month(w.To-1)).Scan(&used)
	if err != nil {
		return false, fmt.Errorf("look for usage of site: %w", err)
	}
	return used, nil
}
