package traffic

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"slipway/internal/platform/id"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
)

// Step is the duration of a point.
type Step time.Duration

const (
	FiveMinutes = Step(fine)
	QuarterHour = Step(15 * time.Minute)
	Hour        = Step(hour)
	TwoHours    = Step(2 * hour)
	QuarterDay  = Step(6 * hour)
	Day         = Step(day)
)

// Steps lists every step.
var Steps = []Step{FiveMinutes, QuarterHour, Hour, TwoHours, QuarterDay, Day}

// String returns the step as in requests: 5m, 15m, 1h, 2h, 6h or 1d.
func (s Step) String() string {
	switch d := time.Duration(s); {
	case d >= day:
		return fmt.Sprintf("%dd", d/day)
	case d >= hour:
		return fmt.Sprintf("%dh", d/hour)
	default:
		return fmt.Sprintf("%dm", d/time.Minute)
	}
}

// Back returns how far back a series of this step can reach.
func (s Step) Back() time.Duration {
	switch d := time.Duration(s); {
	case d < hour:
		return keepFine
	case d < day:
		return keepHour
	}
	return keepDay
}

// StepFor returns the step that divides a period into 24 to 100 points.
func StepFor(back time.Duration) Step {
	for _, s := range Steps {
		if back/time.Duration(s) <= 100 && back <= s.Back() {
			return s
		}
	}
	return Day
}

// Series holds the counts of consecutive steps.
type Series struct {
	Step   Step
	Points []Point // without gaps; the last one is incomplete
}

// Point holds the counts of one step.
type Point struct {
	At db.Time // start
	Counts
}

// Total returns the sum of all points.
func (s Series) Total() (sum Counts) {
	for _, p := range s.Points {
		sum = sum.Plus(p.Counts)
	}
	return sum
}

// Series returns the counts of the owner's site from the start of the step containing since. Steps begin at their
// multiples in UTC. A time before the retention period is a fault. For other owners' sites it returns nothing.
func (t *Traffic) Series(ctx context.Context, owner account.OwnerID, site id.Site, since db.Time, step Step) (Series, error) {
	if !slices.Contains(Steps, step) {
		return Series{}, fault.New(fault.Invalid, "invalid_step", "Invalid step", "step must be "+stepNames()).Got(step.String())
	}
	now := t.c.Now()
	first := floor(since, time.Duration(step))
	switch {
	case first > now:
		return Series{}, fault.New(fault.Invalid, "invalid_since", "Invalid since", "since is in the future")
	case first < floor(now.Add(-step.Back()), time.Duration(step)):
		instead := "a longer step or a later moment"
		if step == Day {
			instead = "a later moment"
		}
		return Series{}, fault.New(fault.Invalid, "invalid_since", "Invalid since",
			fmt.Sprintf("steps of %s are stored for %s: ask for %s", step, backWords(step.Back()), instead))
	}
	bySite, err := t.read(ctx, owner, []id.Site{site}, first, step)
	if err != nil {
		return Series{}, err
	}
	return Series{step, fill(bySite[site], first, now, step)}, nil
}

// Day returns the last 24 hours of several of the owner's sites by hour, with one query. It omits sites without visits.
func (t *Traffic) Day(ctx context.Context, owner account.OwnerID, sites []id.Site) (map[id.Site]Series, error) {
	out := map[id.Site]Series{}
	if len(sites) == 0 {
		return out, nil
	}
	now := t.c.Now()
	first := floor(now, hour).Add(-23 * hour)
	bySite, err := t.read(ctx, owner, sites, first, Hour)
	if err != nil {
		return nil, err
	}
	for site, points := range bySite {
		out[site] = Series{Hour, fill(points, first, now, Hour)}
	}
	return out, nil
}

// read returns the sums by step. It reads hourly sums where they exist and shorter intervals otherwise, and daily sums
// only for days so old that they are certainly summed up.
func (t *Traffic) read(ctx context.Context, owner account.OwnerID, sites []id.Site, first db.Time, step Step) (map[id.Site][]Point, error) {
	now := t.c.Now()
	// The last summed hour is read from its parts, since the sum may be incomplete.
	hours, days := floor(now, hour).Add(-day), floor(now, day).Add(-32*day)
	if step >= Hour {
		var last db.Time
		if err := t.c.DB.QueryRow(ctx, `SELECT MAX(at) FROM traffic WHERE span = $1`, hour.Milliseconds()).Scan(&last); err != nil {
			return nil, fmt.Errorf("find sums of traffic: %w", err)
		}
		hours = min(max(hours, last), floor(now, hour))
	}
	args := db.Args{owner, time.Duration(step).Milliseconds()}
	list := db.AddList(&args, sites)
	var parts []string
	part := func(span time.Duration, from, to db.Time) {
		if from >= to {
			return
		}
		parts = append(
			parts,
			`SELECT site_id, at, `+columns+` FROM traffic WHERE site_id IN (`+list+`) AND span = `+args.Add(span.Milliseconds())+
				` AND at >= `+args.Add(from)+` AND at < `+args.Add(to),
		)
	}
	end := now.Add(day)
	switch {
	case step < Hour:
		part(fine, first, end)
	case step < Day:
		part(fine, max(first, hours), end)
		part(hour, first, hours)
	default:
		part(fine, max(first, hours), end)
		part(hour, max(first, days), hours)
		part(day, first, days)
	}
	rows, err := t.c.DB.Query(ctx, `
		SELECT p.site_id, p.begins, p.ok, p.redirected, p.client_errors, p.server_errors, p.pages, p.bytes
		FROM (
			SELECT site_id, at - at % $2 AS begins, `+sums+`
			FROM (`+strings.Join(parts, " UNION ALL ")+`) AS parts GROUP BY site_id, begins) AS p
		JOIN open_sites s ON s.id = p.site_id
		WHERE s.owner_id = $1 ORDER BY p.site_id, p.begins`, args...)
	type found struct {
		site id.Site
		Point
	}
	all, err := db.Collect(rows, err, func(s db.Scanner) (f found, err error) {
		return f, s.Scan(append([]any{&f.site, &f.At}, f.fields()...)...)
	})
	if err != nil {
		return nil, fmt.Errorf("read traffic: %w", err)
	}
	out := map[id.Site][]Point{}
	for _, f := range all {
		out[f.site] = append(out[f.site], f.Point)
	}
	return out, nil
}

// fill adds empty points for steps without counts.
func fill(points []Point, first, now db.Time, step Step) []Point {
	var out []Point
	for at := first; at <= now; at = at.Add(time.Duration(step)) {
		if len(points) > 0 && points[0].At == at {
			out, points = append(out, points[0]), points[1:]
			continue
		}
		out = append(out, Point{At: at})
	}
	return out
}

func stepNames() string {
	var names []string
	for _, s := range Steps {
		names = append(names, s.String())
	}
	return strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
}

func backWords(d time.Duration) string {
	if d <= 48*time.Hour {
		return fmt.Sprintf("%d hours", d/time.Hour)
	}
	return fmt.Sprintf("%d days", d/day)
}
