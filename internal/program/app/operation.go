package app

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/id"
	"slipway/internal/platform/job"
	"slipway/internal/program/runtime"
	"slipway/internal/program/task"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/operation"
)

// RestartTx opens the operation that restarts a site's program without a dropped request. The caller knows that the site is the owner's.
func (a *Apps) RestartTx(
	ctx context.Context, tx *db.Tx, owner account.OwnerID, site id.Site, deployment id.Deployment,
) (operation.Operation, error) {
	op, err := a.c.Operations.OpenTx(ctx, tx, owner, operation.NewOperation{
		Kind:   "site.restart",
		Site:   site,
		Unique: "site.restart/" + string(site),
	})
	if err != nil {
		return op, err
	}
	_, err = job.Enqueue(ctx, tx, RestartSite{
		Operation:  op.ID,
		Deployment: deployment,
		Site:       site,
	}, job.Options{Unique: "restart/" + string(op.ID), Share: string(owner)})
	return op, err
}

// RestartSite is the job that does such an operation. It may run twice: a second restart does no harm.
type RestartSite struct {
	Operation  operation.ID
	Deployment id.Deployment
	Site       id.Site
}

// Kind names the job.
func (RestartSite) Kind() string { return "app.restart" }

// Work registers the jobs of programs.
func (a *Apps) Work(j *job.Jobs) {
	job.Handle(j, job.Policy{Timeout: 15 * time.Minute, GivenUp: a.restartGivenUp}, a.restart)
	job.Handle(j, job.Policy{Timeout: cronTime + 5*time.Minute}, a.runCron)
	job.Handle(j, job.Policy{Timeout: MaxCommandTime + 5*time.Minute, GivenUp: a.restartGivenUp}, a.runCommand)
}

// advance says in an operation what is being done.
func (a *Apps) advance(ctx context.Context, op operation.ID, message string) error {
	return a.c.DB.Write(ctx, func(tx *db.Tx) error { return a.c.Operations.AdvanceTx(ctx, tx, op, -1, "", message) })
}

func (a *Apps) restart(ctx context.Context, r RestartSite, _ int64) error {
	message, failure := "Restarted", ""
	end := func() error {
		return a.c.DB.Write(ctx, func(tx *db.Tx) error { return a.c.Operations.EndTx(ctx, tx, r.Operation, message, failure, nil) })
	}
	if err := a.Here(ctx, r.Site); fault.As(err) != nil {
		message, failure = "", fault.As(err).Message
		return end()
	} else if err != nil {
		return err
	}
	if err := a.advance(ctx, r.Operation, "Restarting"); err != nil {
		return err
	}
	if a.Status(r.Deployment).State == Sleeping { // it runs here, or nowhere
		message = "The application is asleep: the next request starts it with the current settings"
	}
	if err := a.Restart(ctx, r.Deployment); err != nil {
		f := fault.As(err)
		if f == nil {
			return err
		}
		if message, failure = "", f.Message; f.Details != "" {
			failure += ": " + f.Details
		}
	}
	return end()
}

// How long a one-off command may take, unless told, and at most.
const (
	CommandTime    = 10 * time.Minute
	MaxCommandTime = time.Hour
)

// RunTx opens the operation that runs a command of a site's deployment once. A site has one at a time. The caller knows that the site is
// the owner's. The command ends when the user loses the right to run it, unless a service key asks.
func (a *Apps) RunTx(
	ctx context.Context, tx *db.Tx, by account.Caller, site id.Site, deployment id.Deployment, c task.Command, timeout time.Duration,
) (operation.Operation, error) {
	r := RunCommand{Site: site, Deployment: deployment, Command: c, Timeout: timeout}
	if !by.Service {
		r.User, r.Owner = by.User, by.Owner
	}
	return a.openTx(ctx, tx, by.Owner, r)
}

// openTx opens the operation of a command that is run on request.
func (a *Apps) openTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, r RunCommand) (operation.Operation, error) {
	op, err := a.c.Operations.OpenTx(ctx, tx, owner, operation.NewOperation{
		Kind:   "site.command",
		Site:   r.Site,
		Unique: "site.command/" + string(r.Site),
	})
	if err != nil {
		return op, err
	}
	r.Operation, r.Payer = op.ID, owner
	if r.Lane, err = job.FreestTx(ctx, tx, lanes(owner)); err != nil {
		return op, err
	}
	_, err = job.Enqueue(ctx, tx, r, job.Options{
		Queue:  CommandQueue,
		Unique: "command/" + string(op.ID),
		Share:  string(owner),
		Group:  r.Lane,
	})
	return op, err
}

// RunCommand is the job that runs a one-off command. One that a crash interrupted is not repeated: nobody knows what it has done already.
type RunCommand struct {
	Operation  operation.ID
	Site       id.Site
	Deployment id.Deployment
	Command    task.Command
	Timeout    time.Duration
	Cron       string // the scheduled command that it is; empty for any other

	User  account.UserID // who must still have the right to it; empty: it runs for the owner
	Owner account.OwnerID

	Payer account.OwnerID // who owns the site
	Lane  string          // its group
}

// Kind names the job.
func (RunCommand) Kind() string { return "app.command" }

// CommandResult is the result of such an operation.
type CommandResult struct {
	ExitCode int    `json:"exitCode"`
	Reason   string `json:"reason"` // in words
	Output   string `json:"output"` // the last 64 KiB, without secrets; the site's log has all
}

// CommandProcess is the name in a site's log of a command that was run on request.
const CommandProcess = "command"

func (a *Apps) runCommand(ctx context.Context, r RunCommand, attempt int64) error {
	defer a.leaveLane(ctx, r.Payer, r.Lane)
	end := func(message, failure string, result any) error {
		ctx, done := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer done()
		return a.c.DB.Write(ctx, func(tx *db.Tx) error { return a.c.Operations.EndTx(ctx, tx, r.Operation, message, failure, result) })
	}
	if err := a.Here(ctx, r.Site); fault.As(err) != nil {
		return end("", fault.As(err).Message, nil)
	} else if err != nil {
		return err
	}
	began := false
	err := a.c.DB.Write(ctx, func(tx *db.Tx) error {
		op, err := a.c.Operations.GetTx(ctx, tx, r.Operation)
		if err != nil {
			return err
		}
		if began = attempt > 1 && op.Status == operation.Running; began {
			return nil
		}
		return a.c.Operations.AdvanceTx(ctx, tx, r.Operation, -1, "", "Running")
	})
	if err != nil {
		return err
	}
	if began {
		return end("", "The command was interrupted by a restart of the server and was not repeated", nil)
	}
	running, done := task.WhileAllowed(ctx, a.c.DB, r.User, r.Owner, r.Site)
	defer done()
	var tail task.Tail
	x := Execution{Deployment: r.Deployment, Command: r.Command, Process: CommandProcess, Timeout: r.Timeout, Output: tail.Add}
	var exit runtime.Exit
	switch {
	case running.Err() != nil:
		err = context.Cause(running)
	case r.Cron != "":
		x.Process = "cron:" + r.Cron
		exit, err = a.executeCron(running, r.Site, r.Cron, x)
	default:
		exit, err = a.Execute(running, x)
	}
	if err != nil && running.Err() != nil && ctx.Err() == nil {
		err = context.Cause(running)
	}
	a.logs.Flush(context.WithoutCancel(ctx))
	result := CommandResult{exit.Code, exit.Reason, tail.Get()}
	switch f := fault.As(err); {
	case f != nil:
		return end("", f.Message, result)
	case err != nil && ctx.Err() != nil:
		return end("", "The command was interrupted by a restart of the server and was not repeated", result)
	case err != nil:
		a.c.Log.ErrorContext(ctx, "command not run", "site", r.Site, "err", err)
		return end("", "The command could not be started", nil)
	case exit.Code != 0 || exit.OutOfMemory:
		return end("", "The command failed: "+exit.Reason, result)
	}
	return end("The command succeeded", "", result)
}

func (a *Apps) restartGivenUp(ctx context.Context, args []byte, _ error) error {
	var r struct{ Operation operation.ID } // of each job that has one
	if err := json.Unmarshal(args, &r); err != nil {
		return fmt.Errorf("read job arguments: %w", err)
	}
	return a.c.DB.Write(ctx, func(tx *db.Tx) error {
		return a.c.Operations.EndTx(ctx, tx, r.Operation, "", "Internal error; the operator's log has the details", nil)
	})
}
