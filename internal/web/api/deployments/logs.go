package deployments

import (
	"context"
	"net/http"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"slipway/internal/deploy/deployment"
	"slipway/internal/deploy/journal"
	"slipway/internal/web/api/contract"
)

// maxLines caps the lines in one answer.
const maxLines = 10_000

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
	contract.ByID[string]
	After contract.Count `query:"after" doc:"Only lines after the one with this number."`
	Last  string         `header:"Last-Event-ID" doc:"Alias of after, sent by browsers that resume a stream."`
}

func (a *API) logRoute(r contract.Route) {
	r.Method, r.Status, r.Stream = http.MethodGet, http.StatusOK, true
	contract.StreamRoute(a.API, r, reflect.TypeFor[logBody](), a.logs)
}

func (a *API) logs(ctx context.Context, r contract.Route, in *logsIn) (func(huma.Context), error) {
	req := contract.From(ctx).HTTP
	c, err := r.Permit(contract.From(ctx).Caller)
	if err != nil {
		return nil, err
	}
	d, err := a.deployment(ctx, c, in.ID)
	if err != nil {
		return nil, err
	}
	after, err := in.After.Parse("after", "invalid_after")
	if err != nil {
		return nil, err
	}
	if strings.Contains(req.Header.Get("Accept"), "text/event-stream") && req.Method == http.MethodGet {
		if in.Last != "" {
			if after, err = contract.Count(in.Last).Parse("Last-Event-ID", "invalid_last_event_id"); err != nil {
				return nil, err
			}
		}
		if after > 0 {
			lines, status, err := a.Deployments.Logs(ctx, c.Owner, d.ID, after, 1)
			if err != nil {
				return nil, err
			}
			if len(lines) == 0 && status.Ended() { // everything was sent: 204 tells an EventSource not to reconnect
				return func(ctx huma.Context) { ctx.SetStatus(http.StatusNoContent) }, nil
			}
		}
		return a.Stream(
			ctx,
			c,
			func() (<-chan struct{}, func()) { return a.Deployments.Listen(d.ID) },
			func(ctx context.Context) (list []contract.Event, end any, err error) {
				lines, status, err := a.Deployments.Logs(ctx, c.Owner, d.ID, after, contract.MaxEvents)
				for _, l := range lines {
					list, after = append(list, contract.Event{N: l.N, Data: showLine(l)}), l.N
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
	body, err := contract.Encode(logBody{contract.Each(lines, showLine), next})
	if err != nil {
		return nil, err
	}
	return func(ctx huma.Context) {
		ctx.SetHeader("Content-Type", "application/json")
		ctx.SetStatus(http.StatusOK)
		ctx.BodyWriter().Write(body)
	}, nil
}

func showLine(l journal.Line) lineBody {
	return lineBody{l.N, l.At.String(), l.Level, contract.Some(l.Stage), l.Message, contract.Some(l.Raw)}
}
