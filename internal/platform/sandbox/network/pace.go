package network

import (
	"sync"
	"time"
)

// pace bounds how often a command makes the service do something for its network. What is
// over it waits, and in the end the command does.
type pace struct {
	mu   sync.Mutex // guards what follows
	room float64
	at   time.Time
}

const (
	paceEach  = 2000 // a second
	paceBurst = 1000
)

func newPace() *pace { return &pace{room: paceBurst, at: time.Now()} }

// wait returns once there is room for one more. A nil pace has no bound.
func (p *pace) wait() {
	if p == nil {
		return
	}
	p.mu.Lock()
	now := time.Now()
	p.room = min(paceBurst, p.room+now.Sub(p.at).Seconds()*paceEach) - 1
	p.at = now
	late := -p.room
	p.mu.Unlock()
	if late > 0 {
		time.Sleep(time.Duration(late * float64(time.Second) / paceEach))
	}
}
