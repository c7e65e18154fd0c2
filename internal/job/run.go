package job

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

// errGivenUp marks the end of a job that failed too often.
var errGivenUp = errors.New("given up")

// Run does jobs until ctx ends, then lets those that run go on for Drain, ends the rest
// (they are done again after the next start) and returns.
func (j *Jobs) Run(ctx context.Context) error {
	if j.c.DB.Single() {
		if err := j.rescue(ctx, true); err != nil {
			return err
		}
	}
	// What runs outlives ctx by the drain.
	work, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	var loops, jobs sync.WaitGroup
	for queue, n := range j.c.Queues {
		jobs.Add(1) // the loop itself: what it claims is waited for
		loops.Go(func() { j.serve(ctx, work, &jobs, queue, n) })
	}
	beat, quiet := context.WithCancel(work)
	defer quiet()
	loops.Go(func() { j.heartbeat(beat) })

	<-ctx.Done()
	done := make(chan struct{})
	go func() { jobs.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(j.c.Drain):
		stop(ErrStopping)
		<-done
	}
	quiet()
	loops.Wait()
	return nil
}

// serve keeps up to n jobs of the queue running.
func (j *Jobs) serve(ctx, work context.Context, jobs *sync.WaitGroup, queue string, n int) {
	wake, unlisten := j.c.DB.Listen(topic(queue))
	defer unlisten()
	slots := make(chan struct{}, n)
	poll := time.NewTicker(j.c.Poll)
	defer poll.Stop()
	defer jobs.Done()
	for {
		select { // a free slot first, then a job for it
		case <-ctx.Done():
			return
		case slots <- struct{}{}:
		}
		c, err := j.claim(ctx, queue)
		if err != nil && ctx.Err() == nil {
			j.c.Log.ErrorContext(ctx, "job not claimed", "queue", queue, "err", err)
		}
		if c == nil {
			<-slots
			select {
			case <-ctx.Done():
				return
			case <-wake:
			case <-poll.C:
			}
			continue
		}
		jobs.Go(func() {
			defer func() { <-slots }()
			j.do(work, c)
		})
	}
}

// do calls the handler of one claimed job and writes how it ended.
func (j *Jobs) do(work context.Context, c *claimed) {
	ctx, cancel := context.WithCancelCause(work)
	defer cancel(nil)
	c.cancel = cancel
	j.mu.Lock()
	j.running[c.id] = c
	j.mu.Unlock()
	defer func() {
		j.mu.Lock()
		delete(j.running, c.id)
		j.mu.Unlock()
	}()

	end := j.call(ctx, c)
	if cause := context.Cause(ctx); end != nil && cause != nil {
		end = cause // whatever the handler made of it: it was canceled, taken over or stopped
	}
	var l later
	if end != nil && !errors.As(end, &l) && !errors.Is(end, ErrCanceled) && !errors.Is(end, ErrStopping) {
		j.c.Log.WarnContext(work, "job failed", "job", c.id, "kind", c.kind, "failures", c.failures+1, "err", end)
	}
	// The end is written even while stopping; if it can't be, the job is done again.
	settle, done := context.WithTimeout(context.WithoutCancel(work), 10*time.Second)
	defer done()
	if err := j.settle(settle, c, end); err != nil {
		j.c.Log.ErrorContext(work, "end of job not written", "job", c.id, "kind", c.kind, "err", err)
	}
}

func (j *Jobs) call(ctx context.Context, c *claimed) (err error) {
	h, ok := j.handlers[c.kind]
	if !ok {
		return fmt.Errorf("no handler for jobs of kind %q", c.kind)
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	if c.failures >= h.policy.Attempts {
		why := fmt.Errorf("%w after %d attempts", errGivenUp, c.failures)
		if h.policy.GivenUp != nil {
			if err := h.policy.GivenUp(ctx, c.args, why); err != nil {
				return err
			}
		}
		return why
	}
	ctx, cancel := context.WithTimeout(ctx, h.policy.Timeout)
	defer cancel()
	return h.call(ctx, c)
}

// heartbeat renews leases, notices cancellations and rescues what dead nodes held.
func (j *Jobs) heartbeat(ctx context.Context) {
	wake, unlisten := j.c.DB.Listen(topicCancel)
	defer unlisten()
	tick := time.NewTicker(j.c.Lease / 3)
	defer tick.Stop()
	for {
		rescue := false
		select {
		case <-ctx.Done():
			return
		case <-wake:
		case <-tick.C:
			rescue = !j.c.DB.Single()
		}
		if err := j.renew(ctx); err != nil && ctx.Err() == nil {
			j.c.Log.ErrorContext(ctx, "job leases not renewed", "err", err)
		}
		if rescue {
			if err := j.rescue(ctx, false); err != nil && ctx.Err() == nil {
				j.c.Log.ErrorContext(ctx, "jobs of dead nodes not rescued", "err", err)
			}
		}
	}
}
