package limits

import (
	"context"
	"fmt"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/id"
)

// Window is the time for which a limit such as that of bandwidth holds: the calendar month (UTC), or a month of the owner's
// subscription. It begins and ends on whole hours.
type Window struct{ From, To db.Time }

// MonthOf returns the calendar month of a moment, UTC.
func MonthOf(t db.Time) Window {
	at := t.Time().UTC()
	first := time.Date(at.Year(), at.Month(), 1, 0, 0, 0, 0, time.UTC)
	return Window{db.At(first), db.At(first.AddDate(0, 1, 0))}
}

// Calendar reports whether the window is a calendar month.
func (w Window) Calendar() bool { return w == MonthOf(w.From) }

// Key tells an owner's windows apart: the month where it is a calendar month, such as 202611, else when it begins.
func (w Window) Key() int64 {
	if w.Calendar() {
		return Month(w.From)
	}
	return int64(w.From)
}

// Ends writes for people when the window ends, in UTC.
func (w Window) Ends() string {
	if w.Calendar() {
		return "with the next calendar month"
	}
	return w.To.Time().UTC().Format("on 2 January 2006, 15:04 UTC")
}

// Counting writes for people when what is limited within a window counts.
func Counting(list []Use) string {
	for _, u := range list {
		if w := u.Window; w.To > 0 && !w.Calendar() {
			const form = "January 2, 15:04"
			return "from " + w.From.Time().UTC().Format(form) + " to " + w.To.Time().UTC().Format(form) + " (UTC)"
		}
	}
	return "per calendar month (UTC)"
}

// Step returns the moment that lies so many months after an anchor, on the anchor's day or the month's last. It is always
// counted from the anchor: 31 January, 28 February, 31 March. Months are UTC's, so no clock that changes moves it.
func Step(anchor db.Time, months int64) db.Time {
	at := anchor.Time().UTC()
	first := time.Date(at.Year(), at.Month(), 1, at.Hour(), 0, 0, 0, time.UTC).AddDate(0, int(months), 0)
	last := first.AddDate(0, 1, -1).Day()
	return db.At(first.AddDate(0, 0, min(at.Day(), last)-1))
}

// Cycle is what an owner's windows follow: their latest subscription. The zero value is that of owners who never had one.
//
// Whatever owners do, they get no more allowances than months go by, but for two: the first subscription and the end of the trial,
// of which an owner has one each, begin at zero. Another interval, an end before the period's, and another subscription don't: from
// then on the window ends at another time, and what was used in it still counts.
type Cycle struct {
	Anchor db.Time // the subscription's periods are counted from it
	Counts db.Time // what was used from here on counts in the window that the anchor lies in, where it is earlier than that; 0: it isn't
	Trial  db.Time // when the trial ends; 0: there is none
	End    db.Time // of a subscription that is canceled or has ended; 0: it goes on
}

// At returns the window that a moment lies in.
func (c Cycle) At(t db.Time) Window {
	if c.Anchor == 0 || t < c.Anchor {
		return MonthOf(t)
	}
	if c.End > 0 && t >= c.End {
		w, end := MonthOf(t), c.End
		// After a whole window the next one would begin now, with a subscription or without.
		if c.End = 0; end > max(w.From, c.Anchor) && c.At(end).From == end {
			w.From = end
		}
		return w
	}
	trial := c.Trial > c.Anchor
	if trial && t >= c.Trial { // its first period, also before that is noted
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

// Cycles returns what the windows of owners follow. Those who never had a subscription are not among them.
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
