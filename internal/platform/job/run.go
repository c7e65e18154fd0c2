package job

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/panics"
)

// errGivenUp marks the end of a job that failed too often.
var errGivenUp = errors.New("job failed permanently")

// Run does jobs until ctx ends, then lets those that run go on for Drain, ends the rest
// (they are done again after the next start) and returns.
func (j *Jobs) Run(ctx context.Context) error {
	if j.c.DB.Single() {
		if err := j.rescue(ctx, 1<<62); err != nil { // all of them: their process is gone
			return err
		}
	}
	if err := j.announce(ctx); err != nil && ctx.Err() != nil {
		return nil // it is over before it began
	} else if err != nil {
		return err
	}
	// What runs outlives ctx by the drain.
	work, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	var loops, jobs sync.WaitGroup
	for queue, n := range j.c.Queues {
		// uncaught: the loop catches
		jobs.Go(func() { j.serve(ctx, work, queue, n) })
	}
	beat, quiet := context.WithCancel(work)
	defer quiet()
	for _, loop := range []func(context.Context){j.leases.Run, j.heartbeat, j.hearCancellations} {
		loops.Go(func() { panics.Loop(beat, loop) })
	}

	<-ctx.Done()
	done := make(chan struct{})
	// uncaught: waits
	go func() { jobs.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(j.c.Drain):
		stop(ErrStopping)
		<-done
	}
	quiet()
	loops.Wait()
	j.retire(context.WithoutCancel(ctx))
	return nil
}

// serve keeps up to n jobs of the queue running.
func (j *Jobs) serve(ctx, work context.Context, queue string, n int) {
	wake, unlisten := j.c.DB.Listen(topic(queue))
	defer unlisten()
	Loop{
		Places: n, Wake: wake, Poll: j.c.Poll,
		Lease: func(ctx context.Context) (func(), error) {
			c, err := j.lease(ctx, queue)
			if c == nil {
				return nil, err
			}
			return func() { j.do(work, c) }, nil
		},
		Failed: func(ctx context.Context, err error) {
			j.c.Log.ErrorContext(ctx, "job not leased", "queue", queue, "err", err)
		},
	}.Run(ctx)
}

// do calls the handler of one leased job and writes how it ended.
func (j *Jobs) do(work context.Context, c *leased) {
	ctx, release := j.leases.Hold(work, c.id, c.attempt)
	defer release()

	end := j.call(ctx, c)
	if cause := context.Cause(ctx); end != nil && cause != nil && !(errors.Is(cause, ErrCanceled) && db.Away(end)) {
		// Whatever the handler made of it: it was canceled, taken over or stopped. One that couldn't write the end of its work
		// when it was canceled is called again.
		end = cause
	}
	var l later
	var on *elsewhere
	if end != nil && !errors.As(end, &l) && !errors.As(end, &on) && !errors.Is(end, ErrCanceled) && !errors.Is(end, ErrStopping) {
		j.c.Log.WarnContext(work, "job failed", "job", c.id, "kind", c.kind, "failures", c.failures+1, "err", end)
	}
	j.finish(work, c, end)
}

// The pauses of finish.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = 5 * time.Second
)

// finish writes how a job ended. While the database doesn't take it (its disk is full, or it is away), the job keeps its place and its
// lease, and finish tries again until work ends. It tries even then, once: an end that isn't written means that the job is done again.
func (j *Jobs) finish(work context.Context, c *leased, end error) {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		bounded, done := context.WithTimeout(context.WithoutCancel(work), 10*time.Second)
		err := j.settle(bounded, c, end)
		done()
		if err == nil {
			return
		}
		j.c.Log.ErrorContext(work, "end of job not written", "job", c.id, "kind", c.kind, "err", err)
		if !db.Away(err) && !errors.Is(err, context.DeadlineExceeded) {
			return // rescue makes it ready again
		}
		select {
		case <-work.Done():
			return
		case <-time.After(Jitter(pause)):
		}
	}
}

// patience is how long a statement of a job may take.
const patience = 2 * time.Minute

// call calls the handler. A panic is a failure like others.
func (j *Jobs) call(ctx context.Context, c *leased) error {
	h := j.handlers[c.kind]
	if c.failures >= h.policy.Attempts {
		why := fmt.Errorf("%w after %d attempts", errGivenUp, c.failures)
		if h.policy.GivenUp != nil {
			err := panics.Call(func() error { return h.policy.GivenUp(ctx, c.args, why) })
			if errors.Is(err, panics.ErrPanic) { // it would panic each time
				return errors.Join(why, err)
			}
			if err != nil {
				return err
			}
		}
		return why
	}
	ctx, cancel := context.WithTimeout(db.Patient(ctx, patience), h.policy.Timeout)
	defer cancel()
	return panics.Call(func() error { return h.call(ctx, c) })
}

// heartbeat says that this node is alive, where there may be other nodes, and makes jobs ready again that no process does.
func (j *Jobs) heartbeat(ctx context.Context) {
	tick := time.NewTicker(j.c.Lease / 4)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if !j.c.DB.Single() {
			if err := j.announce(ctx); err != nil && ctx.Err() == nil {
				j.c.Log.ErrorContext(ctx, "node not announced", "err", err)
			}
		}
		if err := j.rescue(ctx, j.c.DB.Now()); err != nil && ctx.Err() == nil {
			j.c.Log.ErrorContext(ctx, "jobs that no process does not taken over", "err", err)
		}
	}
}

// hearCancellations ends what was canceled without waiting for its lease's next renewal.
func (j *Jobs) hearCancellations(ctx context.Context) {
	wake, unlisten := j.c.DB.Listen(topicCancel)
	defer unlisten()
	for {
		select {
		case <-ctx.Done():
			return
		case <-wake:
		}
		if err := j.leases.RenewAll(ctx); err != nil && ctx.Err() == nil {
			j.c.Log.ErrorContext(ctx, "leases not renewed", "err", err)
		}
	}
}
