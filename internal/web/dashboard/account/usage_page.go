package account

import (
	"context"
	"fmt"
	"time"

	"slipway/internal/deploy/deployment"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/limits"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/usage"
	"slipway/internal/web/dashboard/shell"
)

// usageMonths is the number of selectable windows, and usageRows the number of sites and deployments listed per meter.
const (
	usageMonths = 6
	usageRows   = 10
)

type usageData struct {
	Months []shell.Stretch
	Meters []usageMeter
	Title  string // the window's
	Query  string // of the API call
}

// usageMeter is a meter's use in a window.
type usageMeter struct {
	ID, Title, Doc string
	Used           string
	Limit          string // empty: unlimited
	AtLimit        string // consequence of reaching the limit; may be empty
	Percent        int    // of the limit
	Forecast       string // empty for a past window
	Reached        string // predicted time of reaching the limit; empty: not in this window
	Plot           shell.Plot
	Rows           []usageRow // days with use
	UsedBy         []usageTable
}

type (
	usageRow  struct{ When, Used string }
	usagePart struct{ Name, Link, Used string }
)

// usageTable lists the sites or deployments that used most.
type usageTable struct {
	Noun   string
	Rows   []usagePart
	Others string // use of all others; empty: none
}

// usageWords says how a meter is displayed.
var usageWords = map[usage.Meter]struct {
	title, doc string
	limit      limits.Name
	each       int64 // meter's units per unit of the limit
	write      func(int64) string
	round      func(int64) int64
}{
	usage.Bandwidth: {"Bandwidth", "Bytes sent to visitors of all sites.", limits.Bandwidth, 1, shell.BytesWord, shell.RoundBytes},
	usage.Requests:  {"Requests", "Answered requests to all sites, including bots.", "", 1, shell.Thousands, shell.RoundTop},
	usage.Build: {
		"Build time", "Time that builds ran; waiting in the queue isn't counted.", limits.BuildMinutes, time.Minute.Milliseconds(),
		minutesWord, roundMinutes,
	},
	usage.Storage: {"Stored files", "Releases and application storage: size multiplied by time.", "", 1, byteHours, shell.RoundBytes},
	usage.Backups: {"Backups", "Stored backups: size multiplied by time.", "", 1, byteHours, shell.RoundBytes},
	usage.Memory: {
		"Application memory", "Memory of running applications, multiplied by time.", "", 1,
		func(n int64) string { return byteHours(n / 3600 * (1 << 20)) }, shell.RoundTop,
	},
	usage.CPU: {"Application CPU time", "Processor time of applications.", "", 1, minutesWord, roundMinutes},
}

func byteHours(n int64) string { return shell.BytesWord(n) + " hours" }

// minutesWord formats milliseconds.
func minutesWord(ms int64) string {
	switch d := time.Duration(ms) * time.Millisecond; {
	case ms == 0:
		return "0 min"
	case d < time.Minute:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case d < 100*time.Minute:
		return fmt.Sprintf("%.1f min", d.Minutes())
	default:
		return shell.Thousands(int64(d.Minutes())) + " min"
	}
}

// roundMinutes is RoundTop in whole minutes.
func roundMinutes(ms int64) int64 {
	minute := time.Minute.Milliseconds()
	return shell.RoundTop((ms+minute-1)/minute) * minute
}

func (d *Pages) usagePage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	path := "/account/usage"
	if q.Caller.Team != "" {
		path = "/teams/" + q.Caller.Slug + "/usage"
	}
	now := db.Now()
	windows, err := d.Usage.Windows(ctx, q.Caller.Owner, usageMonths)
	if err != nil {
		return shell.Answer{}, err
	}
	window, months := chosenWindow(q.Query("month"), windows, path)
	data := usageData{Months: months, Title: titleOf(window)}
	query := usage.Query{From: window.From, To: window.To, Step: 24 * time.Hour, Exact: true}
	if window.Calendar() || query.To <= now {
		data.Query += "?from=" + window.From.Time().Format(time.DateOnly)
	}
	if query.To <= now {
		data.Query += "&to=" + query.To.Time().Format(time.DateOnly)
	}
	list, err := d.Usage.Series(ctx, q.Caller.Owner, query)
	if err != nil {
		return shell.Answer{}, err
	}
	most, throttle := map[limits.Name]int64{}, int64(0)
	if query.To > now { // limits are the current ones
		used, err := d.Accounts.LimitUse(ctx, q.Caller.Owner)
		if err != nil {
			return shell.Answer{}, err
		}
		for _, u := range used {
			most[u.Name] = u.Limit
			throttle = max(throttle, u.Throttle)
		}
	}
	for _, s := range list {
		limit, limited := most[usageWords[s.Meter].limit]
		if s.Total == 0 && !limited && s.Meter != usage.Bandwidth {
			continue
		}
		m := meterOf(s, query, now)
		if limited && limit != limits.Unlimited {
			m.against(s, limit*usageWords[s.Meter].each, query, now)
			if s.Meter == usage.Bandwidth {
				m.AtLimit = atLimit(throttle, s.Total >= limit, query.To)
			}
		}
		if err := d.usedBy(ctx, q, s.Meter, window, &m); err != nil {
			return shell.Answer{}, err
		}
		data.Meters = append(data.Meters, m)
	}
	return shell.Page("account_usage", "Usage", data), nil
}

// chosenWindow returns the page's window and the selectable ones, latest first.
func chosenWindow(name string, windows []limits.Window, path string) (chosen limits.Window, all []shell.Stretch) {
	at := 0
	for i, w := range windows {
		s := shell.Stretch{Name: w.From.Time().Format("2006-01"), Label: w.From.Time().Format("Jan 2006")}
		if !w.Calendar() {
			s.Name, s.Label = w.From.Time().Format("2006-01-02"), w.From.Time().Format("Jan 2")+" – "+w.To.Time().Format("Jan 2")
		}
		s.Link = path
		if i > 0 {
			s.Link = shell.Link(path, "month", s.Name)
		}
		if s.Name == name {
			at = i
		}
		all = append(all, s)
	}
	all[at].On = true
	return windows[at], all
}

// titleOf returns a window's title.
func titleOf(w limits.Window) string {
	if w.Calendar() {
		return w.From.Time().Format("January 2006")
	}
	return w.From.Time().Format("January 2, 15:04") + " to " + w.To.Time().Format("January 2, 15:04")
}

// meterOf returns a meter's chart with a bar per day of the window, including future days.
func meterOf(s usage.Series, q usage.Query, now db.Time) usageMeter {
	w := usageWords[s.Meter]
	m := usageMeter{ID: string(s.Meter[:3]), Title: w.title, Doc: w.doc, Used: w.write(s.Total)}
	var bars []shell.Bar
	var top int64
	for at := q.From - q.From%db.Time(q.Step.Milliseconds()); at < q.To; at = at.Add(q.Step) {
		b := shell.Bar{At: at, Values: []int64{0}, Says: at.Time().Format("Mon 2 January")}
		if i := len(bars); i < len(s.Points) {
			n := s.Points[i].Quantity
			b.Values[0], top = n, max(top, n)
			b.Says += ": " + w.write(n)
			if n > 0 {
				m.Rows = append(m.Rows, usageRow{at.Time().Format("Mon 2 January"), w.write(n)})
			}
		}
		bars = append(bars, b)
	}
	m.Plot = shell.Plot{
		ID: m.ID, Title: w.title, Sum: m.Used, Says: w.title + " by day: " + m.Used + " in the month",
		Series: []shell.PlotSeries{{Name: w.title, Class: "s-ok"}},
	}
	m.Plot.Draw(bars, 24*time.Hour, w.round(top), w.write)
	if q.To > now && now.Sub(q.From) >= 24*time.Hour {
		used := usage.Forecast(s.Total, limits.Window{From: q.From, To: q.To}, now)
		m.Forecast = w.write(used) + " by " + q.To.Add(-time.Hour).Time().Format("January 2")
	}
	return m
}

// against compares the use with the window's limit.
func (m *usageMeter) against(s usage.Series, most int64, q usage.Query, now db.Time) {
	m.Limit, m.Percent = usageWords[s.Meter].write(most), min(100, shell.Percent(s.Total, most))
	if m.Forecast == "" || s.Total >= most || usage.Forecast(s.Total, limits.Window{From: q.From, To: q.To}, now) < most {
		return
	}
	at := q.From + db.Time(float64(now-q.From)*float64(most)/float64(s.Total))
	m.Reached = at.Time().Format("January 2")
}

// atLimit says what happens to an account's sites once its bandwidth is used up.
func atLimit(rate int64, reached bool, next db.Time) string {
	what := "paused"
	if rate > 0 {
		what = "slowed down to " + limits.Speed(rate)
	}
	if reached {
		return "The limit is reached: all sites are " + what + " until " + next.Time().Format("January 2") + " or until the limit is raised."
	}
	return "At the limit, all sites are " + what + "."
}

// usedBy lists the sites, or for builds the deployments, that used most.
func (d *Pages) usedBy(ctx context.Context, q *shell.Request, meter usage.Meter, w limits.Window, m *usageMeter) error {
	write := usageWords[meter].write
	list, others, err := d.Usage.BySite(ctx, q.Caller.Owner, meter, w, usageRows)
	if err != nil {
		return err
	}
	sites := usageTable{Noun: "Site"}
	for _, p := range list {
		part := usagePart{Name: p.ID, Used: write(p.Quantity)}
		switch s, err := d.Sites.Get(ctx, q.Caller.Owner, site.ID(p.ID)); {
		case err == nil:
			part.Name, part.Link = s.Name, "/sites/"+p.ID
		case fault.Is(err, fault.NotFound):
			part.Name += " (no longer in this account)"
		default:
			return err
		}
		sites.Rows = append(sites.Rows, part)
	}
	m.add(sites, others, write)
	if meter != usage.Build {
		return nil
	}
	list, others, err = d.Usage.ByDeployment(ctx, q.Caller.Owner, w, usageRows)
	if err != nil {
		return err
	}
	deployments := usageTable{Noun: "Deployment"}
	for _, p := range list {
		part := usagePart{Name: p.ID, Used: write(p.Quantity)}
		switch x, err := d.Deployments.Get(ctx, q.Caller.Owner, deployment.ParseID(p.ID)); {
		case err == nil:
			part.Link = "/sites/" + string(x.Site) + "/deployments/" + p.ID
		case !fault.Is(err, fault.NotFound):
			return err
		}
		deployments.Rows = append(deployments.Rows, part)
	}
	m.add(deployments, others, write)
	return nil
}

func (m *usageMeter) add(t usageTable, others int64, write func(int64) string) {
	if len(t.Rows) == 0 {
		return
	}
	if others > 0 {
		t.Others = write(others)
	}
	m.UsedBy = append(m.UsedBy, t)
}
