package dashboard

import (
	"context"
	"strings"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/site"
)

// maxLogSearch is how many bytes of a search text are used, and programLines how many lines
// of a program's log a page shows.
const (
	maxLogSearch = 200
	programLines = 300
)

// Process is the state of a site's program.
type Process struct {
	State    string // starting, running, sleeping, stopped or crashed
	Since    db.Time
	Restarts int
	Memory   int64  // bytes
	Message  string // why it crashed

	NeedsRestart bool // it runs with other settings than the site has by now
}

// ProgramLine is one line that a program printed.
type ProgramLine struct {
	N       int64
	At      db.Time
	Level   string // debug, info, warn, error
	Stream  string // stdout, stderr, system
	Message string
}

// ProgramFilter narrows a program's log. Empty fields don't.
type ProgramFilter struct {
	Stream, Process, Search string
	Limit                   int
}

// ProgramTask is a worker or a scheduled command.
type ProgramTask struct {
	Kind, Name, Command string
	Schedule            string  // of a scheduled command
	Next                db.Time // likewise
	State               string  // of a worker
	Message             string
}

// Process is its name in the log.
func (t ProgramTask) Process() string { return t.Kind + ":" + t.Name }

// HasProgram reports whether the site's live deployment is a program.
func (h siteHead) HasProgram() bool {
	return h.Site.Runtime != "" && h.Site.Runtime != "static" && h.Site.LiveDeployment != ""
}

type programData struct {
	siteHead
	Process *Process // nil: the site has no program
	Lines   []ProgramLine
	Search  string
	Stream  string
	Only    string // one process alone
	Tasks   []ProgramTask
	Plots   []plot
	Live    string
	Limit   int
}

// process returns the state of the site's program, or nil where it has none.
func (d *Dashboard) process(h siteHead) *Process {
	if !h.HasProgram() || d.Programs == nil {
		return nil
	}
	p := d.Programs.Process(h.Site)
	if h.Site.Status == site.Stopped {
		p.State, p.Message = "stopped", ""
	}
	return &p
}

func (d *Dashboard) programData(ctx context.Context, q *request) (programData, error) {
	head, err := d.head(ctx, q, "logs")
	if err != nil {
		return programData{}, err
	}
	data := programData{
		siteHead: head,
		Process:  d.process(head),
		Search:   short(maxLogSearch, clean(strings.TrimSpace(q.query("q")))),
		Stream:   q.query("stream"),
		Limit:    programLines,
	}
	switch data.Stream {
	case "stdout", "stderr", "system":
	default:
		data.Stream = ""
	}
	if data.Only = q.query("process"); len(data.Only) > 64 || data.Only != clean(data.Only) {
		data.Only = ""
	}
	data.Live = link(head.Base()+"/logs/follow", "q", data.Search, "stream", data.Stream, "process", data.Only)
	if d.Programs != nil {
		data.Lines, err = d.Programs.ProgramLog(ctx, head.Site.ID, ProgramFilter{data.Stream, data.Only, data.Search, programLines})
	}
	return data, err
}

func (d *Dashboard) programPage(ctx context.Context, q *request) (answer, error) {
	data, err := d.programData(ctx, q)
	if err == nil && data.HasProgram() && d.Programs != nil {
		if data.Tasks, err = d.Programs.ProgramTasks(ctx, data.Site.ID); err == nil {
			data.Plots, err = d.programPlots(ctx, data.Site.ID)
		}
	}
	return page("site_logs", "Logs of "+data.Site.Name, data), err
}

// runCommand starts a command and shows its lines.
func (d *Dashboard) runCommand(ctx context.Context, q *request) (answer, error) {
	id := site.ID(q.PathValue("id"))
	process := ""
	err := d.act(ctx, q, "site.command", func(tx *db.Tx) (string, error) {
		s, err := d.Sites.GetTx(ctx, tx, q.caller.Owner, id)
		if err != nil {
			return "", err
		}
		if d.Programs == nil {
			return "", &fault.Error{Kind: fault.Unavailable, Message: "Applications can't run on this server", Code: "no_runtime"}
		}
		process, err = d.Programs.RunOnceTx(ctx, tx, s, strings.TrimSpace(q.value("command")))
		return string(id), err
	})
	return goTo(link("/sites/"+string(id)+"/logs", "process", process), "Command started"), err
}

// programLive sends the state and the lines again whenever they change.
func (d *Dashboard) programLive(ctx context.Context, q *request) (answer, error) {
	if _, err := d.head(ctx, q, "logs"); err != nil {
		return answer{}, err
	}
	return answer{live: live{poll: 2 * time.Second, render: func(ctx context.Context) ([]byte, bool, error) {
		data, err := d.programData(ctx, q)
		if err != nil {
			return nil, false, err
		}
		html, err := d.part(ctx, q, "site_logs", "program", data)
		return html, false, err
	}}}, nil
}
