package server

import (
	"context"
	"time"

	"slipway/internal/app"
	"slipway/internal/dashboard"
	"slipway/internal/db"
	"slipway/internal/fault"
	"slipway/internal/framework"
	"slipway/internal/runtime"
	"slipway/internal/site"
)

// withPrograms adds what the pages do with programs.
func (h *node) withPrograms(c dashboard.Config) dashboard.Config {
	c.Terminal, c.RestartTx, c.Storage = h.terminal, h.restartTx, h.storageOf
	return c
}

// restartTx opens the operation that restarts a site's program.
func (h *node) restartTx(ctx context.Context, tx *db.Tx, s site.Site) error {
	switch {
	case s.Runtime == "" || s.Runtime == framework.Static || s.LiveDeployment == "":
		return &fault.Error{Kind: fault.Conflict, Message: "This site has no application to restart", Details: "it serves static files", Code: "no_program"}
	case s.Status == site.Stopped:
		return &fault.Error{Kind: fault.Conflict, Message: "This site is stopped", Details: "start it instead", Code: "site_stopped"}
	}
	_, err := h.apps.RestartTx(ctx, tx, s.Owner, string(s.ID), s.LiveDeployment)
	return err
}

// storageOf returns how much a site's programs store.
func (h *node) storageOf(ctx context.Context, id site.ID) (dashboard.Storage, error) {
	u, err := h.apps.StorageUse(ctx, string(id))
	return dashboard.Storage{Bytes: u.Bytes, MeasuredAt: u.MeasuredAt, Full: u.Capped > 0}, err
}

// terminalShell is the command that runs in a terminal: the best shell that the sandbox has, with a prompt
// that says where it is.
const terminalShell = `if command -v bash >/dev/null 2>&1; then export PS1='\w \$ '; exec bash --norc --noprofile; fi; export PS1='$ '; exec sh -i`

// terminalTime is longer than the dashboard keeps a terminal open.
const terminalTime = 2 * time.Hour

// terminal runs a shell in the sandbox of a site's live deployment.
func (h *node) terminal(ctx context.Context, s site.Site, t dashboard.Terminal) (string, error) {
	if s.Runtime == "" || s.Runtime == framework.Static || s.LiveDeployment == "" {
		return "", &fault.Error{Kind: fault.Conflict, Message: "This site has no program", Details: "a terminal opens in the files of an application", Code: "no_program"}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sizes := make(chan runtime.Size)
	go func() {
		for {
			select {
			case size := <-t.Sizes:
				select {
				case sizes <- runtime.Size{Columns: size[0], Rows: size[1]}:
				case <-ctx.Done():
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	exit, err := h.apps.Execute(ctx, app.Execution{Deployment: s.LiveDeployment, Command: app.Command{Shell: terminalShell}, Process: "terminal", Timeout: terminalTime,
		Terminal: &runtime.Terminal{Input: t.Input, Output: t.Output, Size: runtime.Size{Columns: t.Columns, Rows: t.Rows}, Sizes: sizes}})
	if err != nil {
		return "", err
	}
	return "The shell ended: " + exit.Reason, nil
}
