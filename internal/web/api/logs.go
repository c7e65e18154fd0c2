package api

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"slipway/internal/deploy/deployment"
	"slipway/internal/deploy/journal"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/web/requestinfo"
)

// maxLines is the most lines in one answer.
const maxLines = 10_000

// How a stream is kept alive: a poll that finds what a lost wake-up missed, a comment so
// that proxies do not hang up, and how long one event may take to be sent.
const (
	streamPoll = 2 * time.Second
	heartbeat  = 15 * time.Second
	sendTime   = 15 * time.Second
	checkTime  = 3 * time.Second // how often it is checked that the key still allows it
)

type logBody struct {
	Logs []lineBody `json:"logs"`
	Next *int64     `json:"next" doc:"The value for after, if there are more lines."`
}

type lineBody struct {
	N         int64   `json:"n" doc:"Line number, from 1 without gaps."`
	Timestamp string  `json:"timestamp" format:"date-time"`
	Level     string  `json:"level" enum:"debug,info,warn,error"`
	Stage     *string `json:"stage"`
	Message   string  `json:"message" doc:"Plain text."`
	Raw       *string `json:"raw" doc:"The message with its terminal colors (ECMA-48 SGR), if it has any."`
}

type logsIn struct {
	ByID
	After count  `query:"after" doc:"Only lines after the one with this number."`
	Last  string `header:"Last-Event-ID" doc:"Alias of after, sent by browsers that resume a stream."`
}

// count is a whole number of at least 0 in a query.
type count string

// Schema is how the reference shows it.
func (count) Schema(huma.Registry) *huma.Schema {
	zero := 0.0
	return &huma.Schema{Type: huma.TypeInteger, Minimum: &zero}
}

func (n count) parse(name, code string) (int64, error) {
	if n == "" {
		return 0, nil
	}
	v, err := strconv.ParseInt(string(n), 10, 64)
	if err != nil || v < 0 || strings.Trim(string(n), "0123456789") != "" {
		return 0, &fault.Error{
			Kind: fault.Invalid, Message: "Invalid " + name,
			Details: name + " must be a whole number of at least 0", Received: string(n), Code: code,
		}
	}
	return v, nil
}

// written is an answer that its operation writes itself.
type written struct{ Body func(huma.Context) }

// writes registers an operation that writes its own answer.
func writes[I any](a *API, r Route, op huma.Operation, do func(context.Context, Route, *I) (func(huma.Context), error)) {
	huma.Register(a.huma, op, func(ctx context.Context, in *I) (*written, error) {
		out, err := do(ctx, r, in)
		if err != nil {
			return nil, a.problem(ctx, err)
		}
		return &written{out}, nil
	})
	a.ops = append(a.ops, r)
}

func (a *API) logRoute(r Route) {
	r.Method, r.Status, r.Stream = http.MethodGet, http.StatusOK, true
	streamRoute(a, r, reflect.TypeFor[logBody](), a.logs)
}

// streamRoute lists a route that answers with JSON, or with events where the client accepts them.
func streamRoute[In any](a *API, r Route, body reflect.Type, do func(context.Context, Route, *In) (func(huma.Context), error)) {
	op := a.operation(r, body)
	op.Responses["200"].Content["text/event-stream"] = &huma.MediaType{Schema: &huma.Schema{
		Type:        huma.TypeString,
		Description: "Server-sent events whose data are log entries as JSON.",
	}}
	writes(a, r, op, do)
}

func (a *API) logs(ctx context.Context, r Route, in *logsIn) (func(huma.Context), error) {
	req := from(ctx).http
	c, err := r.permit(from(ctx).caller)
	if err != nil {
		return nil, err
	}
	d, err := a.deployment(ctx, c, in.ID)
	if err != nil {
		return nil, err
	}
	after, err := in.After.parse("after", "invalid_after")
	if err != nil {
		return nil, err
	}
	if strings.Contains(req.Header.Get("Accept"), "text/event-stream") && req.Method == http.MethodGet {
		if in.Last != "" {
			if after, err = count(in.Last).parse("Last-Event-ID", "invalid_last_event_id"); err != nil {
				return nil, err
			}
		}
		if after > 0 {
			lines, status, err := a.Deployments.Logs(ctx, c.Owner, d.ID, after, 1)
			if err != nil {
				return nil, err
			}
			if len(lines) == 0 && status.Ended() { // all of it was sent: 204 tells an EventSource not to come back
				return func(ctx huma.Context) { ctx.SetStatus(http.StatusNoContent) }, nil
			}
		}
		return a.stream(
			ctx,
			c,
			func() (<-chan struct{}, func()) { return a.Deployments.Listen(d.ID) },
			func(ctx context.Context) (list []event, end any, err error) {
				lines, status, err := a.Deployments.Logs(ctx, c.Owner, d.ID, after, maxEvents)
				for _, l := range lines {
					list, after = append(list, event{n: l.N, data: showLine(l)}), l.N
				}
				if status.Ended() {
					end = struct {
						Status deployment.Status `json:"status"`
					}{status}
				}
				return list, end, err
			},
		)
	}
	lines, _, err := a.Deployments.Logs(ctx, c.Owner, d.ID, after, maxLines+1)
	if err != nil {
		return nil, err
	}
	var next *int64
	if len(lines) > maxLines {
		lines = lines[:maxLines]
		next = &lines[maxLines-1].N
	}
	body, err := encode(logBody{each(lines, showLine), next})
	if err != nil {
		return nil, err
	}
	return func(ctx huma.Context) {
		ctx.SetHeader("Content-Type", "application/json")
		ctx.SetStatus(http.StatusOK)
		ctx.BodyWriter().Write(body)
	}, nil
}

// event is one line of a log that is followed.
type event struct {
	n    int64
	data any
}

// maxEvents is how many are asked for at once.
const maxEvents = 500

// stream answers with events for as long as there are any. listen says when to look again;
// next returns those that follow, at most maxEvents, and the last event's data where
// nothing can follow them.
func (a *API) stream(
	ctx context.Context,
	c account.Caller,
	listen func() (<-chan struct{}, func()),
	next func(context.Context) ([]event, any, error),
) (func(huma.Context), error) {
	done, ok := a.Streams.Begin(c.User, from(ctx).addr)
	if !ok {
		return nil, &fault.Error{
			Kind:       fault.Limited,
			Message:    "Too many open streams",
			Details:    fmt.Sprintf("a user can follow at most %d logs at once", requestinfo.UserStreams),
			Code:       "too_many_streams",
			RetryAfter: 5 * time.Second,
		}
	}
	return func(ctx huma.Context) {
		defer done()
		_, w := humago.Unwrap(ctx)
		wake, stop := listen() // before the first look: nothing falls between
		defer stop()
		a.follow(ctx.Context(), w, c, wake, next)
	}, nil
}

// follow sends events until nothing can follow, the client is gone, its key no longer
// allows it or the service stops; then the client comes back with Last-Event-ID.
func (a *API) follow(
	ctx context.Context,
	w http.ResponseWriter,
	c account.Caller,
	wake <-chan struct{},
	next func(context.Context) ([]event, any, error),
) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go a.watch(ctx, cancel, c)
	conn := http.NewResponseController(w)
	send := func(format string, args ...any) bool {
		if ctx.Err() != nil {
			return false
		}
		conn.SetWriteDeadline(time.Now().Add(sendTime))
		_, err := fmt.Fprintf(w, format, args...)
		return err == nil && conn.Flush() == nil
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // nginx would hold events back
	w.WriteHeader(http.StatusOK)
	poll := time.NewTicker(streamPoll)
	defer poll.Stop()
	last := time.Now()
	if !send("retry: 2000\n\n") {
		return
	}
	for a.Ready.Load() {
		events, end, err := next(ctx)
		if err != nil {
			return // the site is gone, or the database: coming back finds out which
		}
		for _, e := range events {
			data, err := encode(e.data)
			if err != nil || !send("id: %d\ndata: %s\n\n", e.n, bytes.TrimSpace(data)) {
				return
			}
			last = time.Now()
		}
		if len(events) == maxEvents {
			continue // there is more
		}
		if end != nil {
			if data, err := encode(end); err == nil {
				send("event: end\ndata: %s\n\n", bytes.TrimSpace(data))
			}
			return
		}
		if time.Since(last) > heartbeat {
			if !send(": still here\n\n") {
				return
			}
			last = time.Now()
		}
		select {
		case <-ctx.Done():
			return
		case <-wake:
		case <-poll.C:
		}
	}
}

// watch ends a stream when the key that opened it was revoked or has expired, or its user
// was suspended. A database that does not answer ends nothing.
func (a *API) watch(ctx context.Context, cancel context.CancelFunc, c account.Caller) {
	tick := time.NewTicker(checkTime)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if fault.As(a.holds(ctx, c)) != nil {
				cancel()
				return
			}
		}
	}
}

func showLine(l journal.Line) lineBody {
	return lineBody{l.N, l.At.String(), l.Level, some(l.Stage), l.Message, some(l.Raw)}
}
