package plan

import (
	"slipway/internal/platform/db"
	"slipway/internal/tenant/limits"
)

// Term is the length of a period.
type Term string

const (
	Month Term = "month"
	Year  Term = "year"
)

func (t Term) months() int64 {
	if t == Year {
		return 12
	}
	return 1
}

// Boundary returns the start of period n: n terms after the anchor, on the anchor's day of the month or the month's
// last day. It always counts from the anchor, so a period that began on 28 February for lack of a 31st is followed by
// one that begins on 31 March. Months are in UTC.
func (t Term) Boundary(anchor db.Time, n int64) db.Time { return limits.Step(anchor, n*t.months()) }
