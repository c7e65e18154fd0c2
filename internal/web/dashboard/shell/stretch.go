package shell

import (
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/traffic"
)

// Stretch is a selectable period of traffic.
type Stretch struct {
	Name  string // in the URL
	Label string
	Words string // after "in"
	Step  traffic.Step
	N     int  // number of steps
	Weeks bool // whether they are displayed by the week
	Link  string
	On    bool
}

// Stretches lists the selectable periods. The first is the default.
var Stretches = []Stretch{
	{Name: "24h", Label: "24 hours", Words: "the last 24 hours", Step: traffic.QuarterHour, N: 96},
	{Name: "7d", Label: "7 days", Words: "the last 7 days", Step: traffic.TwoHours, N: 84},
	{Name: "30d", Label: "30 days", Words: "the last 30 days", Step: traffic.Day, N: 30},
	{Name: "90d", Label: "90 days", Words: "the last 90 days", Step: traffic.Day, N: 90},
	{Name: "400d", Label: "400 days", Words: "the last 400 days", Step: traffic.Day, N: 400, Weeks: true},
}

// Chosen returns the periods with their links, and the selected one.
func Chosen(list []Stretch, name string, link func(name string) string) (all []Stretch, on Stretch) {
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

// WhenWords describes a step of a period.
func WhenWords(at db.Time, step traffic.Step) string {
	if step >= Week {
		return "Week from " + at.Time().Format("2 January 2006")
	}
	if step >= traffic.Day {
		return at.Time().Format("Mon 2 January 2006")
	}
	return at.Time().Format("Mon 2 January, 15:04") + " to " + at.Add(time.Duration(step)).Time().Format("15:04")
}

// Week is seven days from Monday.
const Week = 7 * traffic.Day
