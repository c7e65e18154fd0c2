package programs

import (
	"context"
	"math"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"slipway/internal/build/framework"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/program/app"
	"slipway/internal/program/applog"
	"slipway/internal/program/figures"
	"slipway/internal/program/task"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/site"
	"slipway/internal/web/api/contract"
)

type ProcessBody struct {
	State        string   `json:"state" enum:"none,starting,running,sleeping,stopped,crashed" doc:"State of the program. The next request wakes a sleeping one."`
	Since        *string  `json:"since" format:"date-time"`
	DeploymentID *string  `json:"deploymentId"`
	Restarts     int      `json:"restarts"`
	MemoryBytes  int64    `json:"memoryBytes"`
	Message      *string  `json:"message" doc:"Why it crashed."`
	Instances    *int     `json:"instances,omitempty" doc:"How many instances run. Only with run.instances."`
	NeedsRestart bool     `json:"needsRestart" doc:"Whether command, memoryMiB, cpus, pids, storage, storageMiB, ports or a variable changed since it started. Restart it to apply them. Other settings apply within seconds, and release on the next deployment."`
	Written      []string `json:"written" doc:"Folders, which end with a slash, and files that the program wrote to outside of storage. They are lost at its next start; name the folders in run.storage to keep them."`
}

type programLogs struct {
	Logs []programLine `json:"logs"`
	Next *int64        `json:"next" doc:"The value for after, if there are more lines."`
}

type programLine struct {
	N            int64   `json:"n" doc:"Increases with each line of the site."`
	Timestamp    string  `json:"timestamp" format:"date-time"`
	Level        string  `json:"level" enum:"debug,info,warn,error" doc:"Log level, detected from the line's text."`
	Message      string  `json:"message"`
	Stream       string  `json:"stream" enum:"stdout,stderr,system"`
	Process      string  `json:"process"`
	DeploymentID *string `json:"deploymentId"`
}

func (a *API) programRoutes() {
	contract.StreamRoute(a.API, contract.Route{
		Method:  http.MethodGet,
		Status:  http.StatusOK,
		Stream:  true,
		Path:    "/sites/{id}/logs",
		ID:      "getSiteLogs",
		Tag:     "Applications",
		Summary: "Read a site's application log",
		Scope:   account.SitesRead,
		Noun:    "site",
		Doc: "The latest lines, oldest first; with `after`, the lines after that number. The last 10,000 lines of a site are kept. " +
			"With `Accept: text/event-stream` the log is streamed: one event per line with its number as id, and comments as " +
			"heartbeats. `Last-Event-ID` resumes a stream.",
	}, reflect.TypeFor[programLogs](), a.siteLogs)
	contract.Get(a.API, contract.Route{
		Path:    "/sites/{id}/metrics",
		ID:      "getSiteMetrics",
		Tag:     "Applications",
		Summary: "Read the metrics of a site's program",
		Scope:   account.SitesRead,
		Noun:    "site",
		Doc: "Requests, response times and resource usage of the program. By default a point covers a minute if `since` is up to " +
			"two hours ago, 15 minutes up to a day, otherwise an hour. At most 31 days. " +
			"Static files that are served without the program are not counted. Figures appear within about ten seconds.",
	}, a.siteMetrics)
	contract.Get(a.API, contract.Route{
		Path:    "/sites/{id}/processes",
		ID:      "getSiteProcesses",
		Tag:     "Applications",
		Summary: "List background processes",
		Scope:   account.SitesRead,
		Noun:    "site",
		Doc: "Workers and scheduled commands of the live deployment, from slipway.toml or the Procfile. Their output is in " +
			"the site's log, tagged with `process`.",
	}, a.siteProcesses)
	contract.Get(a.API, contract.Route{
		Path:    "/sites/{id}/crons",
		ID:      "listCrons",
		Tag:     "Applications",
		Summary: "List a site's scheduled commands",
		Scope:   account.SitesRead,
		Noun:    "site",
		Doc: "Scheduled commands of the live deployment, from slipway.toml, with the result of the last run. Their output is " +
			"in the site's log, with the process `cron:` and the name.",
	}, a.listCrons)
	contract.Post(a.API, contract.Route{
		Path:    "/sites/{id}/crons/{name}/run",
		ID:      "runCron",
		Tag:     "Applications",
		Summary: "Run a scheduled command now",
		Scope:   account.SitesWrite,
		Noun:    "site",
		Status:  http.StatusAccepted,
		Doc:     "Starts an operation that runs it once, in addition to its schedule.",
	}, a.runCron)
	contract.Post(a.API, contract.Route{
		Path:    "/sites/{id}/commands",
		ID:      "runCommand",
		Tag:     "Applications",
		Summary: "Run a command once",
		Scope:   account.SitesWrite,
		Noun:    "site",
		Status:  http.StatusAccepted,
		Doc: "Starts an operation that runs a command in the files of the live deployment, with the program's sandbox, runtime " +
			"variables and limits, and without a port. " +
			"Its output is in the site's log, with the process `command`; the operation's result has the exit code and the last 64 " +
			"KiB of output. A site runs one command at a time.",
	}, a.runCommand)
	contract.Post(a.API, contract.Route{
		Path:    "/sites/{id}/restart",
		ID:      "restartSite",
		Tag:     "Applications",
		Summary: "Restart a site's application",
		Scope:   account.SitesWrite,
		Noun:    "site",
		Status:  http.StatusAccepted,
		Doc: "Starts an operation that starts a new instance with the current settings and variables, and switches to it once it " +
			"is healthy. No request is dropped. " +
			"If the new instance isn't healthy, the old one keeps running. A sleeping application isn't started; the next request " +
			"starts it with the current settings.",
	}, a.restartSite)
}

func (a *API) restartSite(
	ctx context.Context, tx *db.Tx, c account.Caller, in *contract.ByID[site.ID],
) (_ contract.OperationBody, did audit.Event, _ error) {
	s, err := a.Sites.GetTx(ctx, tx, c.Owner, in.ID)
	if err != nil {
		return contract.OperationBody{}, did, err
	}
	if err := c.RequireSite(in.ID); err != nil {
		return contract.OperationBody{}, did, err
	}
	switch {
	case !hasProgram(s):
		return contract.OperationBody{}, did, fault.New(fault.Conflict, "no_program", "This site has no application to restart",
			"it serves static files")
	case s.Status == site.Stopped:
		return contract.OperationBody{}, did, fault.New(fault.Conflict, "site_stopped", "This site is stopped", "start it instead")
	}
	op, err := a.Apps.RestartTx(ctx, tx, c.Owner, in.ID, s.LiveDeployment)
	did = audit.Event{Action: "site.restarted", Subject: string(in.ID)}
	return contract.ShowOperation(op), did, err
}

type runCommandIn struct {
	contract.ByID[site.ID]
	Body struct {
		Command        string `json:"command" maxLength:"4096" example:"node scripts/import.js" doc:"The command. Run without a shell unless it needs one."`
		TimeoutSeconds *int   `json:"timeoutSeconds,omitempty" doc:"Timeout in seconds, 1 to 3600. Default: 600."`
	}
}

func (a *API) runCommand(
	ctx context.Context,
	tx *db.Tx,
	c account.Caller,
	in *runCommandIn,
) (out contract.OperationBody, did audit.Event, err error) {
	s, err := a.Sites.GetTx(ctx, tx, c.Owner, in.ID)
	if err != nil {
		return out, did, err
	}
	if err := c.RequireSite(in.ID); err != nil {
		return out, did, err
	}
	timeout := app.CommandTime
	if t := in.Body.TimeoutSeconds; t != nil {
		if *t < 1 || *t > int(app.MaxCommandTime/time.Second) {
			return out, did, fault.New(fault.Invalid, "invalid_timeout", "Invalid timeoutSeconds", "1 to 3600").Got(*t)
		}
		timeout = time.Duration(*t) * time.Second
	}
	command := strings.TrimSpace(in.Body.Command)
	switch {
	case command == "" || len(command) > 4096 || strings.ContainsRune(command, 0):
		return out, did, fault.New(fault.Invalid, "invalid_command", "Invalid command", "1 to 4,096 bytes of text")
	case !hasProgram(s):
		return out, did, fault.New(fault.Conflict, "no_program", "This site has no program",
			"commands run in the files of an application")
	case s.Status == site.Stopped:
		return out, did, fault.New(fault.Conflict, "site_stopped", "This site is stopped", "start it first")
	}
	parsed := framework.ParseCommand(command)
	op, err := a.Apps.RunTx(ctx, tx, c, in.ID, s.LiveDeployment, task.Command{Argv: parsed.Argv, Shell: parsed.Shell}, timeout)
	program := "a shell" // its text may contain a secret
	if len(parsed.Argv) > 0 {
		program = parsed.Argv[0]
	}
	return contract.ShowOperation(op), audit.Event{Action: "site.command", Subject: string(in.ID), Detail: program}, err
}

type siteMetricsIn struct {
	contract.ByID[site.ID]
	Since contract.Since `query:"since" doc:"A time (RFC 3339) or an age such as 90m, 24h (the default) or 30d." example:"24h"`
	Until contract.Since `query:"until" doc:"A time or an age. Default: now. The last point includes it."`
	Step  string         `query:"step" doc:"The time that a point covers: 1m or 15m (up to 25 hours ago) or 1h (up to 31 days ago). Default: depends on since."`
}

// metricSteps lists the durations of a data point.
var metricSteps = map[string]time.Duration{"": 0, "1m": time.Minute, "15m": 15 * time.Minute, "1h": time.Hour}

type metricsBody struct {
	Step  string       `json:"step" enum:"1m,15m,1h"`
	Total FiguresBody  `json:"total" doc:"Sum of all points."`
	Data  []metricSpan `json:"data" doc:"Points, oldest first, without gaps."`

	Storage storageBody `json:"storage" doc:"Storage of the site's programs."`
}

type storageBody struct {
	Bytes      int64   `json:"bytes" doc:"Bytes on disk, including previews. Counts towards the account's storage.bytes."`
	MeasuredAt *string `json:"measuredAt" format:"date-time" doc:"When it was measured: every 30 seconds while a program runs. Null: not yet."`
	Full       bool    `json:"full" doc:"Whether the account's storage limit is reached, so that programs can't store more."`
}

type metricSpan struct {
	At string `json:"at" format:"date-time" doc:"Start of the point."`
	FiguresBody
}

// FiguresBody holds the figures of a period. It is exported because huma ignores embedded types that aren't.
type FiguresBody struct {
	Requests    int64                 `json:"requests"`
	Bytes       int64                 `json:"bytes" doc:"Bytes of response bodies."`
	Statuses    contract.StatusesBody `json:"statuses"`
	Latency     latencyBody           `json:"latencyMs" doc:"Time to first byte in milliseconds, including wake-ups, estimated from a histogram. Zero without requests."`
	MemoryBytes int64                 `json:"memoryBytes" doc:"Maximum."`
	CPUSeconds  float64               `json:"cpuSeconds"`
	Restarts    int64                 `json:"restarts" doc:"Crashes and requested restarts."`
	Wakes       int64                 `json:"wakes" doc:"Starts caused by a request."`
}

type latencyBody struct {
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P95 float64 `json:"p95"`
	P99 float64 `json:"p99"`
}

func (a *API) siteMetrics(ctx context.Context, c account.Caller, in *siteMetricsIn) (metricsBody, error) {
	if _, err := a.Site(ctx, c, in.ID); err != nil {
		return metricsBody{}, err
	}
	at, err := in.Since.Parse(db.Now())
	if err != nil {
		return metricsBody{}, err
	}
	until := db.Now()
	if in.Until != "" {
		if until, err = in.Until.Parse(until); err != nil {
			return metricsBody{}, fault.New(fault.Invalid, "invalid_until", "Invalid until",
				"until must be a timestamp such as 2027-01-31T12:00:00Z or a duration such as 90m").Got(string(in.Until))
		}
	}
	step, ok := metricSteps[in.Step]
	if !ok {
		return metricsBody{}, fault.New(fault.Invalid, "invalid_step", "Invalid step", "step must be 1m, 15m or 1h").Got(in.Step)
	}
	list, total, step, err := a.Apps.Metrics(ctx, in.ID, min(at, db.Now()), until, step)
	if err != nil {
		return metricsBody{}, err
	}
	stored, err := a.Apps.StorageUse(ctx, in.ID)
	name := ""
	for n, d := range metricSteps {
		if n != "" && d == step {
			name = n
		}
	}
	return metricsBody{
		Step:    name,
		Total:   showFigures(total),
		Data:    contract.Each(list, func(p figures.Point) metricSpan { return metricSpan{p.At.String(), showFigures(p.Figures)} }),
		Storage: storageBody{Bytes: stored.Bytes, MeasuredAt: contract.When(stored.MeasuredAt), Full: stored.Capped > 0},
	}, err
}

func showFigures(f figures.Figures) FiguresBody {
	ms := func(share float64) float64 { return math.Round(float64(f.Latency(share).Microseconds())/100) / 10 }
	return FiguresBody{
		Requests: f.Requests(),
		Bytes:    f.Bytes,
		Statuses: contract.StatusesBody{
			OK: f.Statuses[0], Redirected: f.Statuses[1], ClientErrors: f.Statuses[2],
			ServerErrors: f.Statuses[3],
		},
		Latency:     latencyBody{ms(.5), ms(.9), ms(.95), ms(.99)},
		MemoryBytes: f.Memory,
		CPUSeconds:  math.Round(f.CPU.Seconds()*100) / 100,
		Restarts:    f.Restarts,
		Wakes:       f.Wakes,
	}
}

type processesBody struct {
	Processes []taskBody `json:"processes"`
}

type taskBody struct {
	Name     string  `json:"name"`
	Kind     string  `json:"kind" enum:"worker,cron"`
	Process  string  `json:"process" doc:"Process name in the site's log." example:"worker:mail"`
	Command  string  `json:"command"`
	Schedule *string `json:"schedule" doc:"Schedule of a cron, in UTC."`
	NextRun  *string `json:"nextRun" format:"date-time"`
	State    *string `json:"state" enum:"starting,running,stopped,crashed" doc:"State of a worker on this node."`
	Restarts int     `json:"restarts"`
	Message  *string `json:"message" doc:"Why it crashed."`
}

func (a *API) siteProcesses(ctx context.Context, c account.Caller, in *contract.ByID[site.ID]) (processesBody, error) {
	if _, err := a.Site(ctx, c, in.ID); err != nil {
		return processesBody{}, err
	}
	list, err := a.Apps.Tasks(ctx, in.ID)
	return processesBody{contract.Each(list, showTask)}, err
}

func showTask(t app.TaskState) taskBody {
	return taskBody{
		Name:     t.Name,
		Kind:     t.Kind,
		Process:  t.Kind + ":" + t.Name,
		Command:  t.Command.String(),
		Schedule: contract.Some(t.Schedule),
		NextRun:  contract.When(t.Next),
		State:    contract.Some(string(t.State)),
		Restarts: t.Restarts,
		Message:  contract.Some(t.Message),
	}
}

type cronBody struct {
	Name         string  `json:"name"`
	Schedule     string  `json:"schedule" doc:"Schedule, in UTC." example:"*/15 * * * *"`
	Command      string  `json:"command"`
	NextAt       *string `json:"nextAt" format:"date-time"`
	LastAt       *string `json:"lastAt" format:"date-time" doc:"Start of the last run. Null if it hasn't run."`
	LastExitCode *int    `json:"lastExitCode" doc:"Exit code of the last run. Null if it hasn't run, is running or was interrupted."`
}

func (a *API) listCrons(ctx context.Context, c account.Caller, in *contract.PartOf[site.ID]) (contract.Data[cronBody], error) {
	if _, err := a.Site(ctx, c, in.ID); err != nil {
		return contract.Data[cronBody]{}, err
	}
	list, err := a.Apps.Tasks(ctx, in.ID)
	out := []cronBody{}
	for _, t := range list {
		if t.Schedule == "" {
			continue // background processes have no requests
		}
		b := cronBody{
			Name: t.Name, Schedule: t.Schedule, Command: t.Command.String(), NextAt: contract.When(t.Next),
			LastAt: contract.When(t.Last),
		}
		if t.Last > 0 && t.LastExit >= 0 {
			b.LastExitCode = &t.LastExit
		}
		out = append(out, b)
	}
	return contract.Part(in.PartIn, out, err)
}

type runCronIn struct {
	contract.ByID[site.ID]
	Name string `path:"name" maxLength:"64" doc:"Name of the scheduled command."`
}

func (a *API) runCron(
	ctx context.Context,
	tx *db.Tx,
	c account.Caller,
	in *runCronIn,
) (out contract.OperationBody, did audit.Event, err error) {
	s, err := a.Sites.GetTx(ctx, tx, c.Owner, in.ID)
	if err != nil {
		return out, did, err
	}
	if err := c.RequireSite(in.ID); err != nil {
		return out, did, err
	}
	if s.Status == site.Stopped {
		return out, did, fault.New(fault.Conflict, "site_stopped", "This site is stopped", "start it first")
	}
	op, err := a.Apps.RunCronTx(ctx, tx, c.Owner, in.ID, in.Name)
	return contract.ShowOperation(op), audit.Event{Action: "site.command", Subject: string(in.ID), Detail: "cron:" + in.Name}, err
}

// hasProgram reports whether the site is served by a program.
func hasProgram(s site.Site) bool {
	return s.Runtime != "" && s.Runtime != "static" && s.LiveDeployment != ""
}

type siteLogsIn struct {
	contract.ByID[site.ID]
	After   contract.Count `query:"after" doc:"Only lines with a greater number."`
	Since   contract.Since `query:"since" doc:"Only lines since then: a time (RFC 3339) or an age such as 90m, 24h or 7d." example:"90m"`
	Search  string         `query:"search" maxLength:"200" doc:"Only lines that contain this text, ignoring case."`
	Stream  string         `query:"stream" doc:"Only lines of stdout, stderr or system."`
	Level   string         `query:"level" doc:"Only lines of one level: debug, info, warn or error."`
	Process string         `query:"process" maxLength:"64" doc:"Only lines of one process: web, worker:name, cron:name, release or command."`
	Tail    contract.Count `query:"tail" doc:"Number of latest lines, 1 to 1,000: like limit without after."`
	Limit   contract.Count `query:"limit" doc:"Maximum number of lines, 1 to 1,000. Default: 100. A stream starts with that many."`
	Last    string         `header:"Last-Event-ID" doc:"Alias of after, sent by browsers that resume a stream."`
}

func (in *siteLogsIn) filter() (f applog.Filter, err error) {
	f.Search, f.Stream, f.Level, f.Process = in.Search, in.Stream, in.Level, in.Process
	if f.After, err = in.After.Parse("after", "invalid_after"); err != nil {
		return f, err
	}
	limit, err := in.Limit.Parse("limit", "invalid_limit")
	if err != nil {
		return f, err
	}
	tail, err := in.Tail.Parse("tail", "invalid_tail")
	if err != nil {
		return f, err
	}
	if in.Tail != "" && (in.Limit != "" || in.After != "") {
		return f, fault.New(fault.Invalid, "invalid_tail", "Invalid tail",
			"tail is the newest lines alone: leave out after and limit").Got(string(in.Tail))
	}
	limit = max(limit, tail)
	f.Limit = int(min(limit, 1000))
	if f.Limit == 0 {
		f.Limit = 100
	}
	switch in.Stream {
	case "", "stdout", "stderr", "system":
	default:
		return f, fault.New(fault.Invalid, "invalid_stream", "Invalid stream",
			"stream must be stdout, stderr or system").Got(in.Stream)
	}
	switch in.Level {
	case "", "debug", "info", "warn", "error":
	default:
		return f, fault.New(fault.Invalid, "invalid_level", "Invalid level",
			"level must be debug, info, warn or error").Got(in.Level)
	}
	if in.Since != "" {
		f.Since, err = in.Since.Parse(db.Now())
	}
	return f, err
}

func (a *API) siteLogs(ctx context.Context, r contract.Route, in *siteLogsIn) (func(huma.Context), error) {
	req := contract.From(ctx).HTTP
	c, err := r.Permit(contract.From(ctx).Caller)
	if err != nil {
		return nil, err
	}
	if _, err := a.Site(ctx, c, in.ID); err != nil {
		return nil, err
	}
	f, err := in.filter()
	if err != nil {
		return nil, err
	}
	if strings.Contains(req.Header.Get("Accept"), "text/event-stream") && req.Method == http.MethodGet {
		if in.Last != "" {
			if f.After, err = contract.Count(in.Last).Parse("Last-Event-ID", "invalid_last_event_id"); err != nil {
				return nil, err
			}
		}
		if f.After > 0 {
			f.Limit = contract.MaxEvents
		}
		listen := func() (<-chan struct{}, func()) { return a.DB.Listen(applog.Topic(in.ID)) }
		return a.Stream(ctx, c, listen, func(ctx context.Context) (list []contract.Event, end any, err error) {
			if _, err := a.Site(ctx, c, in.ID); err != nil { // deleted, or no longer the caller's
				return nil, nil, err
			}
			lines, err := a.Apps.Logs(ctx, in.ID, f)
			for _, l := range lines {
				list, f.After = append(list, contract.Event{N: l.N, Data: showProgramLine(l)}), l.N
			}
			f.After, f.Limit = max(f.After, 1), contract.MaxEvents // stream everything from now on
			return list, nil, err
		})
	}
	lines, err := a.Apps.Logs(ctx, in.ID, f)
	if err != nil {
		return nil, err
	}
	out := programLogs{Logs: contract.Each(lines, showProgramLine)}
	if len(lines) == f.Limit && f.After > 0 {
		out.Next = &lines[len(lines)-1].N
	}
	body, err := contract.Encode(out)
	if err != nil {
		return nil, err
	}
	return func(ctx huma.Context) {
		ctx.SetHeader("Content-Type", "application/json")
		ctx.SetStatus(http.StatusOK)
		ctx.BodyWriter().Write(body)
	}, nil
}

func showProgramLine(l applog.Line) programLine {
	return programLine{l.N, l.At.String(), l.Level, l.Message, l.Stream, l.Process, contract.Some(string(l.Deployment))}
}

// ShowProcess returns the state of a site's program; null if it has none.
func ShowProcess(apps *app.Apps, s *site.Site) *ProcessBody {
	if apps == nil || !hasProgram(*s) {
		return nil
	}
	p := apps.Status(s.LiveDeployment)
	if s.Status == site.Stopped {
		p.State, p.Message = app.Stopped, ""
	}
	b := &ProcessBody{
		State:        string(p.State),
		DeploymentID: contract.Some(string(s.LiveDeployment)),
		Restarts:     p.Restarts,
		MemoryBytes:  p.Memory,
		Message:      contract.Some(p.Message),
		NeedsRestart: p.NeedsRestart,
		Written:      []string{},
	}
	for _, w := range p.Written {
		if w.Folder {
			w.Path += "/"
		}
		b.Written = append(b.Written, w.Path)
	}
	if s.Run.Instances != nil || p.Instances > 1 {
		b.Instances = &p.Instances
	}
	if !p.Since.IsZero() {
		at := db.Time(p.Since.UnixMilli()).String()
		b.Since = &at
	}
	return b
}
