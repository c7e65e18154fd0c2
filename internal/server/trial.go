package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"slipway/internal/app"
	"slipway/internal/backup"
	"slipway/internal/buildlog"
	"slipway/internal/database"
	"slipway/internal/deploy"
	"slipway/internal/fault"
	"slipway/internal/framework"
	"slipway/internal/runtime"
	"slipway/internal/site"
	"slipway/internal/wordpress"
)

// trialSite is the name under which what a backup holds runs: it has a user, storage and a
// socket of databases like a site, and no site is called so.
const trialSite = "backup-trial"

// trials makes the places where backups are tried on this node, one after the other: a
// program takes as much memory as the site's.
func (h *node) trials() func(ctx context.Context) (*backup.Trial, error) {
	turn := make(chan struct{}, 1)
	return func(ctx context.Context) (*backup.Trial, error) {
		select {
		case turn <- struct{}{}:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if err := h.engine.ForgetStorage(trialSite); err != nil { // what a crash left there
			<-turn
			return nil, err
		}
		return &backup.Trial{
			Folder: func(ctx context.Context, name string) (backup.Folder, error) {
				dir, err := h.engine.MakeStorage(ctx, trialSite, name)
				return backup.Folder{Name: name, Dir: dir}, err
			},
			Answer: h.tryBackup,
			Close: func() {
				h.databases.CloseSocket(trialSite)
				if err := h.engine.ForgetStorage(trialSite); err != nil {
					h.s.Log.Warn("storage of a backup's trial not removed", "err", err)
				}
				<-turn
			},
		}, nil
	}
}

// tryBackup runs what a backup holds and says how it answers.
func (h *node) tryBackup(ctx context.Context, t backup.Tried) (string, error) {
	w, err := h.triedProgram(ctx, t)
	if err != nil {
		return "", err
	}
	status, err := h.apps.Try(ctx, w)
	if err != nil {
		return "", err
	}
	path := w.HealthPath
	if path == "" {
		path = "/"
	}
	return fmt.Sprintf("Run from the copy, it answers %s with %d", path, status), nil
}

// triedProgram is like wanted, of a site that may be gone. It has neither a network nor mail:
// who runs twice must not write to what is outside twice.
func (h *node) triedProgram(ctx context.Context, t backup.Tried) (app.Wanted, error) {
	s := site.Site{ID: trialSite, Name: t.Config.Name, Slug: trialSite, Type: t.Config.Type, Run: t.Config.Run}
	address := h.sites.URL(s.Slug)
	var live site.Site
	live, err := h.sites.ByID(ctx, h.db, t.Site)
	if err == nil { // which its program knows
		address, err = h.visitorsAddress(ctx, live)
	}
	if err != nil && !fault.Is(err, fault.NotFound) {
		return app.Wanted{}, err
	}
	p, err := deploy.ProgramFrom(s, t.Live, t.Config.Env, address)
	if err != nil {
		return app.Wanted{}, err
	}
	p.Env["SLIPWAY_SITE_ID"] = string(t.Site)
	w := app.Wanted{Site: trialSite, Host: hostPort(address), Health: defaultHealth}
	w.Spec = runtime.Spec{Site: trialSite, Bundle: p.Bundle, Dir: p.Start.Command.Dir, Argv: p.Start.Command.Argv, Shell: p.Start.Command.Shell, Node: p.Node, Database: len(t.Databases) > 0,
		Limits: runtime.Limits{Memory: defaultMemory << 20, CPUs: 1, Pids: programPids, Disk: programScratch, Storage: programStorage}}
	for name, x := range t.Databases {
		a := database.Access{Schema: x.Schema, User: x.Schema, Password: x.Password}
		p.Secrets = append(p.Secrets, x.Password)
		for k, v := range database.EnvOf(name, t.Places[name], a) {
			if _, set := p.Env[k]; !set {
				p.Env[k] = v
			}
		}
	}
	if p.Runtime == framework.WordPress {
		x, ok := t.Databases[wordpress.DatabaseName]
		if !ok {
			return w, errors.New("the backup's WordPress has no database")
		}
		var e wordpress.Export
		if err := json.Unmarshal(t.Extra, &e); err != nil {
			return w, fmt.Errorf("read WordPress of backup: %w", err)
		}
		for k, v := range e.EnvironmentOf(database.Access{Schema: x.Schema, User: x.Schema, Password: x.Password}, address) {
			p.Env[k] = v
		}
	}
	applyPHP(&w, p)
	applyStorage(&w, p)
	w.Redact = buildlog.NewRedactor(p.Secrets).Redact
	for k, v := range p.Env {
		w.Spec.Env = append(w.Spec.Env, k+"="+v)
	}
	applyRun(&w, p.Run)
	applyRun(&w, p.Site.Run)
	w.Health = min(w.Health, defaultHealth) // others wait for their turn
	return w, nil
}

// hostPort returns the Host header of a request to an address.
func hostPort(address string) string { return strings.TrimPrefix(address, "https://") }
