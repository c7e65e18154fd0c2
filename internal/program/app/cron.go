package app

import (
	"context"
	"fmt"
	"time"

	"slipway/internal/platform/id"

	"slipway/internal/platform/cron"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/job"
	"slipway/internal/program/runtime"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/operation"
)

// CommandQueue is the queue of commands: one owner's take turns with the others'.
const CommandQueue = "commands"

// perOwner is how many commands of one owner run at once, scheduled ones and others.
const perOwner = 2

// cronTime limits a scheduled command.
const cronTime = time.Hour

// lateCron is how long after its time a scheduled command is still begun: after an hour
// without the service it is not made up for.
const lateCron = 10 * time.Minute

// schedule enqueues what is due. Of several nodes that look at once one moves the next
// time on, in the transaction that enqueues the run.
func (a *Apps) schedule(ctx context.Context) error {
	now := db.Now()
	due, err := a.tasks(ctx, a.c.DB, cronKind, `AND t.next_at > 0 AND t.next_at <= $2 ORDER BY t.next_at LIMIT 200`, now)
	if err != nil {
		return err
	}
	for _, t := range due {
		if err := a.enqueue(ctx, t, now); err != nil {
			return fmt.Errorf("schedule %s of %s: %w", t.name, t.site, err)
		}
	}
	return nil
}

func (a *Apps) enqueue(ctx context.Context, t declared, now db.Time) error {
	s, err := cron.Parse(t.schedule)
	if err != nil {
		return err
	}
	skipped := false
	err = a.c.DB.Write(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, `UPDATE app_tasks SET next_at = $4 WHERE site_id = $1 AND kind = 'cron' AND name = $2 AND next_at = $3`,
			t.site, t.name, t.next, db.Time(s.Next(now.Time()).UnixMilli()))
		if err != nil || n == 0 || now.Sub(t.next) > lateCron {
			return err // another node was quicker, or it is too late
		}
		fresh, err := job.Enqueue(ctx, tx, RunCron{
			Site:       t.site,
			Deployment: t.deployment,
			Name:       t.name,
			Command:    t.command,
		}, job.Options{
			Queue:  CommandQueue,
			Unique: "cron/" + t.key(), Share: string(t.owner), Group: turn(t.owner, t.key()),
		})
		skipped = !fresh
		return err
	})
	if err == nil && skipped {
		a.logs.Note(t.site, t.deployment, "cron:"+t.name, "Skipped: the run before has not ended yet")
	}
	return err
}

// turn is the group of an owner's command: as many groups as may run at once.
func turn(owner account.OwnerID, key string) string {
	sum := 0
	for _, c := range []byte(key) {
		sum += int(c)
	}
	return fmt.Sprintf("command/%s/%d", owner, sum%perOwner)
}

// RunCron is the job that runs a scheduled command once. A run that a crash interrupted is
// not repeated: its next time comes.
type RunCron struct {
	Site       id.Site
	Deployment id.Deployment
	Name       string
	Command    Command
}

// Kind names the job.
func (RunCron) Kind() string { return "app.cron" }

func (a *Apps) runCron(ctx context.Context, r RunCron, attempt int64) error {
	process := "cron:" + r.Name
	if err := a.Here(ctx, r.Site); fault.As(err) != nil {
		a.logs.Note(r.Site, r.Deployment, process, "Skipped: "+fault.As(err).Message)
		return nil
	} else if err != nil {
		return err
	}
	if attempt > 1 {
		a.logs.Note(r.Site, r.Deployment, process, "Interrupted by a restart of the server, and not repeated")
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
		a.tellCron(ctx, r.Site, r.Deployment, r.Name, f.Message)
	case err != nil && ctx.Err() != nil:
		a.logs.Note(r.Site, r.Deployment, process, "Interrupted by a restart of the server, and not repeated")
	case err != nil:
		a.c.Log.ErrorContext(ctx, "scheduled command not run", "site", r.Site, "err", err)
		a.logs.Note(r.Site, r.Deployment, process, "The command could not be started")
		a.tellCron(ctx, r.Site, r.Deployment, r.Name, "The command could not be started")
	default:
		a.logs.Note(
			r.Site,
			r.Deployment,
			process,
			fmt.Sprintf("Ended with %s after %s", exit.Reason, time.Since(begun).Round(10*time.Millisecond)),
		)
		if exit.Code != 0 || exit.OutOfMemory {
			a.tellCron(ctx, r.Site, r.Deployment, r.Name, "Ended with "+exit.Reason)
		}
	}
	return nil
}

// executeCron executes a scheduled command and writes when it began and how it ended.
func (a *Apps) executeCron(ctx context.Context, site id.Site, name string, x Execution) (runtime.Exit, error) {
	if err := a.ranCron(ctx, site, name, db.Now(), -1); err != nil {
		return runtime.Exit{}, fmt.Errorf("note start of scheduled command: %w", err)
	}
	exit, err := a.Execute(ctx, x)
	if err == nil {
		if err := a.ranCron(context.WithoutCancel(ctx), site, name, 0, exit.Code); err != nil {
			a.c.Log.WarnContext(ctx, "end of a scheduled command not written", "site", site, "err", err)
		}
	}
	return exit, err
}

// ranCron writes that a scheduled command began at a moment, or how it ended where at is 0.
func (a *Apps) ranCron(ctx context.Context, site id.Site, name string, at db.Time, exit int) error {
	ctx, done := context.WithTimeout(ctx, 10*time.Second)
	defer done()
	return a.c.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(
			ctx,
			`UPDATE app_tasks SET last_exit = $3, last_at = CASE WHEN CAST($4 AS BIGINT) > 0 THEN CAST($4 AS BIGINT) ELSE last_at END WHERE site_id = $1 AND kind = 'cron' AND name = $2`,
			site, name, exit, at,
		)
		return err
	})
}

// RunCronTx opens the operation that runs a scheduled command of a site now, beside its
// schedule. The caller knows that the site is the owner's.
func (a *Apps) RunCronTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, site id.Site, name string) (operation.Operation, error) {
	list, err := a.tasks(ctx, tx, cronKind, `AND t.site_id = $2 AND t.name = $3`, string(site), name)
	if err != nil {
		return operation.Operation{}, err
	}
	if len(list) == 0 {
		return operation.Operation{}, &fault.Error{
			Kind:    fault.NotFound,
			Message: "Scheduled command not found",
			Details: "GET /sites/:id/crons lists those of the live deployment",
			Code:    "cron_not_found",
		}
	}
	return a.openTx(ctx, tx, owner, RunCommand{
		Site:       site,
		Deployment: list[0].deployment,
		Command:    list[0].command,
		Timeout:    cronTime,
		Cron:       name,
	})
}
