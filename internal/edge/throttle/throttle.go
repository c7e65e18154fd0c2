// Package throttle owns the rate limit of sites whose owner's bandwidth is used up and whose limits say "slow down"
// instead of "pause".
//
// All responses of an owner on this node share one rate: each waits for its turn before every few kilobytes, in order,
// so that they are equally fast. A slowed response occupies memory for longer, so their number is limited and further
// ones are refused.
package throttle

import (
	"context"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"slipway/internal/platform/fair"
	"slipway/internal/platform/id"
)

const (
	// Step is the number of bytes per turn.
	Step = 4 << 10
	// burst is how much of the rate an idle owner may use at once, so that a small page is sent immediately.
	burst = time.Second
)

// Throttles holds the rates of owners whose sites are slowed. It is safe for concurrent use.
type Throttles struct {
	places *fair.Pool
	mu     sync.Mutex // guards owners
	// share: total one of each owner near the end of their bandwidth; owner one; edge gone when there is more again
	owners map[id.Owner]*Throttle
}

// New returns Throttles without rates.
func New() *Throttles {
	return &Throttles{
		// share: total 1024 responses of owners whose bandwidth is used up at once; owner 64; edge 503 with Retry-After
		places: fair.New(fair.Config{Places: 1024, Owner: 64, Visitor: 16}),
		owners: map[id.Owner]*Throttle{},
	}
}

// Throttle is one owner's rate. The pointer stays the same while the owner has a rate.
type Throttle struct {
	all    *Throttles
	rate   atomic.Int64 // bytes per second
	mu     sync.Mutex   // guards next
	next   time.Time    // when the next turn begins
	lifted chan struct{}
}

// Set replaces all rates, in bytes per second. Responses of owners without a rate continue at full speed.
func (a *Throttles) Set(rates map[id.Owner]int64) map[id.Owner]*Throttle {
	a.mu.Lock()
	defer a.mu.Unlock()
	owners := make(map[id.Owner]*Throttle, len(rates))
	for o, rate := range rates {
		t := a.owners[o]
		if t == nil {
			t = &Throttle{all: a, lifted: make(chan struct{})}
		}
		t.rate.Store(max(1, rate))
		owners[o] = t
	}
	for o, t := range a.owners {
		if owners[o] == nil {
			close(t.lifted)
		}
	}
	a.owners = owners
	return owners
}

// Take begins a slowed response. ok is false if the owner has too many.
func (t *Throttle) Take(ctx context.Context, who fair.Who) (*Response, bool) {
	release, ok := t.all.places.Try(who)
	if !ok {
		return nil, false
	}
	return &Response{t: t, gone: ctx.Done(), release: release}, true
}

// turn reserves the next turn for n bytes and returns its time.
func (t *Throttle) turn(n int, now time.Time) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	if earliest := now.Add(-burst); t.next.Before(earliest) {
		t.next = earliest
	}
	at := t.next
	t.next = at.Add(time.Duration(float64(n) / float64(t.rate.Load()) * float64(time.Second)))
	return at
}

// Response is a slowed response.
type Response struct {
	t       *Throttle
	gone    <-chan struct{} // closed when the visitor has left
	release func()
}

// Wait waits for the turn of n bytes, at most Step. It returns an error when the visitor has left.
func (r *Response) Wait(n int) error {
	select {
	case <-r.t.lifted:
		return nil
	default:
	}
	now := time.Now()
	wait := r.t.turn(n, now).Sub(now)
	if wait <= 0 {
		return nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.t.lifted:
	case <-r.gone:
		return io.ErrClosedPipe
	}
	return nil
}

// End ends the response.
func (r *Response) End() { r.release() }
