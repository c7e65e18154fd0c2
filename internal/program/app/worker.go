package app

import (
	"context"
	"fmt"
	"sync"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
)

// How long a node holds a worker that it does not renew, and how often it does.
const (
	workerLease = 30 * time.Second
	renewEvery  = 10 * time.Second
)

// workers are the background processes that run here.
type workers struct {
	mu sync.Mutex // guards running
	// share: total the background processes; owner those of its sites, which count as instances; edge as for instances
	running map[string]*workerRun
}

// workerRun keeps one worker running until it is stopped.
type workerRun struct {
	task declared
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

// keepWorkers starts what should run here and ends what should not. A worker runs on one
// node, the one that holds its lease.
func (a *Apps) keepWorkers(ctx context.Context) error {
	if a.c.Engine == nil {
		return nil
	}
	list, err := a.tasks(ctx, a.c.DB, worker, `ORDER BY t.site_id, t.name`)
	if err != nil {
		return err
	}
	wanted := map[string]declared{}
	for _, t := range list {
		if held, err := a.hold(ctx, t); err != nil {
			return err
		} else if held {
			wanted[t.key()] = t
		}
	}
	a.workers.mu.Lock()
	defer a.workers.mu.Unlock()
	if a.workers.running == nil {
		a.workers.running = map[string]*workerRun{}
	}
	for key, w := range a.workers.running {
		if t, ok := wanted[key]; !ok || t.deployment != w.task.deployment {
			w.stop()
		}
		select {
		case <-w.done: // it was stopped, however much it is wanted again by now
			delete(a.workers.running, key)
			if _, ok := wanted[key]; ok {
				continue
			}
			if err := a.letGo(ctx, w.task); err != nil {
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
		go func() {
			defer close(w.done)
			defer stop()
			a.runWorker(life, w)
		}()
	}
	return nil
}

// hold takes or renews the lease of a worker. There is nobody else where the database
// serves one node.
func (a *Apps) hold(ctx context.Context, t declared) (bool, error) {
	if a.c.DB.Single() {
		return true, nil
	}
	switch err := a.c.Places.Take(ctx, string(t.site), false); {
	case fault.As(err) != nil: // another node has the site, or will
		return false, nil
	case err != nil:
		return false, err
	}
	now, held := a.c.DB.Now(), false
	err := a.c.DB.Write(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, `
			UPDATE app_tasks SET node = $3, lease_until = $4
			WHERE site_id = $1 AND kind = 'worker' AND name = $2 AND (node = $3 OR lease_until < $5 OR EXISTS (SELECT 1 FROM live_nodes n WHERE n.id = app_tasks.node AND n.lease_until < $5))`,
			t.site, t.name, a.node, now.Add(workerLease), now)
		held = n == 1
		return err
	})
	if err != nil {
		return false, fmt.Errorf("hold worker %s: %w", t.key(), err)
	}
	return held, nil
}

// letGo ends the lease of a worker that has ended, so that another node need not wait for it.
func (a *Apps) letGo(ctx context.Context, t declared) error {
	if a.c.DB.Single() {
		return nil
	}
	err := a.c.DB.Write(ctx, func(tx *db.Tx) error {
		tx.Notify(taskTopic)
		_, err := tx.Exec(ctx, `UPDATE app_tasks SET lease_until = 0 WHERE site_id = $1 AND kind = 'worker' AND name = $2 AND node = $3`,
			t.site, t.name, a.node)
		return err
	})
	if err != nil {
		return fmt.Errorf("let go of worker %s: %w", t.key(), err)
	}
	return nil
}

// runWorker starts the worker again whenever it ends, later and later.
func (a *Apps) runWorker(ctx context.Context, w *workerRun) {
	t, failures := w.task, 0
	process := "worker:" + t.name
	for ctx.Err() == nil {
		w.set(Starting, "")
		begun := time.Now()
		running, done, err := a.begin(ctx, Execution{Deployment: t.deployment, Command: t.command, Process: process})
		why := ""
		if err != nil {
			why = reasonOf(err)
			if ctx.Err() == nil {
				a.c.Log.Warn("worker not started", "site", t.site, "worker", t.name, "err", err)
			}
		} else {
			w.set(Running, "")
			select {
			case <-running.Done():
			case <-ctx.Done():
				running.Stop(stopGrace)
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
		wait := min(lastRetry, firstRetry<<min(failures-1, 6))
		a.logs.Note(t.site, t.deployment, process, fmt.Sprintf("%s; started again in %s", why, wait))
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

// runTasks declares, schedules and keeps running what stands beside programs, until ctx
// ends.
func (a *Apps) runTasks(ctx context.Context) {
	live, unlisten := a.c.DB.Listen("live")
	defer unlisten()
	written, unheard := a.c.DB.Listen(taskTopic)
	defer unheard()
	defer a.closeWorkers()
	tick := time.NewTicker(a.c.Tick)
	defer tick.Stop()
	var kept, declaredAt time.Time
	for changed := true; ; {
		err := error(nil)
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
