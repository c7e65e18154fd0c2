package webhook

import (
	"context"
	"errors"
	"sync"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/panics"
)

// Run sends deliveries until ctx ends, then waits up to Drain for requests in flight and releases the rest. After a
// restart on SQLite it immediately resumes the deliveries of the previous process.
//
// A single loop writes. Each turn stores all available outcomes and claims as many deliveries as there are free slots,
// in one transaction. Outcomes that arrive during a commit go into the next, so commits carry more under load.
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
		inFlight int // claimed, with the outcome not stored yet
		again    = true
		next     = never // the next known turn of an endpoint
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
				// The outcomes are kept and retried, and the leases stay valid meanwhile.
				w.c.Log.ErrorContext(ctx, "webhook schedule not written", "err", err)
				if work.Err() != nil {
					return nil // the drain time is over; the expired leases will be retried
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

// gathering is how long outcomes wait to be stored together.
const gathering = 3 * time.Millisecond

// gather collects outcomes until half of those in flight have arrived, the time is up, or new work is announced, since
// a commit costs the same for one as for many.
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
	for { // include those that have already arrived
		select {
		case o := <-results:
			done = append(done, o)
		default:
			return done
		}
	}
}

// prepare runs once before the first request.
func (w *Webhooks) prepare(ctx context.Context) error {
	if w.c.DB.Single() {
		if err := w.takeOver(ctx, true); err != nil {
			return err
		}
	}
	return w.nameHosts(ctx)
}

// leaseCheck returns the interval of checks for expired leases.
func leaseCheck(lease time.Duration) time.Duration { return max(lease/6, time.Second) }

// maintain takes over expired leases, updates metrics, purges old rows and reviews failing webhooks until ctx ends.
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
