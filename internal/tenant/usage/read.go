package usage

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/id"
	"slipway/internal/tenant/limits"
)

// Query selects the usage to read.
type Query struct {
	Meters   []Meter       // Optional: empty means all.
	From, To db.Time       // From is rounded down to its step. Optional: the window of limits until now.
	Exact    bool          // count partial days exactly; From and To are whole hours
	Step     time.Duration // an hour or a day
	Site     id.Site       // Optional: empty means all sites and use without a site.
}

// Series is the use in consecutive steps.
type Series struct {
	Meter  Meter
	Total  int64
	Points []Point // without gaps
}

// Point is the use in one step.
type Point struct {
	At       db.Time
	Quantity int64
	Sealed   bool // it can't grow any more
}

// Limits of queries.
const (
	maxHours = 31 * day
	maxDays  = 400 * day
)

// check sets defaults and validates the query. The default start is that of the window.
func (q *Query) check(now db.Time, c limits.Cycle) error {
	if len(q.Meters) == 0 {
		q.Meters = Meters
	}
	if q.To == 0 || q.To > now {
		q.To = now
	}
	if q.From == 0 {
		q.From, q.Exact = c.At(q.To).From, true
	}
	keep, limit := keepSites, maxDays
	if q.Step == hour {
		keep, limit = keepHours, maxHours
		if q.Site != "" {
			keep = keepSources
		}
	}
	hours := keepHours
	if q.Site != "" {
		hours = keepSources
	}
	q.Exact = q.Exact && q.Step == day && q.From > now.Add(-hours)
	if !q.Exact {
		q.From = floor(q.From, q.Step)
	}
	no := func(name, details string) error {
		return fault.New(fault.Invalid, "invalid_"+name, "Invalid "+name, details)
	}
	switch {
	case q.From >= q.To:
		return no("from", "from must be before to and in the past")
	case q.From < floor(now.Add(-keep), q.Step):
		return no("from", fmt.Sprintf("steps of %s are stored for %d days; ask for a later from", stepWords(q.Step), keep/day))
	case q.To.Sub(q.From) > limit:
		return no("from", fmt.Sprintf("steps of %s cover at most %d days; ask for a later from", stepWords(q.Step), limit/day))
	}
	return nil
}

func stepWords(step time.Duration) string {
	if step == hour {
		return "an hour"
	}
	return "a day"
}

// Series returns an owner's use, one series per meter. Days are in UTC. Use recorded by the month, by old versions, is
// in the first step of its month.
func (u *Usage) Series(ctx context.Context, owner id.Owner, q Query) (list []Series, err error) {
	now := u.now()
	of, err := limits.Cycles(ctx, u.c.DB, []id.Owner{owner})
	if err != nil {
		return nil, err
	}
	if err := q.check(now, of[owner]); err != nil {
		return nil, err
	}
	err = u.c.DB.Snapshot(ctx, func(r db.Reader) error {
		var sealed db.Time
		if err := r.QueryRow(ctx, `SELECT hour FROM usage_sealed`).Scan(&sealed); err != nil {
			return err
		}
		end := sealed.Add(hour)
		found, err := u.read(ctx, r, owner, q)
		if err != nil {
			return err
		}
		list = nil
		for _, m := range q.Meters {
			s := Series{Meter: m}
			for at := floor(q.From, q.Step); at < q.To; at = at.Add(q.Step) {
				p := Point{At: at, Quantity: found[entry{meter: m, hour: at}], Sealed: at.Add(q.Step) <= end}
				s.Points = append(s.Points, p)
				s.Total += p.Quantity
			}
			list = append(list, s)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read usage: %w", err)
	}
	return list, nil
}

// read returns the use by meter and step.
func (u *Usage) read(ctx context.Context, r db.Reader, owner id.Owner, q Query) (map[entry]int64, error) {
	args := db.Args{owner, q.From, q.To, q.Step.Milliseconds()}
	meters := db.AddList(&args, q.Meters)
	var parts []string
	part := func(table, column, quantity, from, to, where string) {
		parts = append(parts, `SELECT meter, `+column+` - `+column+` % $4 AS at, `+quantity+` AS quantity FROM `+table+`
			WHERE owner_id = $1 AND meter IN (`+meters+`) AND `+column+` >= `+from+` AND `+column+` < `+to+where)
	}
	const open = ` AND counted < quantity`
	first, last := "$2", "$3" // whole days
	if q.Exact {
		a, b := days(limits.Window{From: q.From, To: q.To})
		first, last = args.Add(a), args.Add(b)
	}
	switch {
	case q.Site == "" && q.Step == hour:
		part("usage_hours", "hour", "quantity", "$2", "$3", "")
		part("usage_sources", "hour", "quantity - counted", "$2", "$3", open)
	case q.Site == "":
		part("usage_days", "day", "quantity", first, last, "")
		part("usage_sources", "hour", "quantity - counted", "$2", "$3", open)
		if q.Exact {
			part("usage_hours", "hour", "quantity", "$2", first, " AND hour < $3")
			part("usage_hours", "hour", "quantity", last, "$3", "")
		}
	case q.Step == hour:
		part("usage_sources", "hour", "quantity", "$2", "$3", " AND site_id = "+args.Add(string(q.Site)))
	default:
		site := " AND site_id = " + args.Add(string(q.Site))
		part("usage_sites", "day", "quantity", first, last, site)
		part("usage_sources", "hour", "quantity - counted", "$2", "$3", open+site)
		if q.Exact {
			part("usage_sources", "hour", "counted", "$2", first, " AND hour < $3"+site)
			part("usage_sources", "hour", "counted", last, "$3", site)
		}
	}
	rows, err := r.Query(ctx, `SELECT meter, at, CAST(SUM(quantity) AS BIGINT) FROM (`+strings.Join(parts, ` UNION ALL `)+`) AS used GROUP BY meter, at`, args...)
	out := map[entry]int64{}
	_, err = db.Collect(rows, err, func(s db.Scanner) (e entry, err error) {
		var n int64
		err = s.Scan(&e.meter, &e.hour, &n)
		out[e] += n
		return e, err
	})
	if err != nil {
		return nil, err
	}
	rows, err = r.Query(ctx, `SELECT meter, month, site_id, quantity FROM usage_before WHERE owner_id = $1`, owner)
	_, err = db.Collect(rows, err, func(s db.Scanner) (e entry, err error) {
		var month, n int64
		if err := s.Scan(&e.meter, &month, &e.site, &n); err != nil {
			return e, err
		}
		begins := db.At(time.Date(int(month/100), time.Month(month%100), 1, 0, 0, 0, 0, time.UTC))
		if begins >= q.From && begins < q.To && (q.Site == "" || q.Site == e.site) && slices.Contains(q.Meters, e.meter) {
			out[entry{meter: e.meter, hour: floor(begins, q.Step)}] += n
		}
		return e, nil
	})
	return out, err
}

// Part is the use of one site or deployment.
type Part struct {
	ID       string
	Quantity int64
}

// BySite returns the sites that used most of a meter in a window, including deleted ones, and the sum of the others. On
// partial days, use older than the stored source rows is missing.
func (u *Usage) BySite(ctx context.Context, owner id.Owner, m Meter, w limits.Window, limit int) (top []Part, others int64, err error) {
	first, last := days(w)
	rows, err := u.c.DB.Query(ctx, `
		SELECT site_id, CAST(SUM(quantity) AS BIGINT) AS n FROM (
			SELECT site_id, quantity FROM usage_sites WHERE owner_id = $1 AND meter = $2 AND day >= $5 AND day < $6
			UNION ALL
			SELECT site_id, `+partOfSource+` FROM usage_sources
			WHERE owner_id = $1 AND meter = $2 AND hour >= $3 AND hour < $4 AND `+partOfSource+` > 0
			UNION ALL
			SELECT site_id, quantity FROM usage_before WHERE owner_id = $1 AND meter = $2 AND month > $7 AND month <= $8
		) AS used WHERE site_id <> '' GROUP BY site_id ORDER BY n DESC, site_id`,
		owner, m, w.From, w.To, first, last, limits.Month(w.From-1), limits.Month(w.To-1))
	return cut(rows, err, limit)
}

// ByDeployment returns the deployments that used most build time in a window, as far as their source rows are still
// stored.
func (u *Usage) ByDeployment(ctx context.Context, owner id.Owner, w limits.Window, limit int) (top []Part, others int64, err error) {
	rows, err := u.c.DB.Query(ctx, `
		SELECT source, CAST(SUM(quantity) AS BIGINT) AS n FROM usage_sources
		WHERE owner_id = $1 AND meter = $2 AND hour >= $3 AND hour < $4 AND source LIKE 'dep_%' GROUP BY source`, owner, Build, w.From, w.To)
	all, _, err := cut(rows, err, 1<<30)
	if err != nil {
		return nil, 0, err
	}
	sums := map[string]int64{}
	for _, p := range all { // sum up the attempts of one deployment
		of, _, _ := strings.Cut(p.ID, "/")
		sums[of] += p.Quantity
	}
	for of, n := range sums {
		top = append(top, Part{of, n})
	}
	slices.SortFunc(top, func(a, b Part) int {
		if a.Quantity != b.Quantity {
			return int(min(max(b.Quantity-a.Quantity, -1), 1))
		}
		return strings.Compare(a.ID, b.ID)
	})
	for ; len(top) > limit; top = top[:len(top)-1] {
		others += top[len(top)-1].Quantity
	}
	return top, others, nil
}

func cut(rows *sql.Rows, err error, limit int) (top []Part, others int64, _ error) {
	all, err := db.Collect(rows, err, func(s db.Scanner) (p Part, err error) { return p, s.Scan(&p.ID, &p.Quantity) })
	if err != nil {
		return nil, 0, fmt.Errorf("read who used it: %w", err)
	}
	for _, p := range all[min(limit, len(all)):] {
		others += p.Quantity
	}
	return all[:min(limit, len(all))], others, nil
}

// Forecast extrapolates the use at the end of a window. For an ended window, and on the first day, it returns used.
func Forecast(used int64, w limits.Window, now db.Time) int64 {
	if now >= w.To || now.Sub(w.From) < day {
		return used
	}
	return int64(float64(used) / float64(now-w.From) * float64(w.To-w.From))
}
