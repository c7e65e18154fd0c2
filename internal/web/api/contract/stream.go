package contract

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"slipway/internal/platform/fault"
	"slipway/internal/platform/panics"
	"slipway/internal/tenant/account"
	"slipway/internal/web/requestinfo"
)

// Intervals of streams: of polls, which find changes whose notification was lost, of comments, which keep proxies from
// closing the connection, and the timeout of sending one event.
const (
	streamPoll = 2 * time.Second
	heartbeat  = 15 * time.Second
	SendTime   = 15 * time.Second
	checkTime  = 3 * time.Second // interval for checking that the key is still valid
)

// Count is a non-negative integer in a query.
type Count string

// Schema returns its schema in the document.
func (Count) Schema(huma.Registry) *huma.Schema {
	zero := 0.0
	return &huma.Schema{Type: huma.TypeInteger, Minimum: &zero}
}

func (n Count) Parse(name, code string) (int64, error) {
	if n == "" {
		return 0, nil
	}
	v, err := strconv.ParseInt(string(n), 10, 64)
	if err != nil || v < 0 || strings.Trim(string(n), "0123456789") != "" {
		return 0, fault.New(fault.Invalid, code, "Invalid "+name, name+" must be a whole number of at least 0").Got(string(n))
	}
	return v, nil
}

// written is an answer that its operation writes itself.
type written struct{ Body func(huma.Context) }

// Writes registers an operation that writes its own answer.
func Writes[I any](a *API, r Route, op huma.Operation, do func(context.Context, Route, *I) (func(huma.Context), error)) {
	huma.Register(a.huma, op, func(ctx context.Context, in *I) (*written, error) {
		out, err := do(ctx, r, in)
		if err != nil {
			return nil, a.problem(ctx, err)
		}
		return &written{out}, nil
	})
	a.ops = append(a.ops, r)
}

// StreamRoute registers a route that answers with JSON, or with events if the client accepts them.
func StreamRoute[In any](a *API, r Route, body reflect.Type, do func(context.Context, Route, *In) (func(huma.Context), error)) {
	op := a.Operation(r, body)
	op.Responses["200"].Content["text/event-stream"] = &huma.MediaType{Schema: &huma.Schema{
		Type:        huma.TypeString,
		Description: "Server-sent events whose data are log entries as JSON.",
	}}
	Writes(a, r, op, do)
}

// Event is one line of a streamed log.
type Event struct {
	N    int64
	Data any
}

// MaxEvents caps the events read at once.
const MaxEvents = 500

// Stream answers with events. listen returns a channel that signals new ones. next returns at most MaxEvents events
// after the given one and, if no more can follow, the data of the final event.
func (a *API) Stream(
	ctx context.Context,
	c account.Caller,
	listen func() (<-chan struct{}, func()),
	next func(context.Context) ([]Event, any, error),
) (func(huma.Context), error) {
	done, ok := a.Streams.Begin(c.User, From(ctx).Addr)
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
		wake, stop := listen() // before the first read, so that no event is missed
		defer stop()
		a.follow(ctx.Context(), w, c, wake, next)
	}, nil
}

// follow sends events until no more can follow, the client is gone, its key is no longer valid or the service stops.
// The client then reconnects with Last-Event-ID.
func (a *API) follow(
	ctx context.Context,
	w http.ResponseWriter,
	c account.Caller,
	wake <-chan struct{},
	next func(context.Context) ([]Event, any, error),
) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// right: application log that is followed
	panics.Go(func() { a.Watch(ctx, cancel, c) })
	conn := http.NewResponseController(w)
	send := func(format string, args ...any) bool {
		if ctx.Err() != nil {
			return false
		}
		conn.SetWriteDeadline(time.Now().Add(SendTime))
		_, err := fmt.Fprintf(w, format, args...)
		return err == nil && conn.Flush() == nil
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // nginx would buffer events
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
			return // the site is gone, or the database is unavailable: a reconnect finds out which
		}
		for _, e := range events {
			data, err := Encode(e.Data)
			if err != nil || !send("id: %d\ndata: %s\n\n", e.N, bytes.TrimSpace(data)) {
				return
			}
			last = time.Now()
		}
		if len(events) == MaxEvents {
			continue // there are more
		}
		if end != nil {
			if data, err := Encode(end); err == nil {
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

// Watch cancels a stream when its key was revoked or has expired, when its user was suspended, and when still returns
// an error, because its subject is no longer the caller's. An unavailable database doesn't end streams.
func (a *API) Watch(ctx context.Context, cancel context.CancelFunc, c account.Caller, still ...func(context.Context) error) {
	defer cancel() // also after a panic: a stream must not continue unwatched
	tick := time.NewTicker(checkTime)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			err := a.Holds(ctx, c)
			for _, theirs := range still {
				err = cmp.Or(err, theirs(ctx))
			}
			if fault.As(err) != nil {
				return
			}
		}
	}
}
