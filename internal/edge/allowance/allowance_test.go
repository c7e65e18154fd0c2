package allowance

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"slipway/internal/platform/id"
)

// lender is a Lender with a fixed amount. used simulates stored usage and noted the outstanding loans.
type lender struct {
	mu    sync.Mutex
	most  int64
	used  int64 // stored usage
	noted int64 // outstanding loans
	away  bool
	asked int
}

func (l *lender) Lend(_ context.Context, _ id.Owner, outstanding int64, more bool) (lent int64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked++
	if l.away {
		return 0, errors.New("the database is away")
	}
	if more {
		lent = max(0, min(l.most-l.used-outstanding, 1<<20))
	}
	l.noted = outstanding + lent
	return lent, nil
}

func (l *lender) Arm(context.Context, ...id.Owner) error { return nil }

func leaseOf(l *lender) (*Allowances, *Lease) {
	a := New(Config{Lender: l})
	return a, a.Set([]id.Owner{"ada"})["ada"]
}

// Concurrent requests are admitted until the amount is used up and never send more than it in total. Bytes taken for a
// response but not sent can be taken again.
func TestNothingBeyond(t *testing.T) {
	t.Parallel()
	const most, each = 5 << 20, 1000
	l := &lender{most: most}
	_, lease := leaseOf(l)
	var sent atomic.Int64
	var all sync.WaitGroup
	for n := range 50 {
		all.Go(func() {
			for {
				if n%2 == 0 && lease.Take(each) { // a response of known size
					sent.Add(each)
					lease.Settle(each)
					continue
				}
				r := lease.Admit(t.Context())
				if r == nil {
					return
				}
				n := min(each, r.reserved)
				r.Sent(n)
				sent.Add(n)
				r.End()
			}
		})
	}
	all.Wait()
	if n := sent.Load(); n > most || n < most*9/10 {
		t.Errorf("%d bytes were sent of %d", n, int64(most))
	}
}

// A response longer than the remaining amount is sent whole and counted, and no further request is admitted.
func TestLongResponses(t *testing.T) {
	t.Parallel()
	l := &lender{most: 1000}
	a, lease := leaseOf(l)
	r := lease.Admit(t.Context())
	for range 10 {
		r.Sent(500)
	}
	if lease.Admit(t.Context()) != nil {
		t.Error("another is admitted")
	}
	a.Collecting()
	r.End()
	a.Stored() // doesn't include this response, which ended after Collecting
	lease.renew(t.Context(), false)
	if l.noted != 5000 {
		t.Errorf("%d are outstanding, want 5000", l.noted)
	}
	a.Collecting()
	l.used = 5000
	a.Stored()
	lease.renew(t.Context(), false)
	if l.noted != 0 {
		t.Errorf("%d are outstanding after they were stored", l.noted)
	}
	l.most = 6000 // the limit is raised
	if eventually(lease) == nil {
		t.Error("nothing is admitted although the limit was raised")
	}
}

func eventually(l *Lease) (r *Response) {
	for end := time.Now().Add(5 * time.Second); r == nil && time.Now().Before(end); {
		r = l.Admit(context.Background())
	}
	return r
}

// A node that can't reach the lender admits requests from its loan for less than a minute, so that other nodes can
// borrow the rest. An expired loan isn't used again.
func TestLoansEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &lender{most: 1 << 20}
		a, lease := leaseOf(l)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		wake := make(chan struct{})
		go func() { done <- a.Run(ctx, wake) }()
		admit := func(what string, want bool) {
			t.Helper()
			r := lease.Admit(t.Context())
			if (r != nil) != want {
				t.Errorf("%s: admitted %t", what, !want)
			}
			if r != nil {
				r.Sent(10)
				r.End()
			}
		}
		admit("at first", true)
		time.Sleep(5 * time.Minute) // the loan is renewed meanwhile
		admit("after five minutes", true)
		l.mu.Lock()
		l.away = true
		l.mu.Unlock()
		time.Sleep(40 * time.Second)
		admit("for a while", true)
		time.Sleep(20 * time.Second)
		admit("after a minute", false)
		l.mu.Lock()
		l.away, l.used = false, 1<<20 // other nodes have used the amount
		l.mu.Unlock()
		time.Sleep(time.Minute)
		admit("when nothing is left", false)
		if l.noted != 20+10+0 && l.noted != 30 {
			t.Errorf("%d are outstanding, want the 30 that were sent", l.noted)
		}
		stop()
		<-done
	})
}

// A node returns the unused part of its loan when another node needs it and when it stops.
func TestHandsBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &lender{most: 1 << 20}
		a, lease := leaseOf(l)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		wake := make(chan struct{})
		go func() { done <- a.Run(ctx, wake) }()
		r := lease.Admit(t.Context())
		r.Sent(10)
		if l.noted != 1<<20 {
			t.Fatalf("%d are outstanding", l.noted)
		}
		wake <- struct{}{}
		synctest.Wait()
		if l.noted != step {
			t.Errorf("%d are outstanding, want those of the response that is under way", l.noted)
		}
		r.End()
		stop()
		<-done
		time.Sleep(time.Second)
		a.Return(t.Context())
		if l.noted != 10 {
			t.Errorf("%d are outstanding at the end, want those that were sent", l.noted)
		}
	})
}

func BenchmarkAdmit(b *testing.B) {
	_, lease := leaseOf(&lender{most: 1 << 60})
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			r := lease.Admit(context.Background())
			r.Sent(1000)
			r.End()
		}
	})
}
