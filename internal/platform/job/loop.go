package job

import (
	"context"
	"math/rand/v2"
	"time"

	"slipway/internal/platform/panics"
)

// Loop leases work for a bounded number of places. A place is free before anything is
// leased, so what is leased starts at once.
type Loop struct {
	Places int
	Wake   <-chan struct{} // from db.DB.Listen
	Poll   time.Duration   // the safety net under lost wake-ups

	// Lease takes one piece of work and returns it, or nil when nothing is due.
	Lease func(ctx context.Context) (work func(), err error)
	// Failed hears of the errors of Lease.
	Failed func(ctx context.Context, err error)
}

// Run leases until ctx ends, and returns once all that was leased has ended.
func (l Loop) Run(ctx context.Context) {
	var running panics.Background
	defer running.Wait()
	// share: total the queue's places; owner half of them, one where there are two; edge the job waits, those of owners with least running go first
	places := make(chan struct{}, l.Places)
	poll := time.NewTicker(l.Poll)
	defer poll.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case places <- struct{}{}:
		}
		if ctx.Err() != nil { // both were possible
			return
		}
		var work func()
		err := panics.Call(func() (err error) { work, err = l.Lease(ctx); return err })
		if err != nil && ctx.Err() == nil {
			l.Failed(ctx, err)
		}
		if work != nil {
			running.Go(func() {
				defer func() { <-places }()
				work()
			})
			continue
		}
		<-places
		select {
		case <-ctx.Done():
			return
		case <-l.Wake:
		case <-poll.C:
		}
	}
}

// Jitter changes d at random by up to a tenth.
func Jitter(d time.Duration) time.Duration {
	return d + time.Duration((rand.Float64()*2-1)*0.1*float64(d))
}

// doubling is the back-off of jobs that name none: a second, doubling up to five minutes.
func doubling(failures int) time.Duration {
	return Jitter(min(time.Second<<min(failures, 20), 5*time.Minute))
}
