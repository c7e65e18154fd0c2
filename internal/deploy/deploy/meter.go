package deploy

import (
	"sync"
	"time"
)

// meter measures how long a build holds its slot. It is safe for concurrent use.
type meter struct {
	mu    sync.Mutex // guards since
	since time.Time
}

// start starts measuring.
func (m *meter) start() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.since = time.Now()
}

// stop stops measuring: time spent waiting doesn't count.
func (m *meter) stop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.since = time.Time{}
}

// lap returns the time since start or the last lap; 0 after stop.
func (m *meter) lap() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.since.IsZero() {
		return 0
	}
	now := time.Now()
	took := now.Sub(m.since)
	m.since = now
	return took
}
