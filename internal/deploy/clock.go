package deploy

import "time"

// clock ends a deployment that has worked for too long. While it is stopped no time
// passes for it. One goroutine uses it.
type clock struct {
	left  time.Duration
	since time.Time
	timer *time.Timer
}

// newClock returns a running one that calls end when the time is over.
func newClock(d time.Duration, end func()) *clock {
	return &clock{left: d, since: time.Now(), timer: time.AfterFunc(d, end)}
}

func (c *clock) stop() {
	if c.timer.Stop() {
		c.left -= time.Since(c.since)
	}
}

func (c *clock) start() {
	c.since = time.Now()
	c.timer.Reset(c.left)
}
