package sites

import (
	"context"
	"fmt"
	"html/template"
	"strconv"
	"strings"
	"time"

	"slipway/internal/deploy/deployment"
	"slipway/internal/platform/db"
	"slipway/internal/tenant/traffic"
	"slipway/internal/web/dashboard/shell"
)

// A site's last day as small plots with a common time axis: requests, errors and, for a program, latency and memory. A
// script shows a crosshair in all of them, in the reader's time zone.
const cockpitStep = traffic.QuarterHour

// cockpit holds the plots and the deployments in their period.
type cockpit struct {
	From, Step int64 // milliseconds: start of the first point, and duration of each
	Gauges     []gauge
	Marks      []deployMark
}

// gauge is a plot with its main value.
type gauge struct {
	ID, Title string
	Value     string // value of the day
	Note      string // its context
	Bad       bool
	Says      string // description for screen readers
	Words     string // descriptions of the points, separated by |
	Line      template.HTMLAttr
	Area      template.HTMLAttr
}

// deployMark marks a deployment in the plots.
type deployMark struct {
	Left string // position in percent
	N    int    // index of the point
	Says string
}

// figures holds a gauge's values, one per point.
type figures struct {
	gauge
	values []int64
	words  func(i int) string
}

// cockpit loads the last day of a site.
func (d *Pages) cockpit(ctx context.Context, q *shell.Request, head SiteHead, list []deployment.Deployment) (cockpit, error) {
	// The same steps as the traffic chart, including the current one, so that both show the same day.
	s, err := d.Traffic.Series(ctx, q.Caller.Owner, head.Site.ID, db.Now().Add(-24*time.Hour+time.Duration(cockpitStep)), cockpitStep)
	if err != nil || len(s.Points) < 2 {
		return cockpit{}, err
	}
	n, from := len(s.Points), s.Points[0].At
	out := cockpit{From: int64(from), Step: time.Duration(cockpitStep).Milliseconds()}
	place := func(at db.Time) int { return int((int64(at) - out.From) / out.Step) }
	total := s.Total()
	if head.Site.LiveRelease == "" && total.Requests() == 0 { // don't draw flat lines for a site that was never online
		return cockpit{}, nil
	}
	of := func(value func(traffic.Counts) int64) []int64 {
		v := make([]int64, n)
		for i, p := range s.Points {
			v[i] = value(p.Counts)
		}
		return v
	}
	requests := of(traffic.Counts.Requests)
	all := []figures{{
		gauge: gauge{
			ID: "requests", Title: "Requests", Value: shell.Thousands(total.Requests()),
			Note: fmt.Sprintf("Peak %s per minute", perMinute(largest(requests))),
		},
		values: requests,
		words: func(i int) string {
			return shell.Pluralize(requests[i], "request") + ", " + perMinute(requests[i]) + " per minute"
		},
	}}
	failed := of(func(c traffic.Counts) int64 { return c.ServerErrors })
	errors := figures{
		gauge: gauge{
			ID: "errors", Title: "Errors (5xx)", Value: shell.Thousands(total.ServerErrors), Note: "No failed requests",
			Bad: total.ServerErrors > 0,
		},
		values: failed,
		words:  func(i int) string { return shell.Pluralize(failed[i], "error") },
	}
	if total.ServerErrors > 0 {
		errors.Note = fmt.Sprintf("%.2g%% of requests", 100*float64(total.ServerErrors)/float64(total.Requests()))
	}
	if head.HasProgram() && d.Programs != nil {
		more, err := d.programGauges(ctx, head, n, place)
		if err != nil {
			return cockpit{}, err
		}
		all = append(all, more...)
	} else {
		sent := of(func(c traffic.Counts) int64 { return c.Bytes })
		all = append(all, figures{
			gauge: gauge{
				ID: "sent", Title: "Data sent", Value: shell.BytesWord(total.Bytes),
				Note: "Peak " + shell.BytesWord(largest(sent)) + " in 15 minutes",
			},
			values: sent,
			words:  func(i int) string { return shell.BytesWord(sent[i]) },
		})
	}
	all = append(all, errors)
	for _, f := range all {
		f.draw()
		out.Gauges = append(out.Gauges, f.gauge)
	}
	for _, x := range list {
		if i := place(x.CompletedAt); x.Status == deployment.Success && x.CompletedAt > from && i < n {
			row := DeploymentRow{Deployment: x, head: head}
			left := 100 * float64(int64(x.CompletedAt)-out.From) / float64(out.Step*int64(n-1))
			out.Marks = append(out.Marks, deployMark{Left: short(min(left, 100)), N: i, Says: "Deployed: " + shell.Short(60, row.Name())})
		}
	}
	return out, nil
}

// programGauges returns the gauges of a site's program.
func (d *Pages) programGauges(ctx context.Context, head SiteHead, n int, place func(db.Time) int) ([]figures, error) {
	list, _, err := d.Programs.Figures(ctx, head.Site.ID)
	if err != nil {
		return nil, err
	}
	latency, memory := make([]int64, n), make([]int64, n)
	for _, f := range list {
		if i := place(f.At); i >= 0 && i < n {
			latency[i], memory[i] = max(latency[i], f.P95.Milliseconds()), max(memory[i], f.Memory)
		}
	}
	ms := func(v int64) string { return shell.Thousands(v) + " ms" }
	now := memory[n-1]
	if head.Process != nil && head.Process.Memory > 0 {
		now = head.Process.Memory
	}
	return []figures{
		{
			gauge:  gauge{ID: "p95", Title: "Latency (p95)", Value: ms(latest(latency)), Note: "Peak " + ms(largest(latency))},
			values: latency,
			words:  func(i int) string { return ms(latency[i]) },
		},
		{
			gauge:  gauge{ID: "memory", Title: "Memory", Value: shell.BytesWord(now), Note: "Peak " + shell.BytesWord(max(now, largest(memory)))},
			values: memory,
			words:  func(i int) string { return shell.BytesWord(memory[i]) },
		},
	}, nil
}

// draw renders a gauge's line, 100 wide and 32 high, and its descriptions.
func (f *figures) draw() {
	top := max(largest(f.values), 1)
	var line strings.Builder
	words := make([]string, len(f.values))
	for i, v := range f.values {
		if i > 0 {
			line.WriteByte('L')
		}
		fmt.Fprintf(&line, "%s %s", short(100*float64(i)/float64(len(f.values)-1)), short(30-28*float64(v)/float64(top)))
		words[i] = f.words(i)
	}
	f.Words = strings.Join(words, "|")
	f.Line = template.HTMLAttr(`d="M` + line.String() + `"`) // only numbers
	f.Area = template.HTMLAttr(`d="M0 32L` + line.String() + `L100 32Z"`)
	f.Says = f.Title + " in the last 24 hours: " + f.Value + ". " + f.Note
}

// short formats a number with at most one decimal.
func short(f float64) string {
	return strings.TrimSuffix(strconv.FormatFloat(f, 'f', 1, 64), ".0")
}

// perMinute formats a quarter-hour count as a rate per minute.
func perMinute(n int64) string {
	if n == 0 {
		return "0"
	}
	if f := float64(n) / time.Duration(cockpitStep).Minutes(); f < 10 {
		return short(max(f, .1))
	}
	return shell.Rough(n / int64(time.Duration(cockpitStep).Minutes()))
}

func largest(v []int64) (most int64) {
	for _, x := range v {
		most = max(most, x)
	}
	return most
}

// latest returns the last nonzero value.
func latest(v []int64) (last int64) {
	for _, x := range v {
		if x > 0 {
			last = x
		}
	}
	return last
}
