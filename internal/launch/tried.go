package launch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"slipway/internal/backup/backup"
	"slipway/internal/build/buildlog"
	"slipway/internal/build/framework"
	"slipway/internal/platform/fault"
	"slipway/internal/program/app"
	"slipway/internal/program/database"
	"slipway/internal/program/runtime"
	"slipway/internal/tenant/site"
	"slipway/internal/wordpress/wordpress"
)

// TrialSite is the site id for programs of backups: it has a user, storage and database socket like a site. No real
// site has this id.
const TrialSite = "backup-trial"

// trialSite returns TrialSite, or a name of the node's own if storage is shared: otherwise two nodes could write to the
// same storage.
func trialSite(node string, shared bool) site.ID {
	if shared && node != "" {
		return site.ID(TrialSite + "-" + node)
	}
	return TrialSite
}

// Tried is [Launch.Wanted] for a backup, whose site may be deleted. The program gets no network and no mail, so that it
// can't repeat the site's effects outside.
func (l *Launch) Tried(ctx context.Context, t backup.Tried) (app.Wanted, error) {
	s := site.Site{ID: l.trial, Name: t.Config.Name, Slug: TrialSite, Type: t.Config.Type, Run: t.Config.Run}
	address := l.c.Sites.URL(s.Slug)
	var live site.Site
	live, err := l.c.Sites.ByID(ctx, l.c.DB, t.Site)
	if err == nil { // the program knows the site's address
		address, err = l.c.WordPress.Address(ctx, live)
	}
	if err != nil && !fault.Is(err, fault.NotFound) {
		return app.Wanted{}, err
	}
	p, err := programFromBackup(s, t.Live, t.Config.Env, address)
	if err != nil {
		return app.Wanted{}, err
	}
	p.Env["SLIPWAY_SITE_ID"] = string(t.Site)
	w := app.Wanted{Site: l.trial, Host: hostPort(address), Health: defaultHealth}
	w.Spec = runtime.Spec{
		Site:     l.trial,
		Owner:    t.Owner,
		Bundle:   p.Bundle,
		Dir:      p.Start.Command.Dir,
		Argv:     p.Start.Command.Argv,
		Shell:    p.Start.Command.Shell,
		Node:     p.Node,
		Database: len(t.Databases) > 0,
		Limits: runtime.Limits{
			Memory:  defaultMemory << 20,
			CPUs:    1,
			Pids:    programPids,
			Disk:    programScratch,
			Storage: site.DefaultStorage,
		},
	}
	for name, x := range t.Databases {
		a := x.Access()
		p.Secrets = append(p.Secrets, a.Password)
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
		for k, v := range e.EnvironmentOf(x.Access(), address) {
			p.Env[k] = v
		}
	}
	applyPHP(&w, p)
	applyStorage(&w, p)
	w.Secrets = buildlog.NewRedactor(p.Secrets)
	for k, v := range p.Env {
		w.Spec.Env = append(w.Spec.Env, k+"="+v)
	}
	applyRun(&w, p.Run)
	applyRun(&w, p.Site.Run)
	w.Health = min(w.Health, defaultHealth) // other trials wait
	return w, nil
}

// hostPort returns the Host header for an address.
func hostPort(address string) string { return strings.TrimPrefix(address, "https://") }
