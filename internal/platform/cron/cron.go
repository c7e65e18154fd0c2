// Package cron owns schedules in the five-field format of crontab(5), in UTC: it parses them and computes their next
// time.
//
// The fields are minute, hour, day of the month, month and day of the week. Each is a list of numbers, ranges, steps
// (*/5, 1-10/2) or, for months and days of the week, three-letter English names. As in crontab(5), if both day fields
// are restricted, a day matches when either does. @hourly, @daily, @weekly, @monthly and @yearly are supported.
package cron

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"

	"slipway/internal/platform/fault"
)

// Schedule is a set of minutes in the calendar.
type Schedule struct {
	minutes, hours, days, months, weekdays uint64 // bit sets
	anyDay, anyWeekday                     bool   // the field began with an asterisk
}

type field struct {
	name      string
	low, high int
	names     string // three-letter names, starting at low
}

var fields = [5]field{
	{"minute", 0, 59, ""},
	{"hour", 0, 23, ""},
	{"day of the month", 1, 31, ""},
	{"month", 1, 12, "janfebmaraprmayjunjulaugsepoctnovdec"},
	{"day of the week", 0, 7, "sunmontuewedthufrisat"},
}

var macros = map[string]string{
	"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0",
	"@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *",
}

// Parse parses a schedule. Its error is an Invalid fault that names the wrong field. A schedule that never occurs, such
// as 30 February, is invalid.
func Parse(text string) (Schedule, error) {
	bad := func(details string) (Schedule, error) {
		return Schedule{}, fault.New(fault.Invalid, "invalid_schedule", "Invalid schedule", details).Got(text[:min(len(text), 100)])
	}
	if len(text) > 200 {
		return bad("it is too long")
	}
	expanded := text
	if m, ok := macros[strings.ToLower(strings.TrimSpace(text))]; ok {
		expanded = m
	}
	parts := strings.Fields(expanded)
	if len(parts) != 5 {
		return bad("five fields are needed: minute, hour, day of the month, month and day of the week, such as */5 * * * *")
	}
	var sets [5]uint64
	for i, f := range fields {
		set, ok := f.parse(strings.ToLower(parts[i]))
		if !ok {
			return bad(fmt.Sprintf("%q is no %s (%d to %d)", parts[i], f.name, f.low, f.high))
		}
		sets[i] = set
	}
	s := Schedule{sets[0], sets[1], sets[2], sets[3], sets[4], parts[2][0] == '*', parts[4][0] == '*'}
	if s.weekdays&(1<<7) != 0 { // 7 is Sunday too
		s.weekdays |= 1
	}
	if s.Next(time.Unix(0, 0)).IsZero() {
		return bad("it never comes")
	}
	return s, nil
}

func (f field) parse(text string) (set uint64, ok bool) {
	for item := range strings.SplitSeq(text, ",") {
		span, stepText, stepped := strings.Cut(item, "/")
		step := 1
		if stepped {
			var err error
			if step, err = strconv.Atoi(stepText); err != nil || step < 1 || step > f.high || stepText[0] == '+' {
				return 0, false
			}
		}
		low, high := f.low, f.high
		if f.high == 7 {
			high = 6
		}
		if span != "*" {
			first, last, ranged := strings.Cut(span, "-")
			if low, ok = f.number(first); !ok {
				return 0, false
			}
			switch {
			case ranged:
				if high, ok = f.number(last); !ok || high < low {
					return 0, false
				}
			case !stepped:
				high = low
			}
		}
		for n := low; n <= high; n += step {
			set |= 1 << n
		}
	}
	return set, set != 0
}

func (f field) number(text string) (int, bool) {
	if i := strings.Index(f.names, text); len(text) == 3 && i >= 0 && i%3 == 0 {
		return f.low + i/3, true
	}
	n, err := strconv.Atoi(text)
	return n, err == nil && text[0] >= '0' && text[0] <= '9' && len(text) <= 2 && n >= f.low && n <= f.high
}

// Next returns the first time after t, in UTC, or zero if there is none within eight years, the longest gap between
// leap days.
func (s Schedule) Next(t time.Time) time.Time {
	t = t.UTC().Truncate(time.Minute).Add(time.Minute)
	for end := t.AddDate(9, 0, 0); t.Before(end); {
		switch {
		case s.months&(1<<t.Month()) == 0:
			t = time.Date(t.Year(), t.Month()+1, 1, 0, 0, 0, 0, time.UTC)
		case !s.day(t):
			t = time.Date(t.Year(), t.Month(), t.Day()+1, 0, 0, 0, 0, time.UTC)
		case s.hours&(1<<t.Hour()) == 0:
			t = t.Truncate(time.Hour).Add(time.Hour)
		case s.minutes>>t.Minute() == 0:
			t = t.Truncate(time.Hour).Add(time.Hour)
		default:
			return t.Add(time.Duration(bits.TrailingZeros64(s.minutes>>t.Minute())) * time.Minute)
		}
	}
	return time.Time{}
}

func (s Schedule) day(t time.Time) bool {
	date, week := s.days&(1<<t.Day()) != 0, s.weekdays&(1<<t.Weekday()) != 0
	if s.anyDay || s.anyWeekday {
		return date && week
	}
	return date || week
}
