package traffic

import (
	"context"
	"time"

	"slipway/internal/platform/id"

	"github.com/danielgtaylor/huma/v2"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/usage"
	"slipway/internal/web/api/contract"
)

type usageBody struct {
	From   string       `json:"from" format:"date-time" doc:"Start of the first point."`
	To     string       `json:"to" format:"date-time" doc:"Time up to which usage is counted in the last point."`
	Step   string       `json:"step" enum:"1h,1d"`
	Totals []usageTotal `json:"totals" doc:"Sum of each meter's points."`
	Data   []usagePoint `json:"data" doc:"Points by meter, oldest first, without gaps."`
}

type usageTotal struct {
	Meter    usageMeter `json:"meter"`
	Quantity int64      `json:"quantity"`
}

type usagePoint struct {
	Meter    usageMeter `json:"meter"`
	At       string     `json:"at" format:"date-time" doc:"Start of the point, a multiple of the step in UTC."`
	Quantity int64      `json:"quantity" doc:"In the unit that the meter's name ends with."`
	Sealed   bool       `json:"sealed" doc:"Whether the quantity is final. Hours are sealed two hours after they end; later quantities count in the next hour."`
}

// usageMeter is a meter's name.
type usageMeter string

// Schema returns its schema in the document.
func (usageMeter) Schema(huma.Registry) *huma.Schema {
	s := &huma.Schema{Type: huma.TypeString}
	for _, m := range usage.Meters {
		s.Enum = append(s.Enum, string(m))
	}
	return s
}

type usageIn struct {
	Meter usageMeter `query:"meter" doc:"Default: all meters."`
	From  usageTime  `query:"from" doc:"A time (RFC 3339) or a day such as 2027-01-31. Rounded down to the start of a step. Default: the start of the period that limits count in (periodStart in GET /account), without what was used earlier on its day." example:"2027-01-01"`
	To    usageTime  `query:"to" doc:"A time or a day. Default: now." example:"2027-02-01"`
	Step  string     `query:"step" enum:"1h,1d" doc:"The time that a point covers. Default: 1d."`
	Site  id.Site    `query:"siteId" doc:"Only what this site used. Default: all sites, and what belongs to no site, such as backups."`
}

// usageTime is parsed by the handler, so that the error is ours.
type usageTime string

// Schema returns its schema in the document.
func (usageTime) Schema(huma.Registry) *huma.Schema { return &huma.Schema{Type: huma.TypeString} }

func (s usageTime) parse(name string) (db.Time, error) {
	if s == "" {
		return 0, nil
	}
	for _, form := range []string{time.RFC3339, time.DateOnly} {
		if at, err := time.Parse(form, string(s)); err == nil && at.Unix() > 0 {
			return db.At(at), nil
		}
	}
	return 0, fault.New(fault.Invalid, "invalid_"+name, "Invalid "+name,
		name+" must be a time such as 2027-01-31T12:00:00Z or a day such as 2027-01-31").Got(string(s))
}

func (a *API) usageRoutes() {
	contract.Get(a.API, contract.Route{
		Path:    "/usage",
		ID:      "getUsage",
		Tag:     "Account",
		Summary: "Read usage",
		Scope:   account.AccountRead,
		Noun:    "site",
		Finds:   true,
		Doc: "What the account used, by the hour or day (UTC): bandwidth, requests, build time, stored files, backups, and memory " +
			"and CPU time of applications. " +
			"Recent usage appears within about ten seconds, storage once an hour. " +
			"Hours go back 100 days (35 for one site) and days 400 days; one request covers at most 31 days by the hour. " +
			"Limits, and the period that they count in, are in `GET /account`. A key that is restricted to some sites has to name one.",
	}, a.getUsage)
}

func (a *API) getUsage(ctx context.Context, c account.Caller, in *usageIn) (out usageBody, err error) {
	if in.Site == "" {
		err = c.RequireAllSites()
	} else {
		_, err = a.Site(ctx, c, in.Site)
	}
	if err != nil {
		return out, err
	}
	q := usage.Query{Step: 24 * time.Hour, Site: in.Site}
	var names []string
	for _, m := range usage.Meters {
		names = append(names, string(m))
		if string(m) == string(in.Meter) {
			q.Meters = []usage.Meter{m}
		}
	}
	if err := contract.OneOf("meter", string(in.Meter), names...); err != nil {
		return out, err
	}
	if err := contract.OneOf("step", in.Step, "1h", "1d"); err != nil {
		return out, err
	}
	out.Step = "1d"
	if in.Step == "1h" {
		out.Step, q.Step = in.Step, time.Hour
	}
	if q.From, err = in.From.parse("from"); err != nil {
		return out, err
	}
	if q.To, err = in.To.parse("to"); err != nil {
		return out, err
	}
	list, err := a.Usage.Series(ctx, c.Owner, q)
	if err != nil {
		return out, err
	}
	for _, s := range list {
		out.Totals = append(out.Totals, usageTotal{usageMeter(s.Meter), s.Total})
		for _, p := range s.Points {
			out.Data = append(out.Data, usagePoint{usageMeter(s.Meter), p.At.String(), p.Quantity, p.Sealed})
		}
	}
	now := db.Now()
	if q.To == 0 || q.To > now {
		q.To = now
	}
	out.From, out.To = list[0].Points[0].At.String(), q.To.String()
	return out, nil
}
