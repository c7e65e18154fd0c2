package api

import (
	"context"
	"regexp"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"slipway/internal/account"
	"slipway/internal/db"
	"slipway/internal/fault"
	"slipway/internal/traffic"
)

type trafficBody struct {
	Since string        `json:"since" format:"date-time" doc:"When the first point begins."`
	Until string        `json:"until" format:"date-time" doc:"The time up to which the last point has been counted."`
	Step  string        `json:"step" enum:"5m,15m,1h,2h,6h,1d"`
	Total CountsBody    `json:"total" doc:"The sum of all points."`
	Data  []trafficSpan `json:"data" doc:"The points from the oldest to the newest, without gaps."`
}

type trafficSpan struct {
	At string `json:"at" format:"date-time" doc:"When the point begins, a multiple of the step in UTC."`
	CountsBody
}

// CountsBody holds the counts of a time span. It is exported because huma sees no fields of embedded
// types that are not.
type CountsBody struct {
	Requests int64        `json:"requests"`
	Pages    int64        `json:"pages" doc:"Requests for HTML pages of the site, including those answered with 304."`
	Bytes    int64        `json:"bytes" doc:"Of bodies, compressed as they were sent."`
	Statuses statusesBody `json:"statuses"`
}

type statusesBody struct {
	OK           int64 `json:"2xx"`
	Redirected   int64 `json:"3xx" doc:"Redirects, and 304 for what the visitor still had."`
	ClientErrors int64 `json:"4xx"`
	ServerErrors int64 `json:"5xx"`
}

func (a *API) trafficRoutes() {
	get(a, Route{Path: "/sites/{id}/traffic", ID: "getSiteTraffic", Tag: "Sites", Summary: "Read a site's traffic", Scope: account.SitesRead, Noun: "site",
		Doc: "Requests of visitors to all addresses of the site except those of single deployments. Redirects from http to https are not counted, " +
			"bots are counted like people, and no visitor is tracked. Counts appear within about ten seconds. " +
			"Steps below an hour go back 48 hours, those below a day 90 days, days 400 days."}, a.siteTraffic)
}

type siteTrafficIn struct {
	ByID
	Since since `query:"since" doc:"A moment (RFC 3339), or how far back in minutes, hours or days, such as 90m, 24h (the default) or 30d. It is rounded down to the beginning of a step." example:"7d"`
	Step  step  `query:"step" doc:"The time that one point covers. By default a step that gives about a hundred points or fewer."`
}

// since is how far back an answer goes. It stays text until it is read, so that the
// error is ours.
type since string

// Schema is how the reference shows it.
func (since) Schema(huma.Registry) *huma.Schema { return &huma.Schema{Type: huma.TypeString} }

// longAgo is more than is kept of anything, which the service refuses. Still longer ago would
// overflow.
const longAgo = 4000 * 24 * time.Hour

var back = regexp.MustCompile(`^([0-9]{1,6})([mhd])$`)

func (s since) parse(now db.Time) (db.Time, error) {
	if s == "" {
		s = "24h"
	}
	if m := back.FindStringSubmatch(string(s)); m != nil {
		n, _ := strconv.Atoi(m[1]) // six digits at most
		unit := map[string]time.Duration{"m": time.Minute, "h": time.Hour, "d": 24 * time.Hour}[m[2]]
		return now.Add(-min(time.Duration(n)*unit, longAgo)), nil
	}
	at, err := time.Parse(time.RFC3339, string(s))
	if err != nil {
		return 0, &fault.Error{Kind: fault.Invalid, Message: "Invalid since",
			Details: "since must be a timestamp such as 2027-01-31T12:00:00Z or a duration such as 90m, 24h or 30d", Received: string(s), Code: "invalid_since"}
	}
	return max(db.At(at), now.Add(-longAgo)), nil
}

// step is how much time a point stands for.
type step string

// Schema is how the reference shows it.
func (step) Schema(huma.Registry) *huma.Schema {
	s := &huma.Schema{Type: huma.TypeString}
	for _, k := range traffic.Steps {
		s.Enum = append(s.Enum, k.String())
	}
	return s
}

func (s step) parse(back time.Duration) (traffic.Step, error) {
	if s == "" {
		return traffic.StepFor(back), nil
	}
	var names []string
	for _, k := range traffic.Steps {
		if k.String() == string(s) {
			return k, nil
		}
		names = append(names, k.String())
	}
	return 0, oneOf("step", string(s), names...)
}

func (a *API) siteTraffic(ctx context.Context, c account.Caller, in *siteTrafficIn) (trafficBody, error) {
	if _, err := a.site(ctx, c, in.ID); err != nil {
		return trafficBody{}, err
	}
	now := db.Now()
	from, err := in.Since.parse(now)
	if err != nil {
		return trafficBody{}, err
	}
	by, err := in.Step.parse(now.Sub(from))
	if err != nil {
		return trafficBody{}, err
	}
	s, err := a.Traffic.Series(ctx, c.Owner, in.ID, from, by)
	if f := fault.As(err); f != nil && f.Code == "invalid_since" {
		f.Received = string(in.Since) // as it was sent, not what it came to
	}
	if err != nil {
		return trafficBody{}, err
	}
	return trafficBody{s.Points[0].At.String(), now.String(), by.String(), showCounts(s.Total()), each(s.Points, func(p traffic.Point) trafficSpan {
		return trafficSpan{p.At.String(), showCounts(p.Counts)}
	})}, nil
}

func showCounts(c traffic.Counts) CountsBody {
	return CountsBody{c.Requests(), c.Pages, c.Bytes, statusesBody{c.OK, c.Redirected, c.ClientErrors, c.ServerErrors}}
}
