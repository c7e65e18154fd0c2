package limits

import (
	"context"
	"fmt"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/id"
)

// Window is the period of a limit such as bandwidth: the calendar month (UTC) or a month of the owner's subscription.
// It begins and ends on whole hours.
type Window struct{ From, To db.Time }

// MonthOf returns the calendar month of t in UTC.
func MonthOf(t db.Time) Window {
	at := t.Time().UTC()
	first := time.Date(at.Year(), at.Month(), 1, 0, 0, 0, 0, time.UTC)
	return Window{db.At(first), db.At(first.AddDate(0, 1, 0))}
}

// Calendar reports whether the window is a calendar month.
func (w Window) Calendar() bool { return w == MonthOf(w.From) }

// Key identifies the window among an owner's: 202611 for a calendar month, otherwise its start.
func (w Window) Key() int64 {
	if w.Calendar() {
		return Month(w.From)
	}
	return int64(w.From)
}

// Ends formats the end of the window in UTC for people.
func (w Window) Ends() string {
	if w.Calendar() {
		return "with the next calendar month"
	}
	return w.To.Time().UTC().Format("on 2 January 2006, 15:04 UTC")
}

// Counting describes for people the windows of the limits in list.
func Counting(list []Use) string {
	for _, u := range list {
		if w := u.Window; w.To > 0 && !w.Calendar() {
			const form = "January 2, 15:04"
			return "from " + w.From.Time().UTC().Format(form) + " to " + w.To.Time().UTC().Format(form) + " (UTC)"
		}
	}
	return "per calendar month (UTC)"
}

// Step returns the time months after the anchor, on the anchor's day of the month or the month's last day. It always
// counts from the anchor: 31 January, 28 February, 31 March. Months are in UTC.
func Step(anchor db.Time, months int64) db.Time {
	at := anchor.Time().UTC()
	first := time.Date(at.Year(), at.Month(), 1, at.Hour(), 0, 0, 0, time.UTC).AddDate(0, int(months), 0)
	last := first.AddDate(0, 1, -1).Day()
	return db.At(first.AddDate(0, 0, min(at.Day(), last)-1))
}

// Cycle determines an owner's windows from their latest subscription. The zero value is that of owners who never had
// one.
//
// Owners never get more windows than months pass, except that the first subscription and the end of the trial, both of
// which happen once, start counting at zero. Changing the interval, ending early or subscribing again moves the end of
// the window but keeps its counts.
type Cycle struct {
	Anchor db.Time // start of the subscription's periods
	Counts db.Time // if before the anchor's window, that window counts use from here on; otherwise 0
	Trial  db.Time // end of the trial; 0: none
	End    db.Time // of a canceled or ended subscription; 0: it continues
}

// At returns the window that contains t.
func (c Cycle) At(t db.Time) Window {
	if c.Anchor == 0 || t < c.Anchor {
		return MonthOf(t)
	}
	if c.End > 0 && t >= c.End {
		w, end := MonthOf(t), c.End
		// A subscription that ends with a whole window starts a new window there.
		c.End = 0
		if end > max(w.From, c.Anchor) && c.At(end).From == end {
			w.From = end
		}
		return w
	}
	trial := c.Trial > c.Anchor
	if trial && t >= c.Trial { // the first paid period has begun, even if not recorded yet
		c.Anchor, c.Counts, trial = c.Trial, 0, false
	}
	from, at := c.Anchor.Time().UTC(), t.Time().UTC()
	n := int64(at.Year()-from.Year())*12 + int64(at.Month()-from.Month())
	if Step(c.Anchor, n) > t {
		n--
	}
	w := Window{Step(c.Anchor, n), Step(c.Anchor, n+1)}
	if n == 0 && c.Counts > 0 {
		w.From = min(w.From, c.Counts)
	}
	if trial {
		w.To = min(w.To, c.Trial)
	}
	return w
}

// Cycles returns the cycles of owners that have or had a subscription.
func Cycles(ctx context.Context, r db.Reader, owners []id.Owner) (map[id.Owner]Cycle, error) {
	var args db.Args
	rows, err := r.Query(ctx, `
		SELECT owner_id, anchor, counts_from, trial_end, ends FROM limit_cycles WHERE owner_id IN (`+db.AddList(&args, owners)+`)`, args...)
	out := map[id.Owner]Cycle{}
	_, err = db.Collect(rows, err, func(s db.Scanner) (o id.Owner, err error) {
		var c Cycle
		err = s.Scan(&o, &c.Anchor, &c.Counts, &c.Trial, &c.End)
		out[o] = c
		return o, err
	})
	if err != nil {
		return nil, fmt.Errorf("read what windows of limits follow: %w", err)
	}
	return out, nil
}
