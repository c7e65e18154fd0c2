package api

import (
	"context"
	"time"

	"slipway/internal/account"
	"slipway/internal/app"
	"slipway/internal/db"
	"slipway/internal/fault"
	"slipway/internal/site"
)

type processBody struct {
	State        string  `json:"state" enum:"none,starting,running,sleeping,stopped,crashed" doc:"A sleeping program is started by the next request."`
	Since        *string `json:"since" format:"date-time"`
	DeploymentID *string `json:"deploymentId"`
	Restarts     int     `json:"restarts"`
	MemoryBytes  int64   `json:"memoryBytes"`
	Message      *string `json:"message" doc:"Why it crashed."`
}

type programLogs struct {
	Logs []programLine `json:"logs"`
	Next *int64        `json:"next" doc:"Where there is more: the value for after."`
}

type programLine struct {
	N            int64   `json:"n" doc:"Grows with every line of the site."`
	Timestamp    string  `json:"timestamp" format:"date-time"`
	Level        string  `json:"level" enum:"debug,info,warn,error" doc:"Guessed from the line."`
	Message      string  `json:"message"`
	Stream       string  `json:"stream" enum:"stdout,stderr,system"`
	Process      string  `json:"process"`
	DeploymentID *string `json:"deploymentId"`
}

func (a *API) programRoutes() {
	get(a, Route{Path: "/sites/{id}/logs", ID: "getSiteLogs", Tag: "Sites", Summary: "Read what a site's program printed", Scope: account.SitesRead, Noun: "site",
		Doc: "The newest lines, oldest first; with `after` those that follow. The last 10,000 lines of a site are stored."}, a.siteLogs)
}

type siteLogsIn struct {
	ByID
	After  count  `query:"after" doc:"Only lines with a greater number."`
	Since  string `query:"since" format:"date-time" doc:"Only lines of this moment and later."`
	Search string `query:"search" maxLength:"200" doc:"Only lines that hold this text, in any case."`
	Stream string `query:"stream" doc:"Only lines of stdout, stderr or system."`
	Limit  count  `query:"limit" doc:"At most so many lines: 1 to 1,000, 100 unless told."`
}

func (a *API) siteLogs(ctx context.Context, c account.Caller, in *siteLogsIn) (programLogs, error) {
	if _, err := a.site(ctx, c, in.ID); err != nil {
		return programLogs{}, err
	}
	f := app.LogFilter{Search: in.Search, Stream: in.Stream}
	var err error
	if f.After, err = in.After.parse("after", "invalid_after"); err != nil {
		return programLogs{}, err
	}
	limit, err := in.Limit.parse("limit", "invalid_limit")
	if err != nil {
		return programLogs{}, err
	}
	if f.Limit = int(min(limit, 1000)); f.Limit == 0 {
		f.Limit = 100
	}
	switch in.Stream {
	case "", "stdout", "stderr", "system":
	default:
		return programLogs{}, &fault.Error{Kind: fault.Invalid, Message: "Invalid stream", Details: "stream must be stdout, stderr or system", Received: in.Stream, Code: "invalid_stream"}
	}
	if in.Since != "" {
		at, err := time.Parse(time.RFC3339, in.Since)
		if err != nil {
			return programLogs{}, &fault.Error{Kind: fault.Invalid, Message: "Invalid since", Details: "since must be a timestamp such as 2026-01-02T15:04:05Z", Received: in.Since, Code: "invalid_since"}
		}
		f.Since = db.Time(at.UnixMilli())
	}
	lines, err := a.Apps.Logs(ctx, in.ID, f)
	if err != nil {
		return programLogs{}, err
	}
	out := programLogs{Logs: each(lines, func(l app.Line) programLine {
		return programLine{l.N, l.At.String(), l.Level, l.Message, l.Stream, l.Process, some(l.Deployment)}
	})}
	if len(lines) == f.Limit && f.After > 0 {
		out.Next = &lines[len(lines)-1].N
	}
	return out, nil
}

// showProcess is a site's program, null where it has none.
func (a *API) showProcess(s site.Site) *processBody {
	if a.Apps == nil || s.Runtime == "" || s.Runtime == "static" || s.Runtime == "wordpress" || s.LiveDeployment == "" {
		return nil
	}
	p := a.Apps.Status(s.LiveDeployment)
	if s.Status == site.Stopped {
		p.State, p.Message = app.Stopped, ""
	}
	b := &processBody{State: string(p.State), DeploymentID: some(s.LiveDeployment), Restarts: p.Restarts, MemoryBytes: p.Memory, Message: some(p.Message)}
	if !p.Since.IsZero() {
		at := db.Time(p.Since.UnixMilli()).String()
		b.Since = &at
	}
	return b
}
