package plan

import (
	"testing"
	"time"

	"slipway/internal/platform/db"
)

// For every day of a year, over 40 years, periods follow each other and begin at the anchor's hour, on its day or on
// the month's last day if the month is shorter.
func TestAnchors(t *testing.T) {
	t.Parallel()
	for d := 1; d <= 366; d++ {
		at := time.Date(2028, 1, d, d%24, 0, 0, 0, time.UTC)
		anchor := db.At(at)
		for _, term := range []Term{Month, Year} {
			last := anchor
			for n := int64(1); n <= 40*12/term.months(); n++ {
				got := term.Boundary(anchor, n).Time().UTC()
				month := time.Date(at.Year(), at.Month()+time.Month(n*term.months()), 1, 0, 0, 0, 0, time.UTC)
				days := month.AddDate(0, 1, 0).Add(-time.Hour).Day()
				if got.Year() != month.Year() || got.Month() != month.Month() || got.Day() != min(at.Day(), days) || got.Hour() != at.Hour() || got.Minute() != 0 {
					t.Fatalf("period %d by the %s from %s begins on %s", n, term, at, got)
				}
				if db.At(got) <= last {
					t.Fatalf("period %d by the %s from %s begins before the last", n, term, at)
				}
				last = db.At(got)
			}
		}
	}
}
