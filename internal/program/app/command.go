package app

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/id"
	"slipway/internal/platform/job"
	"slipway/internal/platform/node"
	"slipway/internal/program/placement"
	"slipway/internal/program/relay"
	"slipway/internal/program/runtime"
	"slipway/internal/program/task"
)

// Execution says what to execute for whom.
type Execution struct {
	Deployment id.Deployment
	Command    task.Command
	Process    string        // what the site's log calls it
	Timeout    time.Duration // after which it is ended
	// Output hears each line that it prints, beside the site's log, without secrets. Optional.
	Output func(stream, line string)
	// Terminal is its input and output instead, as it is: the log hears nothing of it, and secrets are not hidden from who types. Optional.
	Terminal *runtime.Terminal
}

// Execute runs a command of a deployment to its end and returns how it ended; one that has a terminal where the site runs. The error is
// a fault where it could not be started, took longer than it may, or ctx ended.
func (a *Apps) Execute(ctx context.Context, x Execution) (runtime.Exit, error) {
	var away *placement.Away
	if x.Terminal != nil && a.c.Relay != nil && errors.As(a.look(ctx, x.Deployment), &away) && away.State != node.Down && away.Address != "" {
		shell := relay.Shell{Deployment: x.Deployment, Command: x.Command, Process: x.Process, Timeout: x.Timeout}
		return a.c.Relay.Shell(ctx, away.Address, shell, x.Terminal)
	}
	return a.execute(ctx, x)
}

// Shell is Execute here, for another node.
func (a *Apps) Shell(ctx context.Context, x relay.Shell, t *runtime.Terminal) (runtime.Exit, error) {
	return a.execute(ctx, Execution{Deployment: x.Deployment, Command: x.Command, Process: x.Process, Timeout: x.Timeout, Terminal: t})
}

func (a *Apps) execute(ctx context.Context, x Execution) (runtime.Exit, error) {
	running, done, err := a.begin(ctx, x)
	if err != nil {
		return runtime.Exit{}, err
	}
	defer done()
	late := time.NewTimer(x.Timeout)
	defer late.Stop()
	select {
	case <-running.Done():
		return running.Exit(), nil
	case <-late.C:
		err = &fault.Error{
			Kind: fault.Invalid, Message: fmt.Sprintf("The command did not end within %s and was ended", x.Timeout), Code: "command_timeout",
		}
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-a.down:
		err = errClosing
	}
	running.Stop(stopGrace)
	return running.Exit(), err
}

// codeClosing is the code of errClosing, which other nodes are told.
const codeClosing = "draining"

// errClosing is the answer while the service stops. A job that ends with it is done again after the next start.
var errClosing = fmt.Errorf("%w: %w", &fault.Error{
	Kind: fault.Unavailable, Message: "The server is restarting", Code: codeClosing, RetryAfter: time.Second,
}, job.ErrStopping)

// begin starts what x says, but for its Timeout. done is to be called once it has ended. What
// had to wait, as for a restore, starts with what its site stands on by then.
func (a *Apps) begin(ctx context.Context, x Execution) (running runtime.Program, done func(), err error) {
	for {
		var wait chan struct{} // for an exchange of what the site stands on
		if running, done, wait, err = a.tryBegin(ctx, x); !errors.Is(err, runtime.ErrHeld) {
			return running, done, err
		}
		if wait == nil {
			continue
		}
		select {
		case <-wait:
		case <-a.down:
			return nil, nil, errClosing
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		}
	}
}

func (a *Apps) tryBegin(ctx context.Context, x Execution) (running runtime.Program, done func(), wait chan struct{}, err error) {
	a.mu.Lock()
	closing := a.closing
	if !closing {
		a.work.Add(1)
	}
	a.mu.Unlock()
	if closing {
		return nil, nil, nil, errClosing
	}
	defer func() {
		if err != nil {
			a.work.Done()
		}
	}()
	if err := a.look(ctx, x.Deployment); err != nil {
		return nil, nil, nil, err
	}
	want, err := a.c.Launch.Wanted(ctx, x.Deployment)
	if err != nil {
		return nil, nil, nil, err
	}
	if a.c.Engine == nil {
		return nil, nil, nil, a.noEngine()
	}
	if err := a.claim(ctx, want); err != nil {
		return nil, nil, nil, err
	}
	if err := a.boundStorage(ctx, &want); err != nil {
		return nil, nil, nil, err
	}
	ended := func() {}
	if x.Terminal == nil { // which may stay open for hours
		if ended, wait = a.quiet.run(want.Site); wait != nil {
			return nil, nil, wait, runtime.ErrHeld
		}
		defer func() {
			if err != nil {
				ended()
			}
		}()
	}
	left, err := a.enter(ctx, want.Owner)
	if err != nil {
		return nil, nil, nil, err
	}
	a.logs.Owned(want.Site, want.Owner)
	want.Spec.ID, want.Spec.Fresh = db.NewID("run"), true
	want.Spec.Argv, want.Spec.Shell, want.Spec.Dir, want.Spec.Terminal = x.Command.Argv, x.Command.Shell, x.Command.Dir, x.Terminal
	var off atomic.Bool // what it prints after its end belongs to nobody
	want.Spec.Output = func(stream, line string) {
		if want.Secrets != nil {
			line = want.Secrets.Redact(line)
		}
		a.logs.Add(want.Site, x.Deployment, x.Process, stream, line)
		if x.Output != nil && !off.Load() {
			x.Output(stream, line)
		}
	}
	if p, err := a.program(x.Deployment); err == nil {
		want.Spec.Losses = losses{p, want}
	}
	start, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	if running, err = a.c.Engine.Start(start, want.Spec); err != nil {
		left()
		return nil, nil, nil, err
	}
	stored := a.storage.Begin(want.Site)
	return running, func() { off.Store(true); ended(); stored(); left(); a.work.Done() }, nil, nil
}

func (a *Apps) noEngine() error {
	return fault.New(fault.Unavailable, "no_runtime", "Applications can't run on this server", a.c.Why)
}
