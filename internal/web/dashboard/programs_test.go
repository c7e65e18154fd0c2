package dashboard

import (
	"context"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/program/runtime"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
	"slipway/internal/web/dashboard/sites"
)

// programs implements Programs with the functions that a test sets. The others return nothing.
type programs struct {
	process  func(s site.Site) sites.Process
	log      func(id site.ID, f sites.ProgramFilter) ([]sites.ProgramLine, error)
	figures  func() ([]sites.ProgramFigures, time.Duration, error)
	tasks    []sites.ProgramTask
	run      func(command string) (string, error)
	stored   sites.Storage
	restart  func()
	terminal func(ctx context.Context, s site.Site, t *runtime.Terminal) (string, error)
}

func (p programs) Process(s site.Site) sites.Process {
	if p.process == nil {
		return sites.Process{}
	}
	return p.process(s)
}

func (p programs) ProgramLog(_ context.Context, id site.ID, f sites.ProgramFilter) ([]sites.ProgramLine, error) {
	if p.log == nil {
		return nil, nil
	}
	return p.log(id, f)
}

func (p programs) Figures(context.Context, site.ID) ([]sites.ProgramFigures, time.Duration, error) {
	if p.figures == nil {
		return nil, 0, nil
	}
	return p.figures()
}

func (p programs) ProgramTasks(context.Context, site.ID) ([]sites.ProgramTask, error) {
	return p.tasks, nil
}

func (p programs) RunOnceTx(_ context.Context, _ *db.Tx, _ account.Caller, _ site.Site, command string) (string, error) {
	return p.run(command)
}

func (p programs) RestartSiteTx(context.Context, *db.Tx, site.Site) error {
	p.restart()
	return nil
}

func (p programs) Storage(context.Context, site.ID) (sites.Storage, error) { return p.stored, nil }

func (p programs) Terminal(ctx context.Context, s site.Site, t *runtime.Terminal) (string, error) {
	return p.terminal(ctx, s, t)
}
