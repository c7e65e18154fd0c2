package server

import (
	"context"
	"strings"
	"time"

	"slipway/internal/account"
	"slipway/internal/app"
	"slipway/internal/buildlog"
	"slipway/internal/db"
	"slipway/internal/deploy"
	"slipway/internal/edge"
	"slipway/internal/fault"
	"slipway/internal/framework"
	"slipway/internal/runtime"
	"slipway/internal/site"
	"slipway/internal/wordpress"
)

// What a program gets where its site's settings say nothing.
const (
	defaultSleep   = 15 * time.Minute
	defaultHealth  = time.Minute
	defaultDrain   = 30 * time.Second
	defaultMemory  = 512
	programPids    = 512
	programScratch = 1 << 30 // bytes
	programStorage = 1 << 30
)

// wanted returns the program of a deployment, with its site's settings.
func (h *node) wanted(ctx context.Context, deployment string) (app.Wanted, error) {
	p, err := h.deployments.ProgramOf(ctx, deploy.ID(deployment))
	if err != nil {
		return app.Wanted{}, err
	}
	w := app.Wanted{
		Site: string(p.Site.ID), Owner: string(p.Site.Owner), Deployment: deployment, Host: strings.TrimPrefix(h.sites.URL(p.Site.Slug), "https://"),
		Health: defaultHealth, Sleep: defaultSleep, Drain: defaultDrain,
	}
	w.Spec = runtime.Spec{Site: w.Site, Bundle: p.Bundle, Dir: p.Start.Command.Dir, Argv: p.Start.Command.Argv, Shell: p.Start.Command.Shell, Node: p.Node, Egress: true,
		Limits: runtime.Limits{Memory: defaultMemory << 20, CPUs: 1, Pids: programPids, Disk: programScratch, Storage: programStorage}}
	if err := h.addDatabases(ctx, &w, &p); err != nil {
		return app.Wanted{}, err
	}
	if err := h.addWordPress(ctx, &w, &p); err != nil {
		return app.Wanted{}, err
	}
	applyPHP(&w, p)
	applyStorage(&w, p)
	if len(p.Secrets) > 0 {
		w.Redact = buildlog.NewRedactor(p.Secrets).Redact
	}
	for k, v := range p.Env {
		w.Spec.Env = append(w.Spec.Env, k+"="+v)
	}
	for _, x := range p.Processes {
		w.Tasks = append(w.Tasks, app.Task{Kind: "worker", Name: x.Name, Command: appCommand(x.Command)})
	}
	for _, x := range p.Crons {
		w.Tasks = append(w.Tasks, app.Task{Kind: "cron", Name: x.Name, Schedule: x.Schedule, Command: appCommand(x.Command)})
	}
	applyRun(&w, p.Run)
	applyRun(&w, p.Site.Run)
	if p.Runtime == framework.WordPress {
		if there, err := h.wordpress.Installed(ctx, p.Site.ID); err != nil || there {
			return w, err
		}
		w.HealthPath = wordpress.Alive
	}
	return w, nil
}

func appCommand(c framework.Command) app.Command {
	return app.Command{Argv: c.Argv, Shell: c.Shell, Dir: c.Dir}
}

// releaseTime limits a release command.
const releaseTime = 15 * time.Minute

// runCommand runs a deployment's release command.
func (h *node) runCommand(ctx context.Context, id deploy.ID, c framework.Command, line func(stream, text string)) error {
	exit, err := h.apps.Execute(ctx, app.Execution{Deployment: string(id), Command: appCommand(c), Process: "release", Timeout: releaseTime, Output: line})
	if err != nil {
		return err
	}
	if exit.Code != 0 || exit.OutOfMemory {
		f := &fault.Error{Kind: fault.Invalid, Message: "The release command failed: " + exit.Reason, Details: "the deployment does not go live; see its log", Code: "release_failed"}
		if exit.OutOfMemory {
			f.Details = "raise the site's memory limit, or let the command use less"
		}
		return f
	}
	return nil
}

// mostPrograms is how many programs and commands an owner may run at once.
func (h *node) mostPrograms(limits *account.Limits) func(ctx context.Context, owner string) (int64, error) {
	return func(ctx context.Context, owner string) (int64, error) {
		return limits.LimitOf(ctx, h.db, account.OwnerID(owner), account.LimitPrograms)
	}
}

// appStorage is the way to what programs store, where they run here.
func (h *node) appStorage(limits *account.Limits) app.Storage {
	if h.engine == nil {
		return app.Storage{}
	}
	return app.Storage{Sites: h.engine.StorageSites, Size: h.engine.StorageSize,
		Left: func(ctx context.Context, owner string) (int64, error) {
			u, err := limits.UseOf(ctx, h.db, account.OwnerID(owner), account.LimitStorage)
			return u.Left(), err
		}}
}

// applyRun puts a site's settings over the defaults.
func applyRun(w *app.Wanted, r site.Run) {
	if r.SleepAfterSeconds != nil {
		w.Sleep = time.Duration(*r.SleepAfterSeconds) * time.Second
	}
	if r.DrainSeconds != nil {
		w.Drain = time.Duration(*r.DrainSeconds) * time.Second
	}
	if r.MemoryMiB != nil {
		w.Spec.Limits.Memory = int64(*r.MemoryMiB) << 20
	}
	if r.StorageMiB != nil {
		w.Spec.Limits.Storage = int64(*r.StorageMiB) << 20
	}
	if r.RequestMiB != nil {
		w.MaxBody = int64(*r.RequestMiB) << 20
	}
	if r.ResponseSeconds != nil {
		w.FirstByte = time.Duration(*r.ResponseSeconds) * time.Second
	}
	if r.Ports != nil {
		w.Spec.Ports = *r.Ports
	}
	if r.Pids != nil {
		w.Spec.Limits.Pids = int64(*r.Pids)
	}
	if r.CPUs != nil {
		w.Spec.Limits.CPUs = *r.CPUs
	}
	if c := r.HealthCheck; c != nil {
		if c.Path != nil {
			w.HealthPath = *c.Path
		}
		if c.TimeoutSeconds != nil {
			w.Health = time.Duration(*c.TimeoutSeconds) * time.Second
		}
	}
	if r.Command != nil {
		command := framework.ParseCommand(*r.Command)
		w.Spec.Argv, w.Spec.Shell, w.PHP = command.Argv, command.Shell, nil
	}
}

// startProgram brings a deployment's program up before it goes live.
func (h *node) startProgram(ctx context.Context, id deploy.ID, say func(line string)) (func(), error) {
	return h.apps.Start(ctx, string(id), say)
}

// acquireProgram is the edge's way to a program.
func (h *node) acquireProgram(ctx context.Context, deployment string) (edge.Program, error) {
	if g, err := h.wordpress.Before(ctx, deployment, h.acquireWordPress(deployment)); err != nil || g != nil {
		if err != nil {
			return edge.Program{}, err
		}
		return edge.Program{Transport: g, Serve: g.Serve, Release: g.Release, Answered: g.Answered}, nil
	}
	e, err := h.apps.Acquire(ctx, deployment)
	if err != nil {
		return edge.Program{}, err
	}
	return edgeProgram(e), nil
}

// awakeProgram is its way to one that runs already, for the fast path.
func (h *node) awakeProgram(deployment string) (edge.Program, bool) {
	e, ok := h.apps.Awake(deployment)
	if !ok {
		return edge.Program{}, false
	}
	return edgeProgram(e), true
}

// wordPressFiles returns the program of a WordPress that runs, if a file of it could answer a path.
func (h *node) wordPressFiles(deployment, path string) (edge.Program, bool) {
	if !h.wordpress.MayBeFile(deployment, path) {
		return edge.Program{}, false
	}
	return h.awakeProgram(deployment)
}

func edgeProgram(e *app.Endpoint) edge.Program {
	return edge.Program{Transport: e.Transport, Upstream: e.Upstream, Ended: e.Ended, Serve: e.Serve, MaxBody: e.MaxBody, FirstByte: e.FirstByte, Release: e.Release, Answered: e.Answered}
}

// lastProgramLines are the last lines that a deployment's program printed.
func (h *node) lastProgramLines(ctx context.Context, id site.ID, deployment deploy.ID) []string {
	lines, err := h.apps.Logs(ctx, string(id), app.LogFilter{Deployment: string(deployment), Limit: 30, Flush: true})
	if err != nil {
		h.s.Log.WarnContext(ctx, "application log not read", "site", id, "err", err)
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

// forgetPrograms forgets what a deleted site's programs printed, and drops its databases;
// they end by themselves.
func (h *node) forgetPrograms(ctx context.Context, id site.ID) error {
	if err := h.databases.Forget(ctx, id); err != nil {
		return err
	}
	if err := h.forgetWordPress(ctx, id); err != nil {
		return err
	}
	return h.db.Write(ctx, func(tx *db.Tx) error { return h.apps.PurgeTx(ctx, tx, string(id)) })
}
