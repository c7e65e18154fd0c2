package traffic

import (
	"cmp"
	"context"
	"io"
	"net/http"
	"reflect"
	"time"

	"slipway/internal/tenant/site"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/visit"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/traffic"
	"slipway/internal/web/api/contract"
)

type trafficBody struct {
	Since string        `json:"since" format:"date-time" doc:"Start of the first point."`
	Until string        `json:"until" format:"date-time" doc:"Time up to which traffic is counted in the last point."`
	Step  string        `json:"step" enum:"5m,15m,1h,2h,6h,1d"`
	Total CountsBody    `json:"total" doc:"Sum of all points."`
	Data  []trafficSpan `json:"data" doc:"Points, oldest first, without gaps."`
}

type trafficSpan struct {
	At string `json:"at" format:"date-time" doc:"Start of the point, a multiple of the step in UTC."`
	CountsBody
}

// CountsBody holds the counts of a period. It is exported because huma ignores embedded types that aren't.
type CountsBody struct {
	Requests int64                 `json:"requests"`
	Pages    int64                 `json:"pages" doc:"Requests for HTML pages of the site, including those answered with 304."`
	Bytes    int64                 `json:"bytes" doc:"Bytes of response bodies as sent (compressed)."`
	Statuses contract.StatusesBody `json:"statuses"`
}

func (a *API) trafficRoutes() {
	contract.Get(a.API, contract.Route{
		Path:    "/sites/{id}/traffic",
		ID:      "getSiteTraffic",
		Tag:     "Traffic",
		Summary: "Read a site's traffic",
		Scope:   account.SitesRead,
		Noun:    "site",
		Doc: "Requests to all addresses of the site except deployment URLs. Redirects from http to https are not counted, " +
			"bots are counted like people, and no visitor is tracked. Counts appear within about ten seconds. " +
			"Steps below an hour go back 48 hours, those below a day 90 days, days 400 days.",
	}, a.siteTraffic)
	contract.Get(a.API, contract.Route{
		Path:    "/sites/{id}/traffic/top",
		ID:      "getSiteTopTraffic",
		Tag:     "Traffic",
		Summary: "Read a site's top pages, 404s, referrers and countries",
		Scope:   account.SitesRead,
		Noun:    "site",
		Doc: "Counted per day (UTC) and kept for 31 days; since is rounded down to the start of its day. At most 200 names of each " +
			"kind are counted separately per day; the rest is in others. " +
			"Nothing is counted if the site's accessLog is off. Countries require a GeoIP database configured by the operator.",
	}, a.siteTop)
	a.accessLogRoute(contract.Route{
		Method:  http.MethodGet,
		Status:  http.StatusOK,
		Path:    "/sites/{id}/access-log",
		ID:      "getSiteAccessLog",
		Tag:     "Traffic",
		Summary: "Download a site's access log",
		Scope:   account.SitesRead,
		Noun:    "site",
		Doc: "One JSON object per request and line, oldest first, without query strings and with the visitor's network instead of " +
			"the address. Kept for the last seven days or four compressed megabytes, whichever is less; " +
			"new requests appear within ten seconds or so. At most 300 requests in ten seconds are listed; a line with omitted says " +
			"how many more there were.",
	})
}

type topBody struct {
	Since     string   `json:"since" format:"date-time" doc:"Start of the counted period."`
	Pages     topNames `json:"pages" doc:"Paths of viewed pages."`
	Missing   topNames `json:"missing" doc:"Paths that were answered with 404."`
	Referrers topNames `json:"referrers" doc:"Referring hosts."`
	Countries topNames `json:"countries" doc:"ISO 3166 codes."`
}

type topNames struct {
	Top    []topName `json:"top"`
	Others int64     `json:"others" doc:"Sum of all others."`
}

type topName struct {
	Name     string `json:"name"`
	Requests int64  `json:"requests"`
}

type siteTopIn struct {
	contract.ByID[site.ID]
	Since contract.Since `query:"since" doc:"A time (RFC 3339) or an age such as 24h (the default) or 7d." example:"7d"`
	Names contract.Count `query:"names" doc:"Maximum number of names of each kind, 1 to 200. Default: 20."`
}

func (a *API) siteTop(ctx context.Context, c account.Caller, in *siteTopIn) (out topBody, err error) {
	if _, err := a.Site(ctx, c, in.ID); err != nil {
		return out, err
	}
	from, err := in.Since.Parse(db.Now())
	if err != nil {
		return out, err
	}
	limit, err := in.Names.Parse("names", "invalid_names")
	if err == nil && (limit > 200 || in.Names != "" && limit == 0) {
		err = fault.New(fault.Invalid, "invalid_names", "Invalid names", "names must be 1 to 200").Got(string(in.Names))
	}
	if err != nil {
		return out, err
	}
	out.Since = from.String()
	for kind, to := range map[visit.Kind]*topNames{
		visit.Pages:     &out.Pages,
		visit.Missing:   &out.Missing,
		visit.Referrers: &out.Referrers,
		visit.Countries: &out.Countries,
	} {
		list, others, err := a.Traffic.Top(ctx, c.Owner, in.ID, kind, from, int(cmp.Or(limit, 20)))
		if err != nil {
			return out, err
		}
		*to = topNames{contract.Each(list, func(t traffic.Top) topName { return topName{t.Name, t.Hits} }), others}
	}
	return out, nil
}

type accessLogIn struct {
	contract.ByID[site.ID]
	Since contract.Since `query:"since" doc:"A time (RFC 3339) or an age such as 24h (the default) or 7d." example:"7d"`
}

func (a *API) accessLogRoute(r contract.Route) {
	op := a.Operation(r, reflect.TypeFor[string]())
	op.Responses["200"].Content["application/jsonl"] = &huma.MediaType{
		Schema: &huma.Schema{
			Type: huma.TypeString,
			Description: "Lines of JSON: time, method, host, path, protocol, status, bytes, and referrer, userAgent, network and " +
				"country where they are known.",
		},
	}
	delete(op.Responses["200"].Content, "application/json")
	contract.Writes(a.API, r, op, a.accessLog)
}

func (a *API) accessLog(ctx context.Context, r contract.Route, in *accessLogIn) (func(huma.Context), error) {
	c, err := r.Permit(contract.From(ctx).Caller)
	if err != nil {
		return nil, err
	}
	s, err := a.Site(ctx, c, in.ID)
	if err != nil {
		return nil, err
	}
	since, err := in.Since.Parse(db.Now())
	if err != nil {
		return nil, err
	}
	return func(ctx huma.Context) {
		req, w := humago.Unwrap(ctx)
		w.Header().Set("Content-Type", "application/jsonl")
		w.Header().Set("Content-Disposition", `attachment; filename="`+s.Slug+`-access-log.jsonl"`)
		w.WriteHeader(http.StatusOK)
		if req.Method == http.MethodHead {
			return
		}
		if a.Traffic.Log(req.Context(), c.Owner, in.ID, since, &patientWriter{w, http.NewResponseController(w)}) != nil {
			panic(http.ErrAbortHandler) // a partial file must not look complete
		}
	}, nil
}

// patientWriter sets a new deadline for each write of a long answer.
type patientWriter struct {
	io.Writer
	conn *http.ResponseController
}

func (w *patientWriter) Write(b []byte) (int, error) {
	w.conn.SetWriteDeadline(time.Now().Add(contract.SendTime)) // test writers have no deadline
	return w.Writer.Write(b)
}

type siteTrafficIn struct {
	contract.ByID[site.ID]
	Since contract.Since `query:"since" doc:"A time (RFC 3339) or an age such as 90m, 24h (the default) or 30d. Rounded down to the start of a step." example:"7d"`
	Step  step           `query:"step" doc:"The time that a point covers. Default: a step that gives about a hundred points or fewer."`
}

// step is the duration of a data point.
type step string

// Schema returns its schema in the document.
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
	return 0, contract.OneOf("step", string(s), names...)
}

func (a *API) siteTraffic(ctx context.Context, c account.Caller, in *siteTrafficIn) (trafficBody, error) {
	if _, err := a.Site(ctx, c, in.ID); err != nil {
		return trafficBody{}, err
	}
	now := db.Now()
	from, err := in.Since.Parse(now)
	if err != nil {
		return trafficBody{}, err
	}
	by, err := in.Step.parse(now.Sub(from))
	if err != nil {
		return trafficBody{}, err
	}
	s, err := a.Traffic.Series(ctx, c.Owner, in.ID, from, by)
	if f := fault.As(err); f != nil && f.Code == "invalid_since" {
		f.Received = string(in.Since) // as sent, not as parsed
	}
	if err != nil {
		return trafficBody{}, err
	}
	return trafficBody{
		s.Points[0].At.String(),
		now.String(),
		by.String(),
		showCounts(s.Total()),
		contract.Each(s.Points, func(p traffic.Point) trafficSpan {
			return trafficSpan{p.At.String(), showCounts(p.Counts)}
		}),
	}, nil
}

func showCounts(c traffic.Counts) CountsBody {
	return CountsBody{c.Requests(), c.Pages, c.Bytes, contract.StatusesBody{
		OK: c.OK, Redirected: c.Redirected,
		ClientErrors: c.ClientErrors, ServerErrors: c.ServerErrors,
	}}
}
