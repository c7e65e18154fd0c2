package event

// Usage is how much of a month's limit is used.
type Usage struct {
	Limit       string // its name, such as bandwidth.bytes
	Month       string // such as 2026-11, in UTC
	Percent     int64  // of the limit, which was reached: 50, 75, 90 or 100
	Used, Allow int64
}

type usageData struct {
	Limit   string `json:"limit"`
	Month   string `json:"month"`
	Percent int64  `json:"percent"`
	Used    int64  `json:"used"`
	Allowed int64  `json:"allowed"`
}

// UsageThreshold returns the event for an owner that has used so much of a month's limit.
func UsageThreshold(u Usage) Event {
	return Event{names: []string{"usage.threshold"}, data: data{Usage: &usageData{u.Limit, u.Month, u.Percent, u.Used, u.Allow}}}
}
