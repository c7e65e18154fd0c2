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

// A site's last day, as a row of small plots that share their time: requests, errors and, of an application,
// latency and memory. A script shows a crosshair in all of them at once, in the reader's own time.
const cockpitStep = traffic.QuarterHour

// cockpit holds the plots, and what happened in the time that they show.
type cockpit struct {
	From, Step int64 // milliseconds: when the first point begins, and how long each is
	Gauges     []gauge
	Marks      []deployMark
}

// gauge is one plot with its figure.
type gauge struct {
	ID, Title string
	Value     string // the figure of the day
	Note      string // its context
	Bad       bool
	Says      string // what it shows, for those who don't see it
	Words     string // each point in words, parted by |
	Line      template.HTMLAttr
	Area      template.HTMLAttr
}

// deployMark is a deployment among the points.
type deployMark struct {
	Left string // of a hundred
	N    int    // which point
	Says string
}

// figures are the values of a gauge, one for each point.
type figures struct {
	gauge
	values []int64
	words  func(i int) string
}

// cockpit reads the last day of a site.
func (d *Pages) cockpit(ctx context.Context, q *shell.Request, head SiteHead, list []deployment.Deployment) (cockpit, error) {
	// As many steps as the plot of traffic below has, the last one still growing: both say the same of a day.
	s, err := d.Traffic.Series(ctx, q.Caller.Owner, head.Site.ID, db.Now().Add(-24*time.Hour+time.Duration(cockpitStep)), cockpitStep)
	if err != nil || len(s.Points) < 2 {
		return cockpit{}, err
	}
	n, from := len(s.Points), s.Points[0].At
	out := cockpit{From: int64(from), Step: time.Duration(cockpitStep).Milliseconds()}
	place := func(at db.Time) int { return int((int64(at) - out.From) / out.Step) }
	total := s.Total()
	if head.Site.LiveRelease == "" && total.Requests() == 0 { // flat lines of a site that was never there
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

// programGauges are those of a site's application.
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

// draw makes the lines and words of a gauge: 100 wide, 32 high.
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
	f.Line = template.HTMLAttr(`d="M` + line.String() + `"`) // numbers of ours
	f.Area = template.HTMLAttr(`d="M0 32L` + line.String() + `L100 32Z"`)
	f.Says = f.Title + " in the last 24 hours: " + f.Value + ". " + f.Note
}

// short writes a number with at most one decimal.
func short(f float64) string {
	return strings.TrimSuffix(strconv.FormatFloat(f, 'f', 1, 64), ".0")
}

// perMinute writes how many of a quarter of an hour there are in a minute.
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

// latest returns the last value that is not zero.
func latest(v []int64) (last int64) {
	for _, x := range v {
		if x > 0 {
			last = x
		}
	}
	return last
}
