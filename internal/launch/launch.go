// Package launch owns the specification of a deployment's program: it combines the plan, the site's settings and
// variables, its databases and its WordPress into what package app starts.
//
// It starts nothing. Each call returns the current settings. A preview's databases are created when its program is
// first needed.
package launch

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"slipway/internal/build/buildlog"
	"slipway/internal/build/framework"
	"slipway/internal/deploy/deploy"
	"slipway/internal/deploy/deployment"
	"slipway/internal/deploy/preview"
	"slipway/internal/deploy/project"
	"slipway/internal/deploy/pushes"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/program/app"
	"slipway/internal/program/database"
	"slipway/internal/program/redis"
	"slipway/internal/program/runtime"
	"slipway/internal/program/scale"
	"slipway/internal/program/task"
	"slipway/internal/tenant/mail"
	"slipway/internal/tenant/site"
	"slipway/internal/wordpress/wordpress"
)

// Defaults for settings that the site doesn't set.
const (
	defaultSleep   = 15 * time.Minute
	defaultHealth  = time.Minute
	defaultDrain   = 30 * time.Second
	defaultMemory  = 512
	programPids    = 512
	programScratch = 1 << 30 // bytes
)

// Config holds the dependencies of Launch.
type Config struct {
	DB          *db.DB
	Sites       *site.Sites
	Deployments *deploy.Deployments
	Databases   *database.Databases
	WordPress   *wordpress.WordPress
	Previews    *preview.Previews
	Git         *pushes.Pushes // says what preview databases are copied from
	// Apps and Engine run programs from backups. Required by Trial.
	Apps   *app.Apps
	Engine runtime.Host
	Node   string       // this node's id. Optional: required with shared storage.
	Mailer *mail.Mailer // sends programs' emails. Optional.
	Redis  *redis.Redis // the Redis server for programs. Optional.
	Dir    string       // directory of emails being sent. Required with a Mailer.
	Log    *slog.Logger // Optional.
}

// Launch builds the specifications of programs.
type Launch struct {
	c      Config
	trial  site.ID       // site id for trying backups
	trying chan struct{} // holds one token while a backup is tried //share: total 1 trial; owner see backup's queue; edge the next waits
}

// New returns Launch and connects the engine's programs to databases, mail and Redis.
func New(c Config) *Launch {
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	if c.Engine != nil {
		c.Engine.Connect(newWays(c))
	}
	return &Launch{c: c, trial: trialSite(c.Node, c.Engine != nil && c.Engine.StorageShared()), trying: make(chan struct{}, 1)}
}

// Wanted returns the specification of a deployment's program.
func (l *Launch) Wanted(ctx context.Context, id deployment.ID) (app.Wanted, error) {
	p, err := l.programOfDeployment(ctx, id)
	if err != nil {
		return app.Wanted{}, err
	}
	w := app.Wanted{
		Site:       p.Site.ID,
		Owner:      p.Site.Owner,
		Deployment: id,
		Live:       p.Site.LiveDeployment == id,
		Host:       strings.TrimPrefix(l.c.Sites.URL(p.Site.Slug), "https://"),
		Health:     defaultHealth,
		Sleep:      defaultSleep,
		Drain:      defaultDrain,
		Root:       p.Root,
	}
	w.Spec = runtime.Spec{
		Site:   w.Site,
		Owner:  w.Owner,
		Bundle: p.Bundle,
		Dir:    p.Start.Command.Dir,
		Argv:   p.Start.Command.Argv,
		Shell:  p.Start.Command.Shell,
		Node:   p.Node,
		Egress: true,
		Limits: runtime.Limits{Memory: defaultMemory << 20, CPUs: 1, Pids: programPids, Disk: programScratch, Storage: site.DefaultStorage},
	}
	if err := l.addDatabases(ctx, &w, &p); err != nil {
		return app.Wanted{}, err
	}
	if err := l.addWordPress(ctx, &w, &p); err != nil {
		return app.Wanted{}, err
	}
	l.addRedis(&w, &p)
	applyPHP(&w, p)
	applyStorage(&w, p)
	if len(p.Secrets) > 0 {
		w.Secrets = buildlog.NewRedactor(p.Secrets)
	}
	for k, v := range p.Env {
		w.Spec.Env = append(w.Spec.Env, k+"="+v)
	}
	for _, x := range p.Processes {
		w.Tasks = append(w.Tasks, task.Task{Kind: task.Worker, Name: x.Name, Command: task.Command(x.Command)})
	}
	for _, x := range p.Crons {
		w.Tasks = append(w.Tasks, task.Task{Kind: task.Cron, Name: x.Name, Schedule: x.Schedule, Command: task.Command(x.Command)})
	}
	applyRun(&w, p.Run)
	applyRun(&w, p.Site.Run)
	boundInstances(&w)
	settings, err := json.Marshal(p.Site.Run)
	if err != nil {
		return app.Wanted{}, err
	}
	w.Settings = string(settings)
	if p.Runtime == framework.WordPress {
		if there, err := l.c.WordPress.Installed(ctx, p.Site.ID); err != nil || there {
			return w, err
		}
		w.HealthPath = wordpress.Alive
	}
	return w, nil
}

// applyRun overrides defaults by a site's settings.
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
	if r.ReadOnly != nil {
		w.Spec.ReadOnly = *r.ReadOnly
	}
	if r.CPUs != nil {
		w.Spec.Limits.CPUs = *r.CPUs
	}
	if i := r.Instances; i != nil {
		if i.Min != nil {
			w.Instances.Min = *i.Min
		}
		if i.Max != nil {
			w.Instances.Max = *i.Max
		}
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

// boundInstances limits a program to one instance if it has storage or is PHP: such settings are refused, but the
// deployment may be older than the setting.
func boundInstances(w *app.Wanted) {
	if w.Spec.PHP != nil || slices.ContainsFunc(w.Spec.Storage, func(s runtime.Storage) bool { return !s.Temporary }) {
		w.Instances = scale.Range{}
	}
	w.Instances.Max = max(w.Instances.Min, w.Instances.Max)
}

// Room returns how many bytes a site may store once live is served; with nil, now.
func (l *Launch) Room(ctx context.Context, id site.ID, live *deployment.Live) (int64, error) {
	s, err := l.c.Sites.ByID(ctx, l.c.DB, id)
	if err != nil {
		return 0, err
	}
	if live == nil && s.LiveDeployment != "" {
		x, _, err := l.c.Deployments.Lookup(ctx, s.LiveDeployment)
		if err != nil && !fault.Is(err, fault.NotFound) {
			return 0, err
		}
		live = &deployment.Live{Plan: x.Plan}
	}
	var plan framework.Plan
	if live != nil && len(live.Plan) > 0 {
		if err := json.Unmarshal(live.Plan, &plan); err != nil {
			return 0, fmt.Errorf("read plan of %s: %w", id, err)
		}
	}
	w := app.Wanted{Spec: runtime.Spec{Limits: runtime.Limits{Storage: site.DefaultStorage}}}
	applyRun(&w, project.RunSettings(plan.Run))
	applyRun(&w, s.Run)
	return w.Spec.Limits.Storage, nil
}

// Quiet lets requests to a site end and others wait, see [app.Apps].
func (l *Launch) Quiet(id site.ID, drain time.Duration) (release func()) {
	return l.c.Apps.Quiet(id, drain)
}

// Renew stops a site's programs, which the next request starts again, and drops its caches, because its files or
// databases were replaced.
func (l *Launch) Renew(ctx context.Context, id site.ID) error {
	l.c.Apps.Renew(id)
	return l.c.DB.Write(ctx, func(tx *db.Tx) error {
		x, err := l.c.Sites.ByID(ctx, tx, id)
		if err == nil && x.Type == site.WordPress {
			err = l.c.WordPress.PurgeTx(ctx, tx, x.Owner, id, nil)
		}
		if fault.Is(err, fault.NotFound) {
			return nil
		}
		return err
	})
}
