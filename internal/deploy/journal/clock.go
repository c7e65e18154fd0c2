package journal

import "time"

// Clock ends a deployment that takes too long. Its time can be paused. It is not safe for concurrent use.
type Clock struct {
	left  time.Duration
	since time.Time
	timer *time.Timer
}

// NewClock returns a running clock that calls end when the time is over.
func NewClock(d time.Duration, end func()) *Clock {
	return &Clock{left: d, since: time.Now(), timer: time.AfterFunc(d, end)}
}

// Stop pauses the clock until Start.
func (c *Clock) Stop() {
	if c.timer.Stop() {
		c.left -= time.Since(c.since)
	}
}

// Start resumes the clock.
func (c *Clock) Start() {
	c.since = time.Now()
	c.timer.Reset(c.left)
}
