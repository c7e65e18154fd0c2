package webhook

import (
	"context"
	"errors"
	"sync"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/panics"
)

// Run sends until ctx ends, then lets requests in flight end for Drain and gives the rest
// back. After a restart on SQLite it goes on at once with what the dead process held.
//
// One loop writes: each turn stores every outcome there is and claims as much as there
// are free slots, in one transaction. While it commits, further outcomes gather: the
// busier it is, the more a commit carries.
func (w *Webhooks) Run(ctx context.Context) error {
	if w.c.Out == nil || w.c.Out.Transport == nil {
		return errNoClient
	}
	if err := w.prepare(ctx); err != nil {
		if ctx.Err() != nil {
			return nil // stopped while starting
		}
		return err
	}
	wake, unlisten := w.c.DB.Listen(topic)
	defer unlisten()
	work, abandon := context.WithCancel(context.WithoutCancel(ctx))
	defer abandon()
	// share: none, one for each place of the dispatcher, see hosts
	results := make(chan outcome, w.c.Slots)
	senders := newSenders(w, results)
	defer senders.end()
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { panics.Loop(ctx, w.maintain) })
	stopDrain := context.AfterFunc(ctx, func() {
		select {
		case <-time.After(w.c.Drain):
		case <-work.Done():
		}
		abandon()
	})
	defer stopDrain()

	var (
		done     []outcome
		inFlight int // claimed, outcome not yet on disk
		again    = true
		next     = never // when an endpoint has its turn, as far as we know
		timer    = time.NewTimer(w.c.Poll)
	)
	defer timer.Stop()
	for {
		stopping := ctx.Err() != nil
		if stopping && inFlight == 0 {
			return nil
		}
		failed := false
		free := w.c.Slots - inFlight + len(done)
		if stopping {
			free = 0
		}
		if len(done) > 0 || again && free > 0 {
			var flights []flight
			var soon db.Time
			err := panics.Call(func() (err error) {
				flights, soon, err = w.turn(context.WithoutCancel(ctx), done, free)
				return err
			})
			if err != nil {
				// Outcomes are kept and tried again; the leases run on meanwhile.
				w.c.Log.ErrorContext(ctx, "webhook schedule not written", "err", err)
				if work.Err() != nil {
					return nil // the time to drain is over: the leases say what is to be done again
				}
				failed = true
			} else {
				next = soon
				inFlight += len(flights) - len(done)
				w.metrics.saved(done)
				done = done[:0]
				if len(flights) > 0 {
					// uncaught: launch catches
					all.Go(func() { senders.launch(work, flights) })
				}
				w.metrics.inFlight.Set(float64(inFlight))
				free = w.c.Slots - inFlight
			}
			again = false
		}
		switch {
		case failed:
			timer.Reset(time.Second)
		case free == 0:
			timer.Reset(w.c.Poll) // the next outcome frees a slot
		default:
			timer.Reset(soonest(w.c.DB.Now(), next, w.c.Poll))
		}
		stop := ctx.Done()
		if stopping {
			stop = nil
		}
		select {
		case o := <-results:
			done = gather(results, append(done, o), inFlight, wake)
			again = true
		case <-wake:
			again = true
		case <-timer.C:
			soon, err := w.upcoming(work, w.c.DB)
			if err == nil {
				next = soon
			}
			again = err != nil || next <= w.c.DB.Now()
		case <-stop:
		}
	}
}

// gathering is how long outcomes wait for others to be written with.
const gathering = 3 * time.Millisecond

// gather adds outcomes until half of what is in flight is there, or others have waited long
// enough, or there is something new to send: a commit costs the same for one as for many.
func gather(results <-chan outcome, done []outcome, inFlight int, wake <-chan struct{}) []outcome {
	timer := time.NewTimer(gathering)
	defer timer.Stop()
	for len(done) < inFlight/2 {
		select {
		case o := <-results:
			done = append(done, o)
			continue
		case <-wake:
		case <-timer.C:
		}
		break
	}
	for { // what is there by now goes with them
		select {
		case o := <-results:
			done = append(done, o)
		default:
			return done
		}
	}
}

// prepare does what comes before the first request.
func (w *Webhooks) prepare(ctx context.Context) error {
	if w.c.DB.Single() {
		if err := w.takeOver(ctx, true); err != nil {
			return err
		}
	}
	return w.nameHosts(ctx)
}

// leaseCheck is how often expired leases are looked for.
func leaseCheck(lease time.Duration) time.Duration { return max(lease/6, time.Second) }

// maintain takes over expired leases, measures, purges and reviews failing webhooks, until ctx ends.
func (w *Webhooks) maintain(ctx context.Context) {
	leases := time.NewTicker(leaseCheck(w.c.Lease))
	defer leases.Stop()
	purge := time.NewTicker(10 * time.Minute)
	defer purge.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case <-leases.C:
			if !w.c.DB.Single() {
				err = w.takeOver(ctx, false)
			}
			w.measure(ctx)
			w.hosts.Forget(time.Now())
		case <-purge.C:
			err = errors.Join(w.repairTurns(ctx), w.reviewFailing(ctx), w.purgeListeners(ctx), w.purge(ctx))
		}
		if err != nil && ctx.Err() == nil {
			w.c.Log.ErrorContext(ctx, "webhook maintenance failed", "err", err)
		}
	}
}
