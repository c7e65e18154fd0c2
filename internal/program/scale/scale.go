// Package scale owns how many instances of a program should run: from the requests that are in flight, within the range that its
// site's settings allow. It starts and ends none.
package scale

import "time"

// Target is how many requests in flight one instance is for. A WebSocket or an event stream is one for as long as it is open.
const Target = 10

// DownAfter is how long fewer instances must have been enough before some of them end.
const DownAfter = 5 * time.Minute

// Most is how many instances a site's settings may ask for.
const Most = 10

// How long is waited after an instance that could not be started: twice as long each time.
const (
	firstRetry = time.Second
	lastRetry  = time.Minute
)

// Range is how few and how many instances may run. The zero Range is one.
type Range struct{ Min, Max int }

// Needed returns how many instances so many requests in flight need.
func (r Range) Needed(inFlight int) int {
	n := (inFlight + Target - 1) / Target
	return max(1, r.Min, min(n, r.Max))
}

// Scale follows one program. Its methods are called by one goroutine at a time.
type Scale struct {
	since    time.Time // fewer than run have been enough since then; zero: they are not
	peak     int       // how many would have been enough since then
	failures int       // starts in a row
	retry    time.Time // none is started before
}

// Want returns how many instances should run where so many do.
func (s *Scale) Want(r Range, running, inFlight int, now time.Time) int {
	n := r.Needed(inFlight)
	if limit := max(1, r.Max); running > limit {
		n = limit
	} else if n < running {
		if s.since.IsZero() {
			s.since, s.peak = now, n
		}
		s.peak = max(s.peak, n)
		if now.Sub(s.since) < DownAfter {
			return running
		}
		n = s.peak
	}
	s.since = time.Time{}
	if n > running && now.Before(s.retry) {
		return running
	}
	return n
}

// Started notes that an instance came up.
func (s *Scale) Started() { s.failures, s.retry = 0, time.Time{} }

// Failed notes that one did not.
func (s *Scale) Failed(now time.Time) {
	s.Hold(now.Add(min(lastRetry, firstRetry<<min(s.failures, 6))))
	s.failures++
}

// Hold has none started before then.
func (s *Scale) Hold(until time.Time) {
	if until.After(s.retry) {
		s.retry = until
	}
}
