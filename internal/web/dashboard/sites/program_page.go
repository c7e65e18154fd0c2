package sites

import (
	"context"
	"strings"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/program/runtime"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
	"slipway/internal/web/dashboard/shell"
)

// Process is the state of a site's program.
type Process struct {
	State     string // starting, running, sleeping, stopped or crashed
	Since     db.Time
	Restarts  int
	Instances int    // running ones
	Memory    int64  // bytes
	Message   string // why it crashed

	NeedsRestart bool // whether the site's settings have changed since its start

	// Lost and LostFiles are folders and files outside of storage that it wrote to.
	Lost, LostFiles []string
}

// ProgramLine is a line of a program's output.
type ProgramLine struct {
	N       int64
	At      db.Time
	Level   string // debug, info, warn, error
	Stream  string // stdout, stderr, system
	Process string // web, worker:name, cron:name, release, terminal or command
	Message string
}

// ProgramFilter selects lines of a program's log. Zero fields match everything.
type ProgramFilter struct {
	After, Before                  int64 // line numbers; After 0 means the newest, negative means from the oldest
	Since                          db.Time
	Stream, Level, Process, Search string
	Limit                          int
}

// ProgramTask is a worker or a scheduled command.
type ProgramTask struct {
	Kind, Name, Command string
	Schedule            string  // scheduled commands only
	Next                db.Time // scheduled commands only
	State               string  // workers only
	Message             string
}

// Process returns the process's name in the log.
func (t ProgramTask) Process() string { return t.Kind + ":" + t.Name }

// HasProgram reports whether the site's live deployment is a program.
func (h SiteHead) HasProgram() bool {
	return h.Site.Runtime != "" && h.Site.Runtime != "static" && h.Site.LiveDeployment != ""
}

type programData struct {
	SiteHead
	Log   programLog
	Tasks []ProgramTask
	Plots []shell.Plot
}

// ProcessOf returns the state of a site's program, or nil if it has none.
func (d *Pages) ProcessOf(s site.Site) *Process {
	if !(SiteHead{Site: s}).HasProgram() || d.Programs == nil {
		return nil
	}
	p := d.Programs.Process(s)
	if s.Status == site.Stopped {
		p.State, p.Message = "stopped", ""
	}
	return &p
}

func (d *Pages) programData(ctx context.Context, q *shell.Request) (programData, error) {
	head, err := d.Head(ctx, q, "logs")
	return programData{SiteHead: head}, err
}

func (d *Pages) programPage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	data, err := d.programData(ctx, q)
	if err == nil {
		data.Log, err = d.programLog(ctx, q, data.SiteHead)
	}
	if err == nil && data.HasProgram() && d.Programs != nil {
		if data.Tasks, err = d.Programs.ProgramTasks(ctx, data.Site.ID); err == nil {
			data.Plots, err = d.programPlots(ctx, data.Site.ID)
		}
	}
	return shell.Page("site_logs", "Logs of "+data.Site.Name, data), err
}

// runCommand runs a command and redirects to its output.
func (d *Pages) runCommand(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	id := shell.PathID[site.ID](q, "id")
	process := ""
	err := d.Act(ctx, q, "site.command", func(tx *db.Tx) (string, error) {
		s, err := d.Sites.GetTx(ctx, tx, q.Caller.Owner, id)
		if err != nil {
			return "", err
		}
		if d.Programs == nil {
			return "", &fault.Error{Kind: fault.Unavailable, Message: "Applications can't run on this server", Code: "no_runtime"}
		}
		process, err = d.Programs.RunOnceTx(ctx, tx, q.Caller, s, strings.TrimSpace(q.Value("command")))
		return string(id), err
	})
	return shell.GoTo(shell.Link("/sites/"+string(id)+"/logs", "process", process), "Command started"), err
}

// programLive updates the state when it changes.
func (d *Pages) programLive(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	if _, err := d.Head(ctx, q, "logs"); err != nil {
		return shell.Answer{}, err
	}
	return shell.LivePart(2*time.Second, func(ctx context.Context) ([]byte, bool, error) {
		data, err := d.programData(ctx, q)
		if err != nil {
			return nil, false, err
		}
		html, err := d.Part(ctx, q, "site_logs", "program", data)
		return html, false, err
	}), nil
}

// Storage is the storage use of a site's programs.
type Storage struct {
	Bytes      int64
	MeasuredAt db.Time // whether the account's storage limit is reached
	Full       bool    // the account can store no more
}

// Programs shows and changes sites' programs. [ProgramsOf] returns the implementation of package app.
type Programs interface {
	// Process returns the state of the live deployment's program.
	Process(s site.Site) Process
	// ProgramLog returns the latest matching lines, oldest first.
	ProgramLog(ctx context.Context, id site.ID, f ProgramFilter) ([]ProgramLine, error)
	// Figures returns the metrics of the last 24 hours and their step.
	Figures(ctx context.Context, id site.ID) ([]ProgramFigures, time.Duration, error)
	// ProgramTasks returns a site's workers and scheduled commands.
	ProgramTasks(ctx context.Context, id site.ID) ([]ProgramTask, error)
	// RunOnceTx opens the operation that runs a command and returns the process's name in the log.
	RunOnceTx(ctx context.Context, tx *db.Tx, by account.Caller, s site.Site, command string) (string, error)
	// RestartSiteTx opens the operation that restarts the program.
	RestartSiteTx(ctx context.Context, tx *db.Tx, s site.Site) error
	// Storage returns the storage use of a site's programs.
	Storage(ctx context.Context, id site.ID) (Storage, error)
	// Terminal runs a shell in the live deployment's sandbox until it exits or ctx ends, and returns in words how it
	// ended.
	Terminal(ctx context.Context, s site.Site, t *runtime.Terminal) (how string, err error)
}
