package app

import (
	"context"
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

// CommandQueue is the queue of commands: one owner's take turns with the others'.
const CommandQueue = "commands"

// perOwner is how many commands of one owner run at once, scheduled ones and others.
const perOwner = 2

// cronTime limits a scheduled command.
const cronTime = time.Hour

// lateCron is how long after its time a scheduled command is still begun: after an hour without the service it is not made up for.
const lateCron = 10 * time.Minute

// schedule enqueues what is due. Of several nodes that look at once one moves the next time on, in the transaction that enqueues the run.
func (a *Apps) schedule(ctx context.Context) error {
	now := db.Now()
	due, err := a.tasks.Due(ctx, now)
	if err != nil {
		return err
	}
	for _, t := range due {
		if err := a.enqueue(ctx, t, now); err != nil {
			return fmt.Errorf("schedule %s of %s: %w", t.Name, t.Site, err)
		}
	}
	return nil
}

func (a *Apps) enqueue(ctx context.Context, t task.Declared, now db.Time) error {
	skipped := false
	err := a.c.DB.Write(ctx, func(tx *db.Tx) error {
		mine, err := a.tasks.MoveOnTx(ctx, tx, t, now)
		if err != nil || !mine || now.Sub(t.Next) > lateCron {
			return err // another node was quicker, or it is too late
		}
		lane, err := job.FreestTx(ctx, tx, lanes(t.Owner))
		if err != nil {
			return err
		}
		fresh, err := job.Enqueue(ctx, tx, RunCron{
			Site:       t.Site,
			Deployment: t.Deployment,
			Name:       t.Name,
			Command:    t.Command,
			Queued:     tx.Now(),
			Owner:      t.Owner,
			Lane:       lane,
		}, job.Options{
			Queue:  CommandQueue,
			Unique: "cron/" + t.Key(), Share: string(t.Owner), Group: lane,
		})
		skipped = !fresh
		return err
	})
	if err == nil && skipped {
		why := "Skipped: the run before has not ended yet"
		if t.Last == 0 || t.LastExit >= 0 {
			why = fmt.Sprintf("Skipped: the run before still waits for other commands of the account, of which %d run at a time", perOwner)
		}
		a.logs.Note(t.Site, t.Deployment, "cron:"+t.Name, why)
	}
	return err
}

// lanes are the groups of an owner's commands: as many as may run at once. A command joins the freest.
func lanes(owner account.OwnerID) (list []string) {
	for i := range perOwner {
		list = append(list, fmt.Sprintf("command/%s/%d", owner, i))
	}
	return list
}

// leaveLane lets a command that waits behind another one take the place of one that ends. lane is empty where a version enqueued it
// that didn't say.
func (a *Apps) leaveLane(ctx context.Context, owner account.OwnerID, lane string) {
	if lane == "" {
		return
	}
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer done()
	err := a.c.DB.Write(ctx, func(tx *db.Tx) error { return job.RelieveTx(ctx, tx, CommandQueue, lane, lanes(owner)) })
	if err != nil {
		a.c.Log.WarnContext(ctx, "commands that wait not moved", "owner", owner, "err", err)
	}
}

// RunCron is the job that runs a scheduled command once. A run that a crash interrupted is not repeated: its next time comes.
type RunCron struct {
	Site       id.Site
	Deployment id.Deployment
	Name       string
	Command    task.Command
	Queued     db.Time // 0: by a version that didn't say
	Owner      account.OwnerID
	Lane       string // its group
}

// Kind names the job.
func (RunCron) Kind() string { return "app.cron" }

func (a *Apps) runCron(ctx context.Context, r RunCron, attempt int64) error {
	process := "cron:" + r.Name
	defer a.leaveLane(ctx, r.Owner, r.Lane)
	if err := a.Here(ctx, r.Site); fault.As(err) != nil {
		a.logs.Note(r.Site, r.Deployment, process, "Skipped: "+fault.As(err).Message)
		return nil
	} else if err != nil {
		return err
	}
	if attempt > 1 {
		began, err := a.tasks.Last(ctx, r.Site, r.Name)
		if err != nil {
			return err
		}
		said := "Interrupted by a restart of the server, and not repeated"
		if began == 0 || began < r.Queued {
			said = "Missed: the server ended before the command began"
		}
		a.logs.Note(r.Site, r.Deployment, process, said)
		return nil
	}
	begun := time.Now()
	a.logs.Note(r.Site, r.Deployment, process, "Started: "+r.Command.String())
	exit, err := a.executeCron(ctx, r.Site, r.Name, Execution{
		Deployment: r.Deployment,
		Command:    r.Command,
		Process:    process,
		Timeout:    cronTime,
	})
	switch f := fault.As(err); {
	case f != nil:
		a.logs.Note(r.Site, r.Deployment, process, f.Message)
		a.alerts.Cron(ctx, r.Site, r.Deployment, r.Name, f.Message)
	case err != nil && ctx.Err() != nil:
		a.logs.Note(r.Site, r.Deployment, process, "Interrupted by a restart of the server, and not repeated")
	case err != nil:
		a.c.Log.ErrorContext(ctx, "scheduled command not run", "site", r.Site, "err", err)
		a.logs.Note(r.Site, r.Deployment, process, "The command could not be started")
		a.alerts.Cron(ctx, r.Site, r.Deployment, r.Name, "The command could not be started")
	default:
		how := fmt.Sprintf("Ended with %s after %s", exit.Reason, time.Since(begun).Round(10*time.Millisecond))
		a.logs.Note(r.Site, r.Deployment, process, how)
		if exit.Code != 0 || exit.OutOfMemory {
			a.alerts.Cron(ctx, r.Site, r.Deployment, r.Name, "Ended with "+exit.Reason)
		}
	}
	return nil
}

// executeCron executes a scheduled command and writes when it began and how it ended.
func (a *Apps) executeCron(ctx context.Context, site id.Site, name string, x Execution) (runtime.Exit, error) {
	if err := a.tasks.Ran(ctx, site, name, a.c.DB.Now(), -1); err != nil {
		return runtime.Exit{}, fmt.Errorf("note start of scheduled command: %w", err)
	}
	exit, err := a.Execute(ctx, x)
	if err == nil {
		if err := a.tasks.Ran(context.WithoutCancel(ctx), site, name, 0, exit.Code); err != nil {
			a.c.Log.WarnContext(ctx, "end of a scheduled command not written", "site", site, "err", err)
		}
	}
	return exit, err
}

// RunCronTx opens the operation that runs a scheduled command of a site now, beside its
// schedule. The caller knows that the site is the owner's.
func (a *Apps) RunCronTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, site id.Site, name string) (operation.Operation, error) {
	t, err := a.tasks.CronTx(ctx, tx, site, name)
	if err != nil {
		return operation.Operation{}, err
	}
	return a.openTx(ctx, tx, owner, RunCommand{
		Site:       site,
		Deployment: t.Deployment,
		Command:    t.Command,
		Timeout:    cronTime,
		Cron:       name,
	})
}
