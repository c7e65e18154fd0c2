package journal

import "time"

// Clock ends a deployment that has worked for too long. While it is stopped no time
// passes for it. One goroutine uses it.
type Clock struct {
	left  time.Duration
	since time.Time
	timer *time.Timer
}

// NewClock returns a running one that calls end when the time is over.
func NewClock(d time.Duration, end func()) *Clock {
	return &Clock{left: d, since: time.Now(), timer: time.AfterFunc(d, end)}
}

// Stop lets no time pass until Start.
func (c *Clock) Stop() {
	if c.timer.Stop() {
		c.left -= time.Since(c.since)
	}
}

// Start goes on.
func (c *Clock) Start() {
	c.since = time.Now()
	c.timer.Reset(c.left)
}
