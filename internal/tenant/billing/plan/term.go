package plan

import (
	"slipway/internal/platform/db"
	"slipway/internal/tenant/limits"
)

// Term is how long a period is.
type Term string

// The terms.
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

// Boundary returns when period n begins: n terms after the anchor, on the anchor's day or the month's last. It is always
// counted from the anchor: a period that began on 28 February because there was no 31st is followed by one that
// begins on 31 March. Months are UTC's, so no clock that changes moves a boundary.
func (t Term) Boundary(anchor db.Time, n int64) db.Time { return limits.Step(anchor, n*t.months()) }
