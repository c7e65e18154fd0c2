package plan

import (
	"time"

	"slipway/internal/platform/db"
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
func (t Term) Boundary(anchor db.Time, n int64) db.Time {
	at := anchor.Time().UTC()
	first := time.Date(at.Year(), at.Month(), 1, at.Hour(), 0, 0, 0, time.UTC).AddDate(0, int(n*t.months()), 0)
	last := first.AddDate(0, 1, -1).Day()
	return db.At(first.AddDate(0, 0, min(at.Day(), last)-1))
}
