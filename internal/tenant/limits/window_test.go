package limits_test

import (
	"fmt"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/limits"
)

func at(y int, m time.Month, d, h int) db.Time {
	return db.At(time.Date(y, m, d, h, 0, 0, 0, time.UTC))
}

// A limit window is a month from the subscription's anchor, or a calendar month without a subscription.
func TestWindows(t *testing.T) {
	t.Parallel()
	last := limits.Cycle{Anchor: at(2027, 1, 31, 9)}
	ended := func(c limits.Cycle, end db.Time) limits.Cycle { c.End = end; return c }
	trial := limits.Cycle{Anchor: at(2027, 1, 20, 9), Trial: at(2027, 2, 3, 9)}
	long := limits.Cycle{Anchor: at(2027, 1, 20, 9), Trial: at(2027, 4, 1, 9)}
	renewed := limits.Cycle{Anchor: at(2027, 2, 3, 9), Trial: at(2027, 2, 3, 9)}
	merged := limits.Cycle{Anchor: at(2027, 2, 10, 9), Counts: at(2027, 2, 1, 0)}
	for _, c := range []struct {
		name  string
		cycle limits.Cycle
		at    db.Time
		want  limits.Window
	}{
		{"no subscription", limits.Cycle{}, at(2028, 2, 29, 23), limits.Window{From: at(2028, 2, 1, 0), To: at(2028, 3, 1, 0)}},
		{"before it", last, at(2027, 1, 31, 8), limits.Window{From: at(2027, 1, 1, 0), To: at(2027, 2, 1, 0)}},
		{"at the anchor", last, at(2027, 1, 31, 9), limits.Window{From: at(2027, 1, 31, 9), To: at(2027, 2, 28, 9)}},
		{"just before the 28th", last, at(2027, 2, 28, 9) - 1, limits.Window{From: at(2027, 1, 31, 9), To: at(2027, 2, 28, 9)}},
		{"exactly at the hour", last, at(2027, 2, 28, 9), limits.Window{From: at(2027, 2, 28, 9), To: at(2027, 3, 31, 9)}},
		{"back on the 31st", last, at(2027, 3, 31, 9), limits.Window{From: at(2027, 3, 31, 9), To: at(2027, 4, 30, 9)}},
		{"in a leap year", last, at(2028, 2, 29, 9), limits.Window{From: at(2028, 2, 29, 9), To: at(2028, 3, 31, 9)}},
		{"canceled, before its end", ended(last, at(2027, 4, 30, 9)), at(2027, 4, 30, 8), limits.Window{From: at(2027, 3, 31, 9), To: at(2027, 4, 30, 9)}},
		{"at its end", ended(last, at(2027, 4, 30, 9)), at(2027, 4, 30, 9), limits.Window{From: at(2027, 4, 30, 9), To: at(2027, 5, 1, 0)}},
		{"in the month after", ended(last, at(2027, 4, 30, 9)), at(2027, 5, 1, 0), limits.Window{From: at(2027, 5, 1, 0), To: at(2027, 6, 1, 0)}},
		{"ended within its period", ended(last, at(2027, 4, 20, 9)), at(2027, 4, 20, 9), limits.Window{From: at(2027, 4, 1, 0), To: at(2027, 5, 1, 0)}},
		{"ended in its first hour", ended(last, last.Anchor), last.Anchor, limits.Window{From: at(2027, 1, 1, 0), To: at(2027, 2, 1, 0)}},
		{"in the trial", trial, at(2027, 2, 3, 8), limits.Window{From: at(2027, 1, 20, 9), To: at(2027, 2, 3, 9)}},
		{"in a long trial", long, at(2027, 3, 25, 8), limits.Window{From: at(2027, 3, 20, 9), To: at(2027, 4, 1, 9)}},
		{"after the trial, not noted yet", trial, at(2027, 2, 3, 9), limits.Window{From: at(2027, 2, 3, 9), To: at(2027, 3, 3, 9)}},
		{"after the trial", renewed, at(2027, 2, 3, 9), limits.Window{From: at(2027, 2, 3, 9), To: at(2027, 3, 3, 9)}},
		{"after a trial that was canceled", ended(trial, trial.Trial), at(2027, 2, 4, 9), limits.Window{From: at(2027, 2, 3, 9), To: at(2027, 3, 1, 0)}},
		{"another subscription", merged, at(2027, 2, 10, 9), limits.Window{From: at(2027, 2, 1, 0), To: at(2027, 3, 10, 9)}},
		{"its second window", merged, at(2027, 3, 10, 9), limits.Window{From: at(2027, 3, 10, 9), To: at(2027, 4, 10, 9)}},
	} {
		if got := c.cycle.At(c.at); got != c.want {
			t.Errorf("%s: %v to %v, want %v to %v", c.name, got.From, got.To, c.want.From, c.want.To)
		}
	}
	if k := limits.MonthOf(at(2027, 2, 10, 9)).Key(); k != 202702 {
		t.Error(k)
	}
	if w := merged.At(merged.Anchor); w.Key() != int64(w.From) || w.Calendar() {
		t.Error(w.Key())
	}
	onFirst := limits.Cycle{Anchor: at(2027, 2, 1, 0)}
	if w := onFirst.At(at(2027, 3, 9, 0)); w.Key() != 202703 || w.Ends() != "with the next calendar month" {
		t.Error(w.Key(), w.Ends())
	}
}

// Over forty years, the windows of every anchor follow each other without gaps, are about a month long, and contain
// each of their moments.
func TestWindowsFollowEachOther(t *testing.T) {
	t.Parallel()
	for day := 1; day <= 31; day++ {
		c := limits.Cycle{Anchor: at(2027, 1, day, day%24)}
		for w, n := c.At(c.Anchor), 0; n < 480; n++ {
			next := c.At(w.To)
			length := w.To.Sub(w.From)
			if next.From != w.To || c.At(w.From) != w || c.At(w.To-1) != w || length < 28*24*time.Hour || length > 31*24*time.Hour {
				t.Fatal(fmt.Sprint(day, n), w.From, w.To, next.From)
			}
			w = next
		}
	}
}
