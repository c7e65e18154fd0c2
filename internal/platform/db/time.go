package db

import (
	"fmt"
	"time"
)

// Time is a moment as both databases keep it: milliseconds since 1970, UTC. Zero means
// "not yet" and stands in columns that are BIGINT NOT NULL DEFAULT 0.
type Time int64

// Now is the present moment.
func Now() Time { return Time(time.Now().UnixMilli()) }

// Clock says what time it is.
type Clock interface{ Now() Time }

// Machine is the machine's clock.
type Machine struct{}

// Now is the present moment.
func (Machine) Now() Time { return Now() }

// At turns a time.Time into a Time; the zero time.Time into zero.
func At(t time.Time) Time {
	if t.IsZero() {
		return 0
	}
	return Time(t.UnixMilli())
}

// Time turns it back, in UTC; zero into the zero time.Time.
func (t Time) Time() time.Time {
	if t == 0 {
		return time.Time{}
	}
	return time.UnixMilli(int64(t)).UTC()
}

// Add returns the moment d later.
func (t Time) Add(d time.Duration) Time { return t + Time(d.Milliseconds()) }

// Sub returns how long after u t is.
func (t Time) Sub(u Time) time.Duration { return time.Duration(t-u) * time.Millisecond }

// String is RFC 3339 in UTC with milliseconds, as the interface shows it.
func (t Time) String() string {
	const form = "2006-01-02T15:04:05.000Z"
	at := t.Time()
	year, month, day := at.Date()
	if year < 0 || year > 9999 {
		return at.Format(form)
	}
	// The same as Format, in a third of its time: lists have several times in each item.
	var b [len(form)]byte
	copy(b[:], form)
	hour, minute, second := at.Clock()
	put(b[0:4], year)
	put(b[5:7], int(month))
	put(b[8:10], day)
	put(b[11:13], hour)
	put(b[14:16], minute)
	put(b[17:19], second)
	put(b[20:23], at.Nanosecond()/1e6)
	return string(b[:])
}

// put writes n with as many digits as there is room for.
func put(b []byte, n int) {
	for i := len(b) - 1; i >= 0; i-- {
		b[i] = byte('0' + n%10)
		n /= 10
	}
}

// Scan reads a BIGINT; NULL is zero.
func (t *Time) Scan(v any) error {
	switch v := v.(type) {
	case nil:
		*t = 0
	case int64:
		*t = Time(v)
	default:
		return fmt.Errorf("scan time: a %T is not a BIGINT", v)
	}
	return nil
}
