// Package allowance owns how much this node may still send of an owner's bandwidth when little is left. It makes the
// limit exact across several nodes.
//
// A node borrows parts of the remaining bandwidth and admits a request only while it has some. What it borrowed and has
// neither returned nor counted is outstanding: no other node may admit it. A loan ends after 55 seconds unless it is
// renewed, so a node that lost the database stops admitting before others get its part. Admitted responses are sent
// whole.
//
// Owners with more bandwidth left have no [Lease], and their requests cost nothing.
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

// Lender lends nodes parts of the bandwidth that an owner has left.
type Lender interface {
	// Lend records how much of an owner's bandwidth this node has outstanding. If more is true, it also lends another
	// part. A loan ends 90 seconds after the last call that recorded it.
	Lend(ctx context.Context, owner id.Owner, outstanding int64, more bool) (lent int64, err error)
	// Arm marks owners whose limit is so small that they need loans from the first byte. Without arguments it checks
	// all owners.
	Arm(ctx context.Context, owners ...id.Owner) error
}

// Topic notifies nodes that they should return unused loans.
const Topic = "usage.return"

// Config holds the dependencies of Allowances.
type Config struct {
	Lender Lender
	Log    *slog.Logger
	Renew  time.Duration // how often loans are renewed. Optional: 0 means 10s.
}

// Allowances holds the leases of owners who have little bandwidth left. It is safe for concurrent use.
type Allowances struct {
	c  Config
	mu sync.Mutex // guards leases
	// share: total one of each owner who has little left; owner one; edge gone when there is more again
	leases map[id.Owner]*Lease
}

const (
	valid   = 55 * time.Second // how long a loan is valid, counted from before the request for it
	waiting = 2 * time.Second  // how long a request waits for a loan
	dryFor  = 500 * time.Millisecond
	step    = 64 << 10 // bytes reserved for a response before it begins
)

// New returns Allowances without leases.
func New(c Config) *Allowances {
	c.Log, c.Renew = cmp.Or(c.Log, slog.New(slog.DiscardHandler)), cmp.Or(c.Renew, 10*time.Second)
	return &Allowances{c: c, leases: map[id.Owner]*Lease{}}
}

// Set replaces the owners who have little left and returns their leases. Existing leases are kept.
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

// Collecting says that the bytes counted so far are about to be stored, and [Allowances.Stored] that they are. In
// between they count as both outstanding and stored, so that the limit is never exceeded.
func (a *Allowances) Collecting() {
	for _, l := range a.all() {
		l.collecting.Store(l.settled.Load())
	}
}

// Stored ends what [Allowances.Collecting] began.
func (a *Allowances) Stored() {
	for _, l := range a.all() {
		l.stored.Store(l.collecting.Load())
	}
}

// Run renews loans until ctx ends. It returns unused loans at the end and when wake says that another node needs them.
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

// Return returns all loans on shutdown. Call it once all counts are stored.
func (a *Allowances) Return(ctx context.Context) {
	for _, l := range a.all() {
		l.renew(ctx, true)
	}
}

// Lease is this node's part of an owner's remaining bandwidth.
type Lease struct {
	owner id.Owner
	c     *Config

	left       atomic.Int64 // bytes that may still be admitted; negative after a response longer than what was left
	settled    atomic.Int64 // total bytes of finished responses
	collecting atomic.Int64
	stored     atomic.Int64 // part of settled that is in the owner's stored usage
	until      atomic.Int64 // end of the loan, in nanoseconds of this process's monotonic clock

	talk     sync.Mutex // held during calls of the lender; guards borrowed and returned
	borrowed int64      // total, without returned loans
	returned time.Time  // time of the last return

	mu   sync.Mutex // guards the rest
	call *call
	dry  time.Time // no borrowing before this time
}

// call is a request for a loan that several responses wait for.
type call struct {
	done chan struct{}
	got  bool
}

var start = time.Now()

func now() int64 { return int64(time.Since(start)) }

// Response is an admitted response.
type Response struct {
	lease    *Lease
	reserved int64
	sent     int64
}

// Admit returns a response that may begin, or nil if nothing is left. It waits up to two seconds for a loan.
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

// take reserves one step of what is left, or all of it if that is less.
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

// Take admits a response of known size without waiting, if far more than that is left. The caller calls [Lease.Settle]
// once it has counted the response.
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

// Settle ends a response that [Lease.Take] admitted.
func (l *Lease) Settle(size int64) { l.settled.Add(size) }

// Sent counts bytes of the body. A response longer than its reservation reserves more, even below zero.
func (r *Response) Sent(n int64) {
	r.sent += n
	if r.sent > r.reserved {
		r.lease.left.Add(r.reserved - r.sent)
		r.reserved = r.sent
	}
}

// End ends the response. Call it after the response was counted.
func (r *Response) End() {
	r.lease.settled.Add(r.sent)
	r.lease.left.Add(r.reserved - r.sent)
}

// more borrows once for all waiting responses and reports whether it got anything.
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

// borrow requests a loan. If nothing is left, other nodes return unused loans, so it tries again.
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

// ask reports what is outstanding and, if more is true, borrows.
func (l *Lease) ask(ctx context.Context, more bool) (lent int64, err error) {
	l.talk.Lock()
	defer l.talk.Unlock()
	begun := now()
	if begun >= l.until.Load() {
		l.handBack() // the loan has ended; others may have it
	}
	// Bytes sent beyond the loan are outstanding too, until they are stored.
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

// renew reports what is outstanding if anything is, or was at the last call. If back is true, it also returns what is
// left, unless it did so a moment ago.
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

// handBack gives up what is left. The caller holds talk and calls the lender afterwards.
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
