package dashboard

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/traffic"
)

// stretch is a period for which traffic is shown.
type stretch struct {
	Name  string // in the address
	Label string
	Words string // after "in"
	Step  traffic.Step
	N     int  // steps
	Weeks bool // so many of them that they are shown by the week
	Link  string
	On    bool
}

// stretches are those that can be chosen, the first unless one is.
var stretches = []stretch{
	{Name: "24h", Label: "24 hours", Words: "the last 24 hours", Step: traffic.QuarterHour, N: 96},
	{Name: "7d", Label: "7 days", Words: "the last 7 days", Step: traffic.TwoHours, N: 84},
	{Name: "30d", Label: "30 days", Words: "the last 30 days", Step: traffic.Day, N: 30},
	{Name: "90d", Label: "90 days", Words: "the last 90 days", Step: traffic.Day, N: 90},
	{Name: "400d", Label: "400 days", Words: "the last 400 days", Step: traffic.Day, N: 400, Weeks: true},
}

// chosen returns the stretches with the one that was asked for, if it was.
func chosen(list []stretch, name string, link func(name string) string) (all []stretch, on stretch) {
	at := 0
	for i, s := range list {
		if s.Name == name {
			at = i
		}
	}
	for i, s := range list {
		s.Link, s.On = link(s.Name), i == at
		all = append(all, s)
	}
	return all, all[at]
}

// visits holds a site's traffic for templates.
type visits struct {
	Stretches []stretch
	Stretch   stretch
	Total     traffic.Counts
	Plots     []plot
	Rows      []visitRow // for the table; the newest first, those without visits left out
	Live      string     // where the live part comes from
	Query     string     // of the REST call
}

type visitRow struct {
	When string
	traffic.Counts
}

// Errors is how many answers told of one.
func (v visits) Errors() int64 { return v.Total.ClientErrors + v.Total.ServerErrors }

// Share is how many of a hundred answers told of an error, in words.
func (v visits) Share() string {
	all, bad := v.Total.Requests(), v.Errors()
	switch share := 100 * float64(bad) / float64(max(all, 1)); {
	case bad == 0:
		return "none"
	case share < .1:
		return "under 0.1% of requests"
	case share < 10:
		return fmt.Sprintf("%.1f%% of requests", share)
	default:
		return fmt.Sprintf("%.0f%% of requests", share)
	}
}

type siteTraffic struct {
	siteHead
	Visits visits
	Tops   []topList
	Since  string // from when on those were counted
	Log    string // where the access log is downloaded; empty where none is written
}

// topList holds the most frequent names of a kind.
type topList struct {
	ID, Title, Column string
	Rows              []traffic.Top
	Others            int64
}

// topLists reads what came most often in a stretch of time.
func (d *Dashboard) topLists(ctx context.Context, q *request, head siteHead, on stretch) (lists []topList, since db.Time, err error) {
	back := min(time.Duration(on.Step)*time.Duration(on.N-1), 30*24*time.Hour)
	since = db.Now().Add(-back)
	since -= since % db.Time((24 * time.Hour).Milliseconds())
	for _, l := range []struct {
		kind traffic.Kind
		topList
	}{
		{traffic.Pages, topList{ID: "pages", Title: "Top pages", Column: "Path"}},
		{traffic.Missing, topList{ID: "missing", Title: "Not found (404)", Column: "Path"}},
		{traffic.Referrers, topList{ID: "referrers", Title: "Referrers", Column: "Host"}},
		{traffic.Countries, topList{ID: "countries", Title: "Countries", Column: "Code"}},
	} {
		if l.Rows, l.Others, err = d.Traffic.Top(ctx, q.caller.Owner, string(head.Site.ID), l.kind, since, 10); err != nil {
			return nil, 0, err
		}
		if len(l.Rows) > 0 || l.Others > 0 {
			lists = append(lists, l.topList)
		}
	}
	return lists, since, nil
}

// accessLog is the last seven days of a site's requests, one line of JSON for each.
func (d *Dashboard) accessLog(ctx context.Context, q *request) (answer, error) {
	head, err := d.head(ctx, q, "traffic")
	if err != nil {
		return answer{}, err
	}
	return answer{raw: func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/jsonl")
		w.Header().Set("Content-Disposition", `attachment; filename="`+head.Site.Slug+`-access-log.jsonl"`)
		if err := d.Traffic.Log(ctx, q.caller.Owner, string(head.Site.ID), db.Now().Add(-7*24*time.Hour), &patientWriter{
			w,
			http.NewResponseController(w),
		}); err != nil {
			d.Log.WarnContext(ctx, "access log download failed", "request", q.id, "err", err)
			panic(http.ErrAbortHandler) // half a file must not look whole
		}
	}}, nil
}

// patientWriter gives each write of a long answer its own deadline.
type patientWriter struct {
	io.Writer
	conn *http.ResponseController
}

func (w *patientWriter) Write(b []byte) (int, error) {
	w.conn.SetWriteDeadline(time.Now().Add(sendTime)) // where there is none to be set, there is none
	return w.Writer.Write(b)
}

func (d *Dashboard) trafficPage(ctx context.Context, q *request) (answer, error) {
	data, err := d.siteTraffic(ctx, q)
	return page("site_traffic", "Traffic of "+data.Site.Name, data), err
}

// trafficLive sends the page's figures again as they grow.
func (d *Dashboard) trafficLive(ctx context.Context, q *request) (answer, error) {
	if _, err := d.head(ctx, q, "traffic"); err != nil {
		return answer{}, err
	}
	return answer{live: live{render: func(ctx context.Context) ([]byte, bool, error) {
		data, err := d.siteTraffic(ctx, q)
		if err != nil {
			return nil, false, err
		}
		html, err := d.part(ctx, q, "site_traffic", "traffic", data)
		return html, false, err
	}}}, nil
}

func (d *Dashboard) siteTraffic(ctx context.Context, q *request) (siteTraffic, error) {
	head, err := d.head(ctx, q, "traffic")
	if err != nil {
		return siteTraffic{}, err
	}
	at := head.Base() + "/traffic"
	all, on := chosen(stretches, q.query("span"), func(name string) string { return link(at, "span", name) })
	v, s, err := d.visits(ctx, q, head, on)
	if err != nil {
		return siteTraffic{}, err
	}
	v.Stretches, v.Live = all, link(at+"/follow", "span", on.Name)
	v.Plots = []plot{pagesPlot(s, on), requestsPlot(s, on), bytesPlot(s, on)}
	for i := len(s.Points) - 1; i >= 0; i-- {
		if p := s.Points[i]; p.Counts != (traffic.Counts{}) {
			v.Rows = append(v.Rows, visitRow{whenWords(p.At, s.Step), p.Counts})
		}
	}
	data := siteTraffic{siteHead: head, Visits: v}
	settings, err := d.Sites.Serving(ctx, d.DB, q.caller.Owner, head.Site.ID)
	if err != nil {
		return siteTraffic{}, err
	}
	if settings.AccessLog != "off" {
		data.Log = at + "/log"
	}
	tops, first, err := d.topLists(ctx, q, head, on)
	data.Tops, data.Since = tops, first.Time().Format("2 January 2006")
	return data, err
}

// visits reads a site's traffic for a stretch of time.
func (d *Dashboard) visits(ctx context.Context, q *request, head siteHead, on stretch) (visits, traffic.Series, error) {
	since := db.Now().Add(-time.Duration(on.Step) * time.Duration(on.N-1))
	s, err := d.Traffic.Series(ctx, q.caller.Owner, string(head.Site.ID), since, on.Step)
	if on.Weeks {
		s = weekly(s)
	}
	return visits{Stretch: on, Total: s.Total(), Query: "?since=" + on.Name + "&step=" + on.Step.String()}, s, err
}

// week is seven days from a Monday on.
const week = 7 * traffic.Day

// weekly adds the days of each week up. The first week begins with the series.
func weekly(s traffic.Series) traffic.Series {
	out := traffic.Series{Step: week}
	for i, p := range s.Points {
		if i == 0 || p.At.Time().Weekday() == time.Monday {
			out.Points = append(out.Points, traffic.Point{At: p.At})
		}
		last := &out.Points[len(out.Points)-1]
		last.Counts = last.Plus(p.Counts)
	}
	return out
}

func barsOf(s traffic.Series, values func(traffic.Counts) []int64, says func(traffic.Counts) string) (bars []bar, most int64) {
	for _, p := range s.Points {
		b := bar{At: p.At, Values: values(p.Counts), Says: whenWords(p.At, s.Step) + ": " + says(p.Counts)}
		var sum int64
		for _, v := range b.Values {
			sum += v
		}
		most = max(most, sum)
		bars = append(bars, b)
	}
	return bars, most
}

func pagesPlot(s traffic.Series, on stretch) plot {
	sum := pluralize(s.Total().Pages, "page view")
	p := plot{
		ID: "pages", Title: "Page views", Sum: thousands(s.Total().Pages), Says: "Page views over time: " + sum + " in " + on.Words,
		Series: []plotSeries{{"Page views", "s-pages"}},
	}
	bars, most := barsOf(s, func(c traffic.Counts) []int64 { return []int64{c.Pages} }, func(c traffic.Counts) string {
		return pluralize(
			c.Pages,
			"page view",
		)
	})
	p.draw(bars, time.Duration(s.Step), roundTop(most), rough)
	return p
}

func requestsPlot(s traffic.Series, on stretch) plot {
	t := s.Total()
	p := plot{
		ID: "requests", Title: "Requests", Sum: thousands(t.Requests()),
		Says: fmt.Sprintf(
			"Requests over time by status: %s in %s, of them %s, %s and %s",
			pluralize(t.Requests(), "request"),
			on.Words,
			"redirects and unchanged "+thousands(t.Redirected),
			"not found and refused "+thousands(t.ClientErrors),
			"failed "+thousands(t.ServerErrors),
		),
		Series: []plotSeries{
			{"Answered (2xx)", "s-ok"},
			{"Redirected, unchanged (3xx)", "s-moved"},
			{"Not found, refused (4xx)", "s-client"},
			{"Failed (5xx)", "s-server"},
		},
	}
	bars, most := barsOf(
		s,
		func(c traffic.Counts) []int64 { return []int64{c.OK, c.Redirected, c.ClientErrors, c.ServerErrors} },
		statusWords,
	)
	p.draw(bars, time.Duration(s.Step), roundTop(most), rough)
	return p
}

func bytesPlot(s traffic.Series, on stretch) plot {
	sum := bytesWord(s.Total().Bytes)
	p := plot{
		ID: "bytes", Title: "Data sent", Sum: sum, Says: "Data sent over time: " + sum + " in " + on.Words,
		Series: []plotSeries{{"Data sent", "s-bytes"}},
	}
	bars, most := barsOf(
		s,
		func(c traffic.Counts) []int64 { return []int64{c.Bytes} },
		func(c traffic.Counts) string { return bytesWord(c.Bytes) },
	)
	p.draw(bars, time.Duration(s.Step), roundBytes(most), bytesWord)
	return p
}

// statusWords says how many requests there were, and those that are not as they should be.
func statusWords(c traffic.Counts) string {
	text := pluralize(c.Requests(), "request")
	for _, x := range []struct {
		n    int64
		what string
	}{{c.Redirected, "3xx"}, {c.ClientErrors, "4xx"}, {c.ServerErrors, "5xx"}} {
		if x.n > 0 {
			text += fmt.Sprintf(", %s %s", thousands(x.n), x.what)
		}
	}
	return text
}

// whenWords names a stretch of time.
func whenWords(at db.Time, step traffic.Step) string {
	if step >= week {
		return "Week from " + at.Time().Format("2 January 2006")
	}
	if step >= traffic.Day {
		return at.Time().Format("Mon 2 January 2006")
	}
	return at.Time().Format("Mon 2 January, 15:04") + " to " + at.Add(time.Duration(step)).Time().Format("15:04")
}
