package sites

import (
	"context"
	"slices"
	"strings"
	"time"

	"slipway/internal/build/framework"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/program/app"
	"slipway/internal/program/applog"
	"slipway/internal/program/runtime"
	"slipway/internal/program/task"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
	"slipway/internal/web/terminal"
)

// apps implements Programs with package app.
type apps struct{ *app.Apps }

// ProgramsOf returns Programs backed by a.
func ProgramsOf(a *app.Apps) Programs { return apps{a} }

// Process implements [Programs].
func (h apps) Process(s site.Site) Process {
	p := h.Status(s.LiveDeployment)
	out := Process{
		State: string(p.State), Instances: p.Instances, Restarts: p.Restarts, Memory: p.Memory, Message: p.Message, NeedsRestart: p.NeedsRestart,
	}
	for _, w := range p.Written {
		if !w.Folder {
			out.LostFiles = append(out.LostFiles, w.Path)
		} else if list := s.Run.Storage; list == nil || !slices.Contains(*list, w.Path) {
			out.Lost = append(out.Lost, w.Path)
		}
	}
	if !p.Since.IsZero() {
		out.Since = db.At(p.Since)
	}
	return out
}

// ProgramLog implements [Programs].
func (h apps) ProgramLog(ctx context.Context, id site.ID, f ProgramFilter) ([]ProgramLine, error) {
	lines, err := h.Logs(ctx, id, applog.Filter{
		After: f.After, Before: f.Before, Since: f.Since, Stream: f.Stream, Level: f.Level, Process: f.Process, Search: f.Search, Limit: f.Limit,
	})
	out := make([]ProgramLine, len(lines))
	for i, l := range lines {
		out[i] = ProgramLine{N: l.N, At: l.At, Level: l.Level, Stream: l.Stream, Process: l.Process, Message: l.Message}
	}
	return out, err
}

// Figures implements [Programs].
func (h apps) Figures(ctx context.Context, id site.ID) ([]ProgramFigures, time.Duration, error) {
	list, _, step, err := h.Metrics(ctx, id, db.Now().Add(-24*time.Hour), 0, 0)
	out := make([]ProgramFigures, len(list))
	for i, p := range list {
		out[i] = ProgramFigures{
			At:       p.At,
			Statuses: p.Statuses,
			P50:      p.Latency(.5),
			P95:      p.Latency(.95),
			Memory:   p.Memory,
			CPU:      p.CPU,
			Wakes:    p.Wakes,
			Restart:  p.Restarts,
		}
	}
	return out, step, err
}

// ProgramTasks implements [Programs].
func (h apps) ProgramTasks(ctx context.Context, id site.ID) ([]ProgramTask, error) {
	list, err := h.Apps.Tasks(ctx, id)
	out := make([]ProgramTask, len(list))
	for i, t := range list {
		out[i] = ProgramTask{
			Kind:     t.Kind,
			Name:     t.Name,
			Command:  t.Command.String(),
			Schedule: t.Schedule,
			Next:     t.Next,
			State:    string(t.State),
			Message:  t.Message,
		}
	}
	return out, err
}

// RunOnceTx implements [Programs].
func (h apps) RunOnceTx(ctx context.Context, tx *db.Tx, by account.Caller, s site.Site, command string) (string, error) {
	switch {
	case command == "" || len(command) > 4096 || strings.ContainsRune(command, 0):
		return "", fault.New(fault.Invalid, "invalid_command", "Invalid command", "1 to 4,096 bytes of text")
	case s.Status == site.Stopped:
		return "", fault.New(fault.Conflict, "site_stopped", "This site is stopped", "start it first")
	case s.Runtime == "" || s.Runtime == framework.Static || s.LiveDeployment == "":
		return "", fault.New(fault.Conflict, "no_program", "This site has no program",
			"commands run in the files of an application")
	}
	_, err := h.RunTx(ctx, tx, by, s.ID, s.LiveDeployment, task.Command(framework.ParseCommand(command)), app.CommandTime)
	return app.CommandProcess, err
}

// RestartSiteTx implements [Programs].
func (h apps) RestartSiteTx(ctx context.Context, tx *db.Tx, s site.Site) error {
	switch {
	case s.Runtime == "" || s.Runtime == framework.Static || s.LiveDeployment == "":
		return fault.New(fault.Conflict, "no_program", "This site has no application to restart", "it serves static files")
	case s.Status == site.Stopped:
		return fault.New(fault.Conflict, "site_stopped", "This site is stopped", "start it instead")
	}
	_, err := h.RestartTx(ctx, tx, s.Owner, s.ID, s.LiveDeployment)
	return err
}

// Storage implements [Programs].
func (h apps) Storage(ctx context.Context, id site.ID) (Storage, error) {
	u, err := h.StorageUse(ctx, id)
	return Storage{Bytes: u.Bytes, MeasuredAt: u.MeasuredAt, Full: u.Capped > 0}, err
}

// Terminal implements [Programs].
func (h apps) Terminal(ctx context.Context, s site.Site, t *runtime.Terminal) (string, error) {
	exit, err := h.Execute(ctx, terminal.Execution(s, terminal.Shell, t))
	return "The shell ended: " + exit.Reason, err
}
