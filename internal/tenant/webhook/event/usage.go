package event

import "slipway/internal/platform/db"

// Usage is the use of a limit.
type Usage struct {
	Limit       string  // such as bandwidth.bytes
	Start, End  db.Time // the limit's month: a calendar month or one of the owner's subscription
	Percent     int64   // percentage reached: 50, 75, 90 or 100
	Used, Allow int64
}

type usageData struct {
	Limit   string `json:"limit"`
	Month   string `json:"month"` // month of the start
	Percent int64  `json:"percent"`
	Used    int64  `json:"used"`
	Allowed int64  `json:"allowed"`
	Start   string `json:"periodStart"`
	End     string `json:"periodEnd"`
}

// UsageThreshold returns the event for an owner whose use reached a percentage of a limit.
func UsageThreshold(u Usage) Event {
	return Event{names: []string{"usage.threshold"}, data: data{Usage: &usageData{
		u.Limit, u.Start.Time().UTC().Format("2006-01"), u.Percent, u.Used, u.Allow, u.Start.String(), u.End.String(),
	}}}
}
