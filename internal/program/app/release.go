package app

import (
	"context"
	"time"

	"slipway/internal/platform/id"
	"slipway/internal/program/applog"
	"slipway/internal/program/task"

	"slipway/internal/build/framework"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
)

// releaseTime limits a release command.
const releaseTime = 15 * time.Minute

// Release runs the release command of a deployment to its end, before the deployment goes live; a fault
// says why it failed. line hears what it prints.
func (a *Apps) Release(ctx context.Context, deployment id.Deployment, c framework.Command, line func(stream, text string)) error {
	exit, err := a.Execute(ctx, Execution{
		Deployment: deployment,
		Command:    task.Command(c),
		Process:    "release",
		Timeout:    releaseTime,
		Output:     line,
	})
	if err != nil {
		return err
	}
	if exit.Code != 0 || exit.OutOfMemory {
		f := fault.New(fault.Invalid, "release_failed", "The release command failed: "+exit.Reason,
			"the deployment does not go live; see its log")
		if exit.OutOfMemory {
			f.Details = "raise the site's memory limit, or let the command use less"
		}
		return f
	}
	return nil
}

// lastLines is how many lines of a program show why it did not start.
const lastLines = 30

// LastLines returns the last lines that a deployment's program printed.
func (a *Apps) LastLines(ctx context.Context, site id.Site, deployment id.Deployment) []string {
	lines, err := a.Logs(ctx, site, applog.Filter{Deployment: deployment, Limit: lastLines, Flush: true})
	if err != nil {
		a.c.Log.WarnContext(ctx, "application log not read", "site", site, "err", err)
		return nil
	}
	out := make([]string, 0, len(lines))
	for _, l := range lines {
		if l.Stream != "system" {
			out = append(out, l.Message)
		}
	}
	return out
}

// FatalErrors returns up to ten fatal errors of PHP in a site's log since then.
func (a *Apps) FatalErrors(ctx context.Context, site id.Site, since db.Time) []string {
	lines, err := a.Logs(ctx, site, applog.Filter{Since: since, Search: "PHP Fatal error", Limit: 10, Flush: true})
	if err != nil {
		a.c.Log.WarnContext(ctx, "application log not read", "site", site, "err", err)
	}
	var out []string
	for _, l := range lines {
		out = append(out, l.Message)
	}
	return out
}
