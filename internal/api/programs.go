package api

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

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
	streamRoute(a, Route{Method: http.MethodGet, Status: http.StatusOK, Stream: true,
		Path: "/sites/{id}/logs", ID: "getSiteLogs", Tag: "Sites", Summary: "Read what a site's program printed", Scope: account.SitesRead, Noun: "site",
		Doc: "The newest lines, oldest first; with `after` those that follow. The last 10,000 lines of a site are stored. " +
			"With `Accept: text/event-stream` the log is followed live: one event per line with its number as id, comments as heartbeats. `Last-Event-ID` resumes."}, typeOf[programLogs](), a.siteLogs)
	post(a, Route{Path: "/sites/{id}/restart", ID: "restartSite", Tag: "Sites", Summary: "Restart a site's program", Scope: account.SitesWrite, Noun: "site", Status: http.StatusAccepted,
		Doc: "Starts an operation that starts the program anew, with today's settings and variables, and lets it take over once it is healthy: no request is dropped. " +
			"Where the new one is not healthy the old one stays. One that sleeps is left asleep: the next request starts it anew."}, a.restartSite)
}

func (a *API) restartSite(ctx context.Context, tx *db.Tx, c account.Caller, in *ByID) (_ operationBody, did account.AuditEvent, _ error) {
	s, err := a.Sites.GetTx(ctx, tx, c.Owner, site.ID(in.ID))
	if err != nil {
		return operationBody{}, did, err
	}
	if err := c.RequireSite(in.ID); err != nil {
		return operationBody{}, did, err
	}
	switch {
	case !hasProgram(s):
		return operationBody{}, did, &fault.Error{Kind: fault.Conflict, Message: "This site has no program to restart", Details: "its files are served as they are", Code: "no_program"}
	case s.Status == site.Stopped:
		return operationBody{}, did, &fault.Error{Kind: fault.Conflict, Message: "This site is stopped", Details: "start it instead", Code: "site_stopped"}
	}
	op, err := a.Apps.RestartTx(ctx, tx, c.Owner, in.ID, s.LiveDeployment)
	did = account.AuditEvent{Action: "site.restarted", Subject: in.ID}
	return showOperation(op), did, err
}

// hasProgram reports whether a program answers for the site.
func hasProgram(s site.Site) bool {
	return s.Runtime != "" && s.Runtime != "static" && s.Runtime != "wordpress" && s.LiveDeployment != ""
}

type siteLogsIn struct {
	ByID
	After  count  `query:"after" doc:"Only lines with a greater number."`
	Since  string `query:"since" format:"date-time" doc:"Only lines of this moment and later."`
	Search string `query:"search" maxLength:"200" doc:"Only lines that hold this text, in any case."`
	Stream string `query:"stream" doc:"Only lines of stdout, stderr or system."`
	Limit  count  `query:"limit" doc:"At most so many lines: 1 to 1,000, 100 unless told. A stream begins with so many."`
	Last   string `header:"Last-Event-ID" doc:"Like after, as browsers send it when they resume a stream."`
}

func (in *siteLogsIn) filter() (f app.LogFilter, err error) {
	f.Search, f.Stream = in.Search, in.Stream
	if f.After, err = in.After.parse("after", "invalid_after"); err != nil {
		return f, err
	}
	limit, err := in.Limit.parse("limit", "invalid_limit")
	if err != nil {
		return f, err
	}
	if f.Limit = int(min(limit, 1000)); f.Limit == 0 {
		f.Limit = 100
	}
	switch in.Stream {
	case "", "stdout", "stderr", "system":
	default:
		return f, &fault.Error{Kind: fault.Invalid, Message: "Invalid stream", Details: "stream must be stdout, stderr or system", Received: in.Stream, Code: "invalid_stream"}
	}
	if in.Since != "" {
		at, err := time.Parse(time.RFC3339, in.Since)
		if err != nil {
			return f, &fault.Error{Kind: fault.Invalid, Message: "Invalid since", Details: "since must be a timestamp such as 2026-01-02T15:04:05Z", Received: in.Since, Code: "invalid_since"}
		}
		f.Since = db.Time(at.UnixMilli())
	}
	return f, nil
}

func (a *API) siteLogs(ctx context.Context, r Route, in *siteLogsIn) (func(huma.Context), error) {
	c, req := from(ctx).caller, from(ctx).http
	if err := r.permit(c); err != nil {
		return nil, err
	}
	if _, err := a.site(ctx, c, in.ID); err != nil {
		return nil, err
	}
	f, err := in.filter()
	if err != nil {
		return nil, err
	}
	if strings.Contains(req.Header.Get("Accept"), "text/event-stream") && req.Method == http.MethodGet {
		if in.Last != "" {
			if f.After, err = count(in.Last).parse("Last-Event-ID", "invalid_last_event_id"); err != nil {
				return nil, err
			}
		}
		if f.After > 0 {
			f.Limit = maxEvents
		}
		listen := func() (<-chan struct{}, func()) { return a.DB.Listen(app.LogTopic(in.ID)) }
		return a.stream(c, listen, func(ctx context.Context) (list []event, end any, err error) {
			if _, err := a.site(ctx, c, in.ID); err != nil { // deleted, or no longer the caller's
				return nil, nil, err
			}
			lines, err := a.Apps.Logs(ctx, in.ID, f)
			for _, l := range lines {
				list, f.After = append(list, event{l.N, showProgramLine(l)}), l.N
			}
			f.After, f.Limit = max(f.After, 1), maxEvents // from now on all that follows
			return list, nil, err
		})
	}
	lines, err := a.Apps.Logs(ctx, in.ID, f)
	if err != nil {
		return nil, err
	}
	out := programLogs{Logs: each(lines, showProgramLine)}
	if len(lines) == f.Limit && f.After > 0 {
		out.Next = &lines[len(lines)-1].N
	}
	body, err := encode(out)
	if err != nil {
		return nil, err
	}
	return func(ctx huma.Context) {
		ctx.SetHeader("Content-Type", "application/json")
		ctx.SetStatus(http.StatusOK)
		ctx.BodyWriter().Write(body)
	}, nil
}

func showProgramLine(l app.Line) programLine {
	return programLine{l.N, l.At.String(), l.Level, l.Message, l.Stream, l.Process, some(l.Deployment)}
}

// showProcess is a site's program, null where it has none.
func (a *API) showProcess(s site.Site) *processBody {
	if a.Apps == nil || !hasProgram(s) {
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
