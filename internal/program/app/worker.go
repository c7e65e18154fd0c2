package app

import (
	"context"
	"fmt"
	"sync"
	"time"

	"slipway/internal/platform/id"
	"slipway/internal/platform/panics"
	"slipway/internal/program/runtime"
	"slipway/internal/program/task"
)

// renewEvery is how often the lease of a worker is renewed.
const renewEvery = 10 * time.Second

// workers are the background processes that run here.
type workers struct {
	mu sync.Mutex // guards running
	// share: total the background processes; owner those of its sites, which count as instances; edge as for instances
	running map[string]*workerRun
}

// workerRun keeps one worker running until it is stopped.
type workerRun struct {
	task task.Declared
	stop context.CancelFunc
	done chan struct{}

	mu       sync.Mutex // guards what follows
	state    State
	message  string
	restarts int
}

func (w *workerRun) set(s State, message string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.state, w.message = s, message
}

// keepWorkers starts what should run here and ends what should not. A worker runs on one node, the one that holds its lease.
func (a *Apps) keepWorkers(ctx context.Context) error {
	if a.c.Engine == nil {
		return nil
	}
	list, err := a.tasks.Workers(ctx)
	if err != nil {
		return err
	}
	wanted := map[string]task.Declared{}
	for _, t := range list {
		if held, err := a.tasks.Hold(ctx, t); err != nil {
			return err
		} else if held {
			wanted[t.Key()] = t
		}
	}
	a.workers.mu.Lock()
	defer a.workers.mu.Unlock()
	if a.workers.running == nil {
		a.workers.running = map[string]*workerRun{}
	}
	for key, w := range a.workers.running {
		if t, ok := wanted[key]; !ok || t.Deployment != w.task.Deployment {
			w.stop()
		}
		select {
		case <-w.done: // it was stopped, however much it is wanted again by now
			delete(a.workers.running, key)
			if _, ok := wanted[key]; ok {
				continue
			}
			if err := a.tasks.LetGo(ctx, w.task); err != nil {
				return err
			}
		default: // the next look starts its successor: they never run side by side
		}
	}
	for _, key := range sortedKeys(wanted) {
		if a.workers.running[key] != nil || ctx.Err() != nil {
			continue
		}
		life, stop := context.WithCancel(context.WithoutCancel(ctx))
		w := &workerRun{task: wanted[key], stop: stop, done: make(chan struct{}), state: Starting}
		a.workers.running[key] = w
		panics.Go(func() {
			defer close(w.done)
			defer stop()
			a.runWorker(life, w)
		})
	}
	return nil
}

// runWorker starts the worker again whenever it ends, later and later.
func (a *Apps) runWorker(ctx context.Context, w *workerRun) {
	t, failures := w.task, 0
	process := "worker:" + t.Name
	for ctx.Err() == nil {
		w.set(Starting, "")
		begun := time.Now()
		running, done, err := a.begin(ctx, Execution{Deployment: t.Deployment, Command: t.Command, Process: process})
		why := ""
		if err != nil {
			why = reasonOf(err)
			if ctx.Err() == nil {
				a.c.Log.Warn("worker not started", "site", t.Site, "worker", t.Name, "err", err)
			}
		} else {
			w.set(Running, "")
			select {
			case <-running.Done():
			case <-ctx.Done():
				a.stopWorker(running, t.Deployment)
			}
			why = "The process exited: " + running.Exit().Reason
			done()
		}
		if ctx.Err() != nil {
			return
		}
		if failures++; time.Since(begun) > healthyTime {
			failures = 1
		}
		if failures == crashLoop {
			a.alerts.Worker(ctx, t.Site, t.Deployment, t.Name, failures, why)
		}
		wait := min(lastRetry, firstRetry<<min(failures-1, 6))
		a.logs.Note(t.Site, t.Deployment, process, fmt.Sprintf("%s; started again in %s", why, wait))
		w.set(Crashed, why)
		w.mu.Lock()
		w.restarts++
		w.mu.Unlock()
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
}

// stopWorker asks a worker to end, and gives it the time that its site's settings say for that. While the service stops it has
// no longer than a program.
func (a *Apps) stopWorker(running runtime.Program, deployment id.Deployment) {
	ctx, cancel := context.WithTimeout(context.Background(), settleTime)
	defer cancel()
	grace := stopGrace
	if want, err := a.c.Launch.Wanted(ctx, deployment); err == nil {
		grace = want.Drain
	}
	ended := make(chan struct{})
	defer close(ended)
	a.work.Go(func() {
		select {
		case <-a.down:
			running.Stop(min(grace, stopGrace))
		case <-ended:
		}
	})
	running.Stop(grace)
}

// closeWorkers ends all workers and returns when they are gone.
func (a *Apps) closeWorkers() {
	a.workers.mu.Lock()
	defer a.workers.mu.Unlock()
	for _, w := range a.workers.running {
		w.stop()
	}
	for _, w := range a.workers.running {
		<-w.done
	}
}

// workerState says how a worker is, wherever it runs.
func (a *Apps) workerState(key string) (State, string, int) {
	a.workers.mu.Lock()
	w := a.workers.running[key]
	a.workers.mu.Unlock()
	if w == nil {
		if p, ok := a.elsewhere(workerKey(key)); ok {
			return p.State, p.Message, p.Restarts
		}
		return Stopped, "", 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state, w.message, w.restarts
}

// runTasks declares, schedules and keeps running what stands beside programs, until ctx ends.
func (a *Apps) runTasks(ctx context.Context) {
	live, unlisten := a.c.DB.Listen("live")
	defer unlisten()
	written, unheard := a.c.DB.Listen(task.Topic)
	defer unheard()
	defer a.closeWorkers()
	tick := time.NewTicker(a.c.Tick)
	defer tick.Stop()
	var kept, declaredAt time.Time
	for changed := true; ; {
		err := panics.Call(func() (err error) {
			if now := time.Now(); changed || now.Sub(declaredAt) > askEvery {
				declaredAt = now
				err = a.declare(ctx)
			}
			if err == nil && a.c.Engine != nil {
				err = a.schedule(ctx)
			}
			if now := time.Now(); err == nil && (changed || a.workersMoving() || now.Sub(kept) > renewEvery) {
				kept = now
				err = a.keepWorkers(ctx)
			}
			return err
		})
		if changed = err != nil; err != nil && ctx.Err() == nil {
			a.c.Log.WarnContext(ctx, "background processes not reconciled, will be retried", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-live:
			changed = true
		case <-written:
			changed = true
		case <-tick.C:
		}
	}
}

// workersMoving reports whether a worker has ended whose successor waits for it.
func (a *Apps) workersMoving() bool {
	a.workers.mu.Lock()
	defer a.workers.mu.Unlock()
	for _, w := range a.workers.running {
		select {
		case <-w.done:
			return true
		default:
		}
	}
	return false
}
