package sites

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/visit"
	"slipway/internal/tenant/traffic"
	"slipway/internal/web/dashboard/shell"
)

// visits is a site's traffic for templates.
type visits struct {
	Stretches []shell.Stretch
	Stretch   shell.Stretch
	Total     traffic.Counts
	Plots     []shell.Plot
	Rows      []visitRow // rows with visits, newest first
	Live      string     // URL of the live part
	Query     string     // of the REST call
}

type visitRow struct {
	When string
	traffic.Counts
}

// Errors returns the number of error responses.
func (v visits) Errors() int64 { return v.Total.ClientErrors + v.Total.ServerErrors }

// Share describes the percentage of error responses.
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
	SiteHead
	Visits visits
	Tops   []topList
	Since  string // start of their counts
	Log    string // URL of the access log's download; empty if none is written
}

// topList holds the most frequent names of a kind.
type topList struct {
	ID, Title, Column string
	Rows              []traffic.Top
	Others            int64
}

// topLists loads the most frequent names in a period.
func (d *Pages) topLists(
	ctx context.Context, q *shell.Request, head SiteHead, on shell.Stretch,
) (lists []topList, since db.Time, err error) {
	back := min(time.Duration(on.Step)*time.Duration(on.N-1), 30*24*time.Hour)
	since = db.Now().Add(-back)
	since -= since % db.Time((24 * time.Hour).Milliseconds())
	for _, l := range []struct {
		kind visit.Kind
		topList
	}{
		{visit.Pages, topList{ID: "pages", Title: "Top pages", Column: "Path"}},
		{visit.Missing, topList{ID: "missing", Title: "Not found (404)", Column: "Path"}},
		{visit.Referrers, topList{ID: "referrers", Title: "Referrers", Column: "Host"}},
		{visit.Countries, topList{ID: "countries", Title: "Countries", Column: "Code"}},
	} {
		if l.Rows, l.Others, err = d.Traffic.Top(ctx, q.Caller.Owner, head.Site.ID, l.kind, since, 10); err != nil {
			return nil, 0, err
		}
		if len(l.Rows) > 0 || l.Others > 0 {
			lists = append(lists, l.topList)
		}
	}
	return lists, since, nil
}

// accessLog downloads the last seven days of a site's requests as JSON lines.
func (d *Pages) accessLog(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	head, err := d.Head(ctx, q, "traffic")
	if err != nil {
		return shell.Answer{}, err
	}
	return shell.Raw(func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/jsonl")
		w.Header().Set("Content-Disposition", `attachment; filename="`+head.Site.Slug+`-access-log.jsonl"`)
		if err := d.Traffic.Log(ctx, q.Caller.Owner, head.Site.ID, db.Now().Add(-7*24*time.Hour), &patientWriter{
			w,
			http.NewResponseController(w),
		}); err != nil {
			d.Log.WarnContext(ctx, "access log download failed", "request", q.ID, "err", err)
			panic(http.ErrAbortHandler) // abort, so that a partial file doesn't look complete
		}
	}), nil
}

// patientWriter sets a deadline for each write of a long response.
type patientWriter struct {
	io.Writer
	conn *http.ResponseController
}

func (w *patientWriter) Write(b []byte) (int, error) {
	w.conn.SetWriteDeadline(time.Now().Add(shell.SendTime)) // test writers have no deadline
	return w.Writer.Write(b)
}

func (d *Pages) trafficPage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	data, err := d.siteTraffic(ctx, q)
	return shell.Page("site_traffic", "Traffic of "+data.Site.Name, data), err
}

// trafficLive updates the page's numbers.
func (d *Pages) trafficLive(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	if _, err := d.Head(ctx, q, "traffic"); err != nil {
		return shell.Answer{}, err
	}
	return shell.LivePart(5*time.Second, func(ctx context.Context) ([]byte, bool, error) {
		data, err := d.siteTraffic(ctx, q)
		if err != nil {
			return nil, false, err
		}
		html, err := d.Part(ctx, q, "site_traffic", "traffic", data)
		return html, false, err
	}), nil
}

func (d *Pages) siteTraffic(ctx context.Context, q *shell.Request) (siteTraffic, error) {
	head, err := d.Head(ctx, q, "traffic")
	if err != nil {
		return siteTraffic{}, err
	}
	at := head.Base() + "/traffic"
	all, on := shell.Chosen(shell.Stretches, q.Query("span"), func(name string) string { return shell.Link(at, "span", name) })
	v, s, err := d.visits(ctx, q, head, on)
	if err != nil {
		return siteTraffic{}, err
	}
	v.Stretches, v.Live = all, shell.Link(at+"/follow", "span", on.Name)
	v.Plots = []shell.Plot{pagesPlot(s, on), requestsPlot(s, on), bytesPlot(s, on)}
	for i := len(s.Points) - 1; i >= 0; i-- {
		if p := s.Points[i]; p.Counts != (traffic.Counts{}) {
			v.Rows = append(v.Rows, visitRow{shell.WhenWords(p.At, s.Step), p.Counts})
		}
	}
	data := siteTraffic{SiteHead: head, Visits: v}
	settings, err := d.Sites.Serving(ctx, d.DB, q.Caller.Owner, head.Site.ID)
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

// visits loads a site's traffic in a period.
func (d *Pages) visits(ctx context.Context, q *shell.Request, head SiteHead, on shell.Stretch) (visits, traffic.Series, error) {
	since := db.Now().Add(-time.Duration(on.Step) * time.Duration(on.N-1))
	s, err := d.Traffic.Series(ctx, q.Caller.Owner, head.Site.ID, since, on.Step)
	if on.Weeks {
		s = weekly(s)
	}
	return visits{Stretch: on, Total: s.Total(), Query: "?since=" + on.Name + "&step=" + on.Step.String()}, s, err
}

// weekly sums the days of each week. The first week begins with the series.
func weekly(s traffic.Series) traffic.Series {
	out := traffic.Series{Step: shell.Week}
	for i, p := range s.Points {
		if i == 0 || p.At.Time().Weekday() == time.Monday {
			out.Points = append(out.Points, traffic.Point{At: p.At})
		}
		last := &out.Points[len(out.Points)-1]
		last.Counts = last.Plus(p.Counts)
	}
	return out
}

func barsOf(s traffic.Series, values func(traffic.Counts) []int64, says func(traffic.Counts) string) (bars []shell.Bar, most int64) {
	for _, p := range s.Points {
		b := shell.Bar{At: p.At, Values: values(p.Counts), Says: shell.WhenWords(p.At, s.Step) + ": " + says(p.Counts)}
		var sum int64
		for _, v := range b.Values {
			sum += v
		}
		most = max(most, sum)
		bars = append(bars, b)
	}
	return bars, most
}

func pagesPlot(s traffic.Series, on shell.Stretch) shell.Plot {
	sum := shell.Pluralize(s.Total().Pages, "page view")
	p := shell.Plot{
		ID: "pages", Title: "Page views", Sum: shell.Thousands(s.Total().Pages), Says: "Page views over time: " + sum + " in " + on.Words,
		Series: []shell.PlotSeries{{Name: "Page views", Class: "s-pages"}},
	}
	bars, most := barsOf(s, func(c traffic.Counts) []int64 { return []int64{c.Pages} }, func(c traffic.Counts) string {
		return shell.Pluralize(c.Pages, "page view")
	})
	p.Draw(bars, time.Duration(s.Step), shell.RoundTop(most), shell.Rough)
	return p
}

func requestsPlot(s traffic.Series, on shell.Stretch) shell.Plot {
	t := s.Total()
	p := shell.Plot{
		ID: "requests", Title: "Requests", Sum: shell.Thousands(t.Requests()),
		Says: fmt.Sprintf("Requests over time by status: %s in %s, of them %s, %s and %s",
			shell.Pluralize(t.Requests(), "request"), on.Words,
			"redirects and unchanged "+shell.Thousands(t.Redirected),
			"not found and refused "+shell.Thousands(t.ClientErrors), "failed "+shell.Thousands(t.ServerErrors)),
		Series: []shell.PlotSeries{
			{Name: "Answered (2xx)", Class: "s-ok"},
			{Name: "Redirected, unchanged (3xx)", Class: "s-moved"},
			{Name: "Not found, refused (4xx)", Class: "s-client"},
			{Name: "Failed (5xx)", Class: "s-server"},
		},
	}
	bars, most := barsOf(s,
		func(c traffic.Counts) []int64 { return []int64{c.OK, c.Redirected, c.ClientErrors, c.ServerErrors} },
		statusWords)
	p.Draw(bars, time.Duration(s.Step), shell.RoundTop(most), shell.Rough)
	return p
}

func bytesPlot(s traffic.Series, on shell.Stretch) shell.Plot {
	sum := shell.BytesWord(s.Total().Bytes)
	p := shell.Plot{
		ID: "bytes", Title: "Data sent", Sum: sum, Says: "Data sent over time: " + sum + " in " + on.Words,
		Series: []shell.PlotSeries{{Name: "Data sent", Class: "s-bytes"}},
	}
	bars, most := barsOf(s, func(c traffic.Counts) []int64 { return []int64{c.Bytes} },
		func(c traffic.Counts) string { return shell.BytesWord(c.Bytes) })
	p.Draw(bars, time.Duration(s.Step), shell.RoundBytes(most), shell.BytesWord)
	return p
}

// statusWords describes the numbers of requests and of problematic responses.
func statusWords(c traffic.Counts) string {
	text := shell.Pluralize(c.Requests(), "request")
	for _, x := range []struct {
		n    int64
		what string
	}{{c.Redirected, "3xx"}, {c.ClientErrors, "4xx"}, {c.ServerErrors, "5xx"}} {
		if x.n > 0 {
			text += fmt.Sprintf(", %s %s", shell.Thousands(x.n), x.what)
		}
	}
	return text
}
