package cron

import (
	"testing"
	"time"

	"slipway/internal/platform/fault"
)

func TestNext(t *testing.T) {
	t.Parallel()
	for text, steps := range map[string][]string{
		"* * * * *":             {"2026-02-27T10:31:00Z", "2026-02-27T10:32:00Z"},
		"*/15 * * * *":          {"2026-02-27T10:45:00Z", "2026-02-27T11:00:00Z", "2026-02-27T11:15:00Z"},
		"5/20 * * * *":          {"2026-02-27T10:45:00Z", "2026-02-27T11:05:00Z"},
		"0 0 * * *":             {"2026-02-28T00:00:00Z", "2026-03-01T00:00:00Z"},
		"@daily":                {"2026-02-28T00:00:00Z"},
		"30 9-17/4 * * mon-fri": {"2026-02-27T13:30:00Z", "2026-02-27T17:30:00Z", "2026-03-02T09:30:00Z"},
		"0 12 1,15 * *":         {"2026-03-01T12:00:00Z", "2026-03-15T12:00:00Z"},
		"0 0 13 * fri":          {"2026-03-06T00:00:00Z", "2026-03-13T00:00:00Z"}, // either day matches
		"0 0 * * 7":             {"2026-03-01T00:00:00Z", "2026-03-08T00:00:00Z"},
		"0 0 29 feb *":          {"2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z"},
		"0 0 31 * *":            {"2026-03-31T00:00:00Z", "2026-05-31T00:00:00Z"},
		"59 23 31 12 *":         {"2026-12-31T23:59:00Z", "2027-12-31T23:59:00Z"},
		"0 0 */2 * 1":           {"2026-03-09T00:00:00Z"}, // both must match, because one starts with an asterisk
	} {
		s, err := Parse(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		at := time.Date(2026, 2, 27, 10, 30, 15, 0, time.UTC)
		for _, want := range steps {
			at = s.Next(at)
			if at.Format(time.RFC3339) != want {
				t.Errorf("%s: %s, want %s", text, at.Format(time.RFC3339), want)
			}
		}
	}
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * 32 * *", "* * * 13 *", "* * * * 8",
		"a * * * *", "*/0 * * * *", "5-1 * * * *", "-1 * * * *", "+1 * * * *", "1,,2 * * * *", "* * * janu *",
		"* * * an *", "0 0 30 feb *", "@often", "*/99 * * * *", "1-2-3 * * * *", "*5 * * * *",
	} {
		if _, err := Parse(text); fault.As(err) == nil || fault.As(err).Code != "invalid_schedule" {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// A valid schedule's next time is later, on a whole minute, and the same when asked a second earlier.
func FuzzSchedule(f *testing.F) {
	f.Add("*/5 1-3 * jan,feb 7", int64(1_700_000_000))
	f.Fuzz(func(t *testing.T, text string, seconds int64) {
		s, err := Parse(text)
		if err != nil {
			return
		}
		at := time.Unix(seconds%(1<<33), 0)
		next := s.Next(at)
		if next.IsZero() || !next.After(at) || next.Second() != 0 || !s.Next(next.Add(-time.Second)).Equal(next) {
			t.Errorf("%q after %s: %s", text, at, next)
		}
	})
}
