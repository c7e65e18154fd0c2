package network

import (
	"sync"
	"time"
)

// pace limits how often a command makes the service work for its network. Excess requests wait, and thus the command.
type pace struct {
	mu   sync.Mutex // guards the fields below
	room float64
	at   time.Time
}

const (
	paceEach  = 2000 // per second
	paceBurst = 1000
)

func newPace() *pace { return &pace{room: paceBurst, at: time.Now()} }

// wait waits for room for one more. A nil pace has no limit.
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
