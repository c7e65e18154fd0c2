// Package allowance owns how much this node may still send of an owner's bandwidth, where little of it is left: a limit
// that holds exactly on several nodes.
//
// A node borrows parts of what is left and admits a request only while it has some. What it has borrowed and not handed
// back or counted is outstanding: nobody else may admit it. A loan ends after 55 seconds unless it is renewed, so a node
// that was cut off stops before others get its part. Responses that were admitted are sent whole.
//
// Owners with more left have no Lease here, and their requests cost nothing.
package allowance

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"slipway/internal/platform/id"
	"slipway/internal/platform/panics"
)

// Lender lends nodes parts of what is left.
type Lender interface {
	// Lend notes how much of an owner's bandwidth this node has outstanding and, with more, lends it a further part.
	// A loan that isn't noted again ends 90 seconds later.
	Lend(ctx context.Context, owner id.Owner, outstanding int64, more bool) (lent int64, err error)
	// Arm notes which owners' limit is so small that they need loans from the first byte, where that isn't noted yet. Without
	// owners it does so for all.
	Arm(ctx context.Context, owners ...id.Owner) error
}

// Topic wakes nodes to hand back what they don't use.
const Topic = "usage.return"

// Config holds what Allowances need.
type Config struct {
	Lender Lender
	Log    *slog.Logger
	Renew  time.Duration // how often loans are renewed. Optional: 0 means 10s.
}

// Allowances are those of the owners who have little left. It is safe for concurrent use.
type Allowances struct {
	c  Config
	mu sync.Mutex // guards leases
	// share: total one of each owner who has little left; owner one; edge gone when there is more again
	leases map[id.Owner]*Lease
}

const (
	valid   = 55 * time.Second // of a loan, counted from before it was asked for
	waiting = 2 * time.Second  // of a request, for a loan
	dryFor  = 500 * time.Millisecond
	step    = 64 << 10 // taken for a response before it begins
)

// New returns allowances of nobody.
func New(c Config) *Allowances {
	c.Log, c.Renew = cmp.Or(c.Log, slog.New(slog.DiscardHandler)), cmp.Or(c.Renew, 10*time.Second)
	return &Allowances{c: c, leases: map[id.Owner]*Lease{}}
}

// Set says which owners have little left. It returns their leases, those that were there before among them.
func (a *Allowances) Set(owners []id.Owner) map[id.Owner]*Lease {
	a.mu.Lock()
	defer a.mu.Unlock()
	leases := make(map[id.Owner]*Lease, len(owners))
	for _, o := range owners {
		leases[o] = a.leases[o]
		if leases[o] == nil {
			leases[o] = &Lease{owner: o, c: &a.c}
		}
	}
	a.leases = leases
	return leases
}

func (a *Allowances) all() []*Lease {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Collect(maps.Values(a.leases))
}

// Collecting says that what was counted until now is about to be taken for storing; Stored, that it is stored. Between
// them it is both outstanding and stored: nothing is missing.
func (a *Allowances) Collecting() {
	for _, l := range a.all() {
		l.collecting.Store(l.settled.Load())
	}
}

// Stored is the other half of Collecting.
func (a *Allowances) Stored() {
	for _, l := range a.all() {
		l.stored.Store(l.collecting.Load())
	}
}

// Run renews loans until ctx ends, and hands back what is left of them when wake says that another node needs it, and at
// the end.
func (a *Allowances) Run(ctx context.Context, wake <-chan struct{}) error {
	tick := time.NewTicker(a.c.Renew)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			for _, l := range a.all() {
				l.renew(ctx, false)
			}
		case <-wake:
			for _, l := range a.all() {
				l.renew(ctx, true)
			}
		}
	}
}

// Return hands back all loans at the end, once everything is stored.
func (a *Allowances) Return(ctx context.Context) {
	for _, l := range a.all() {
		l.renew(ctx, true)
	}
}

// Lease is what this node may send of an owner's bandwidth.
type Lease struct {
	owner id.Owner
	c     *Config

	left       atomic.Int64 // may be admitted; below zero where a response was longer than what was left
	settled    atomic.Int64 // sent in responses that are over, in all
	collecting atomic.Int64
	stored     atomic.Int64 // that much of settled is in the owner's usage
	until      atomic.Int64 // Unix nanoseconds by this process's monotonic clock: the loan's end

	talk     sync.Mutex // held while the lender is asked; guards the next two
	borrowed int64      // in all, without what was handed back
	returned time.Time  // when something was handed back last

	mu   sync.Mutex // guards the rest
	call *call
	dry  time.Time // nothing is borrowed before
}

// call is a loan that is being asked for.
type call struct {
	done chan struct{}
	got  bool
}

var start = time.Now()

func now() int64 { return int64(time.Since(start)) }

// Response is one that was admitted.
type Response struct {
	lease    *Lease
	reserved int64
	sent     int64
}

// Admit returns a response that may begin, or nil where nothing is left. It waits a moment for a loan.
func (l *Lease) Admit(ctx context.Context) *Response {
	for {
		if n := l.take(); n > 0 {
			return &Response{lease: l, reserved: n}
		}
		if !l.more(ctx) {
			return nil
		}
	}
}

// take takes a step of what is left, or all of it.
func (l *Lease) take() (n int64) {
	if now() >= l.until.Load() {
		return 0
	}
	for {
		left := l.left.Load()
		if left <= 0 {
			return 0
		}
		n = min(step, left)
		if l.left.CompareAndSwap(left, left-n) {
			return n
		}
	}
}

// Take admits a response whose size is known, without waiting, where there is more than enough for it; Settle says that it was counted.
func (l *Lease) Take(size int64) bool {
	if now() >= l.until.Load() {
		return false
	}
	for {
		left := l.left.Load()
		if left <= size {
			return false
		}
		if l.left.CompareAndSwap(left, left-size) {
			return true
		}
	}
}

// Settle says that a response that Take admitted is over, after it was counted.
func (l *Lease) Settle(size int64) { l.settled.Add(size) }

// Sent counts bytes of the body. A response that is longer than what was taken for it takes more, whether there is any
// or not.
func (r *Response) Sent(n int64) {
	r.sent += n
	if r.sent > r.reserved {
		r.lease.left.Add(r.reserved - r.sent)
		r.reserved = r.sent
	}
}

// End says that the response is over, after it was counted.
func (r *Response) End() {
	r.lease.settled.Add(r.sent)
	r.lease.left.Add(r.reserved - r.sent)
}

// more borrows, once for all who wait, and reports whether there was anything.
func (l *Lease) more(ctx context.Context) bool {
	l.mu.Lock()
	if time.Now().Before(l.dry) {
		l.mu.Unlock()
		return false
	}
	c := l.call
	if c == nil {
		c = &call{done: make(chan struct{})}
		l.call = c
		// uncaught: borrow catches
		go l.borrow(c)
	}
	l.mu.Unlock()
	wait := time.NewTimer(waiting)
	defer wait.Stop()
	select {
	case <-c.done:
		return c.got
	case <-wait.C:
	case <-ctx.Done():
	}
	return false
}

// borrow asks for a loan. Where nothing is left, other nodes hand back what they don't use, so it asks again.
func (l *Lease) borrow(c *call) {
	ctx, cancel := context.WithTimeout(context.Background(), waiting)
	defer cancel()
	for try := range 3 {
		if try > 0 {
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
			}
		}
		var lent int64
		err := panics.Call(func() (err error) { lent, err = l.ask(ctx, true); return err })
		if err != nil {
			l.c.Log.WarnContext(ctx, "bandwidth not borrowed", "owner", l.owner, "err", err)
			break
		}
		c.got = lent > 0 || l.left.Load() > 0
		if c.got {
			break
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !c.got {
		l.dry = time.Now().Add(dryFor)
	}
	l.call = nil
	close(c.done)
}

// ask notes what is outstanding and borrows.
func (l *Lease) ask(ctx context.Context, more bool) (lent int64, err error) {
	l.talk.Lock()
	defer l.talk.Unlock()
	begun := now()
	if begun >= l.until.Load() {
		l.handBack() // others may have it by now
	}
	// What was sent beyond the loan is outstanding too, until it is stored.
	if left := l.left.Load(); left < 0 {
		l.left.Add(-left)
		l.borrowed -= left
	}
	lent, err = l.c.Lender.Lend(ctx, l.owner, max(0, l.borrowed-l.stored.Load()), more)
	if err != nil {
		return 0, err
	}
	l.borrowed += lent
	l.left.Add(lent)
	l.until.Store(begun + int64(valid))
	return lent, nil
}

// renew notes what is outstanding, if anything is or was a moment ago, and with back hands back what is left, unless that
// was just done.
func (l *Lease) renew(ctx context.Context, back bool) {
	l.talk.Lock()
	if l.borrowed == 0 {
		l.talk.Unlock()
		return
	}
	if back && time.Since(l.returned) > dryFor {
		l.handBack()
		l.returned = time.Now()
	}
	l.talk.Unlock()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if _, err := l.ask(ctx, false); err != nil && ctx.Err() == nil {
		l.c.Log.WarnContext(ctx, "loan of bandwidth not renewed", "owner", l.owner, "err", err)
	}
}

// handBack gives up what is left. The caller holds talk, and asks afterwards.
func (l *Lease) handBack() {
	for {
		left := l.left.Load()
		if left <= 0 {
			return
		}
		if l.left.CompareAndSwap(left, 0) {
			l.borrowed -= left
			return
		}
	}
}
