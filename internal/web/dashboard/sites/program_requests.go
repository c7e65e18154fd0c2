package sites

import (
	"context"
	"fmt"
	"html/template"
	"slices"
	"strconv"
	"strings"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/visit"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/traffic"
	"slipway/internal/web/dashboard/shell"
)

// Limits of requests shown between a page's lines, and the interval of checking for new ones, which are stored every
// ten seconds.
const (
	logRequests  = 100
	requestBytes = 28 << 10
	requestsWait = 5 * time.Second
)

// requestFilter returns the access log's filter.
func (l programLog) requestFilter() traffic.RequestFilter {
	return traffic.RequestFilter{Failed: l.Requests == "failed", Search: l.Search, Limit: logRequests}
}

// besideOutput inserts requests of the same period between the lines, if selected, and completes the log.
func (d *Pages) besideOutput(
	ctx context.Context, q *shell.Request, head SiteHead, l programLog, output []logEntry, from, to db.Time,
) (programLog, error) {
	if l.Requests != "" {
		f := l.requestFilter()
		f.From, f.To = from, to
		requests, place, err := d.Traffic.Requests(ctx, q.Caller.Owner, head.Site.ID, f)
		if err != nil {
			return l, err
		}
		size := 0
		for _, x := range slices.Backward(requests) {
			part := logEntry{db.At(x.Time), l.request(x)}
			size += len(part.html)
			if size > requestBytes {
				break
			}
			output = append(output, part)
		}
		slices.SortStableFunc(output, func(a, b logEntry) int { return int(a.at - b.at) })
		if to == 0 {
			l.Live = l.link("/lines", "place", place.String())
		}
	}
	var b strings.Builder
	for _, x := range output {
		b.WriteString(x.html)
	}
	l.HTML = template.HTML(b.String()) // line and request escape
	return l, nil
}

// request renders a request like a line of output: time, status, and target.
func (l programLog) request(x visit.Line) string {
	var b strings.Builder
	class := ""
	switch {
	case x.Status >= 500:
		class = " error"
	case x.Status >= 400:
		class = " warn"
	}
	at := x.Time.UTC()
	fmt.Fprintf(&b, `<div class="ln app request%s"><span class="log-at"><time datetime="%s" data-clock><span>%s</span> %s</time></span><span>`,
		class, at.Format(time.RFC3339Nano), at.Format("2 Jan"), at.Format("15:04:05"))
	fmt.Fprintf(&b, `<span class="log-level">%s</span> <span class="proc served">request</span> `, strconv.Itoa(x.Status))
	writeMarked(&b, shell.Short(300, x.Method+" "+x.Path), l.Search)
	fmt.Fprintf(&b, ` <span class="soft">%s`, template.HTMLEscapeString(shell.BytesWord(x.Bytes)))
	if x.Country != "" {
		b.WriteString(" · " + template.HTMLEscapeString(shell.Clean(x.Country)))
	}
	if x.Agent != "" {
		b.WriteString(" · ")
		writeMarked(&b, shell.Short(80, x.Agent), l.Search)
	}
	b.WriteString("</span></span></div>")
	return b.String()
}

// logPlace returns an event's ID: the number of the last line and the position in the access log.
func logPlace(after int64, place traffic.Place) string {
	if place == (traffic.Place{}) {
		return strconv.FormatInt(after, 10)
	}
	return strconv.FormatInt(after, 10) + "/" + place.String()
}

// requestTail is a stream's position in the access log.
type requestTail struct {
	place  traffic.Place
	looked time.Time
}

// followRequests sends newly stored requests, if selected, and reports whether there were any.
func (d *Pages) followRequests(e *shell.Events, q *shell.Request, l programLog, id site.ID, after int64, tail *requestTail) (bool, error) {
	if l.Requests == "" || time.Since(tail.looked) < requestsWait {
		return false, nil
	}
	tail.looked = time.Now()
	f := l.requestFilter()
	f.After = tail.place
	requests, place, err := d.Traffic.Requests(e.Ctx, q.Caller.Owner, id, f)
	if err != nil || len(requests) == 0 {
		tail.place = place
		return false, err
	}
	tail.place = place
	var b strings.Builder
	for _, x := range requests {
		b.WriteString(l.request(x))
	}
	return true, e.Send("lines", logPlace(after, place), b.String())
}
