package webhooks

import (
	"context"
	"strings"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/webhook"
	"slipway/internal/tenant/webhook/delivery"
	"slipway/internal/web/api/contract"
)

type deliveryBody struct {
	ID            delivery.ID   `json:"id" example:"dlv_25o5kzh3mc7yw4tn6pqd2xlfae"`
	EventID       string        `json:"eventId" doc:"Also sent as the webhook-id header; use it to detect duplicates." example:"evt_25o5kzh3mc7yw4tn6pqd2xlfae"`
	Event         string        `json:"event"`
	Status        string        `json:"status" enum:"pending,sending,succeeded,failed,skipped"`
	RedeliveryOf  *string       `json:"redeliveryOf" doc:"The delivery that this redelivery repeats."`
	Body          string        `json:"body" doc:"The exact bytes of the request body."`
	CreatedAt     string        `json:"createdAt" format:"date-time"`
	NextAttemptAt *string       `json:"nextAttemptAt" format:"date-time"`
	CompletedAt   *string       `json:"completedAt" format:"date-time"`
	Attempts      []attemptBody `json:"attempts" doc:"Oldest first."`
}

type attemptBody struct {
	Number     int     `json:"number"`
	StartedAt  string  `json:"startedAt" format:"date-time"`
	DurationMS int     `json:"durationMs"`
	StatusCode *int    `json:"statusCode" doc:"Null if there was no response."`
	Error      *string `json:"error" enum:"blocked_address,timeout,dns_error,connect_error,certificate_unknown_authority,certificate_wrong_name,certificate_expired,no_tls,tls_error,closed_early,connection_error,redirect_not_followed,secret_unreadable,internal_error"`
	Reason     *string `json:"reason" doc:"The error and how to fix it."`
	Request    string  `json:"request" doc:"Request line and headers, including signatures."`
	Response   *string `json:"response" doc:"Status line and headers of the response, at most 4 KiB."`
	Answer     *string `json:"answer" doc:"The first 4 KiB of the response body."`
}

func (a *API) deliveryRoutes() {
	r := func(path, id, summary, doc string, s account.Scope) contract.Route {
		return contract.Route{Path: path, ID: id, Tag: "Webhooks", Summary: summary, Doc: doc, Scope: s, Noun: "delivery", Wide: true}
	}
	contract.Get(a.API,
		r("/webhooks/{id}/deliveries", "listDeliveries", "List a webhook's deliveries",
			"Newest first, with all attempts. Deliveries are kept for 30 days, at most the latest 100,000 of an account, divided equally "+
				"among its webhooks. Filter with `state`, `event` and `since`. Failed deliveries include those skipped while the webhook "+
				"was disabled. "+
				"`event` is looked for among the newest 10,000 deliveries that the rest of the filter leaves, and `total` counts at most 100,000.",
			account.WebhooksRead),
		a.listDeliveries)
	one := r("/webhooks/{id}/deliveries/{delivery}/redeliver", "redeliver", "Redeliver an event",
		"Queues a new delivery with the same `webhook-id` and the same bytes, signed with the current secret.", account.WebhooksWrite)
	one.Status = 202
	contract.Post(a.API, one, a.redeliver)
	all := r("/webhooks/{id}/redeliver", "redeliverAll", "Redeliver events since a time",
		"Starts an operation that redelivers failed events, oldest first. Events that have been delivered meanwhile or are pending are skipped.",
		account.WebhooksWrite)
	all.Status = 202
	contract.Post(a.API, all, a.redeliverAll)
	contract.Post(a.API,
		r("/webhooks/{id}/enable", "enableWebhook", "Enable a webhook",
			"Resets its failures. With `redeliverSince`, the operation in the response redelivers events that failed or were skipped since then.",
			account.WebhooksWrite),
		a.enableWebhook)
}

type listDeliveriesIn struct {
	contract.ByID[webhook.ID]
	contract.PageIn
	State string         `query:"state" enum:"pending,succeeded,failed" doc:"Only deliveries in this state."`
	Event string         `query:"event" doc:"Only deliveries of this event." example:"deployment.failed"`
	Since contract.Since `query:"since" doc:"Only deliveries created since then: a time (RFC 3339) or an age such as 90m, 24h or 30d." example:"24h"`
}

func (a *API) listDeliveries(ctx context.Context, c account.Caller, in *listDeliveriesIn) (contract.Page[deliveryBody], error) {
	p, err := in.Parse()
	if err != nil {
		return contract.Page[deliveryBody]{}, err
	}
	f := webhook.Filter{State: in.State}
	if in.Event != "" {
		f.Events = []string{in.Event}
	}
	if in.Since != "" {
		if f.Since, err = in.Since.Parse(db.Now()); err != nil {
			return contract.Page[deliveryBody]{}, err
		}
	}
	list, total, err := a.Webhooks.Search(ctx, c.Owner, in.ID, f, p.Page, p.Limit)
	return contract.Paged(contract.Each(list, showDelivery), p, total), err
}

type redeliverIn struct {
	contract.ByID[webhook.ID]
	Delivery string `path:"delivery"`
}

func (a *API) redeliver(ctx context.Context, tx *db.Tx, c account.Caller, in *redeliverIn) (_ pinged, did audit.Event, _ error) {
	id, err := a.Webhooks.RedeliverTx(ctx, tx, c.Owner, in.ID, delivery.ID(in.Delivery))
	did = audit.Event{Action: "webhook.redelivered", Subject: string(in.ID), Detail: in.Delivery}
	return pinged{"Redelivery queued", id}, did, err
}

type redeliverAllIn struct {
	contract.ByID[webhook.ID]
	Body struct {
		Since  string   `json:"since" doc:"A time (RFC 3339) or an age such as 90m, 24h or 30d." example:"24h"`
		Until  string   `json:"until,omitempty" doc:"A time (RFC 3339). Default: now."`
		Events []string `json:"events,omitempty" doc:"Only deliveries of these events. Default: all."`
		State  string   `json:"state,omitempty" enum:"failed,succeeded" default:"failed"`
	}
}

func (a *API) redeliverAll(
	ctx context.Context,
	tx *db.Tx,
	c account.Caller,
	in *redeliverAllIn,
) (_ contract.OperationBody, did audit.Event, _ error) {
	f := webhook.Filter{State: in.Body.State, Events: in.Body.Events}
	var err error
	if f.Since, err = moment("since", in.Body.Since); err != nil {
		return contract.OperationBody{}, did, err
	}
	if f.Until, err = moment("until", in.Body.Until); err != nil {
		return contract.OperationBody{}, did, err
	}
	op, err := a.Webhooks.RedeliverAllTx(ctx, tx, c.Owner, in.ID, f)
	did = audit.Event{Action: "webhook.redelivered", Subject: string(in.ID), Detail: "since " + f.Since.String()}
	return contract.ShowOperation(op), did, err
}

// moment parses a time in the formats of since; empty is 0.
func moment(field, text string) (db.Time, error) {
	if text == "" {
		return 0, nil
	}
	at, err := contract.Since(text).Parse(db.Now())
	if f := fault.As(err); f != nil && field != "since" {
		return 0, fault.New(f.Kind, "invalid_"+contract.Snake(field), "Invalid "+field,
			strings.Replace(f.Details, "since", field, 1)).Got(f.Received)
	}
	return at, err
}

type enableIn struct {
	contract.ByID[webhook.ID]
	Body *struct {
		RedeliverSince string `json:"redeliverSince,omitempty" doc:"A time (RFC 3339) or an age such as 90m, 24h or 30d." example:"5d"`
	}
}

type enabled struct {
	Message   string                  `json:"message"`
	Webhook   webhookBody             `json:"webhook"`
	Operation *contract.OperationBody `json:"operation" doc:"The redelivery. Null without redeliverSince."`
}

func (a *API) enableWebhook(ctx context.Context, tx *db.Tx, c account.Caller, in *enableIn) (_ enabled, did audit.Event, _ error) {
	var from db.Time
	if in.Body != nil {
		var err error
		if from, err = moment("redeliverSince", in.Body.RedeliverSince); err != nil {
			return enabled{}, did, err
		}
	}
	w, op, err := a.Webhooks.EnableTx(ctx, tx, c.Owner, in.ID, from)
	did = audit.Event{Action: "webhook.enabled", Subject: string(in.ID), Detail: w.URL}
	out := enabled{Message: "Webhook enabled", Webhook: showWebhook(w)}
	if op != nil {
		b := contract.ShowOperation(*op)
		out.Operation = &b
	}
	return out, did, err
}

func showDelivery(d webhook.Delivery) deliveryBody {
	return deliveryBody{
		d.ID,
		d.EventID,
		d.Event,
		d.State,
		contract.Some(string(d.Repeats)),
		d.Body,
		d.CreatedAt.String(),
		contract.When(d.NextAt),
		contract.When(d.FinishedAt),
		contract.Each(d.Attempts, func(t webhook.Attempt) attemptBody {
			b := attemptBody{
				t.N,
				t.StartedAt.String(),
				t.Duration,
				nil,
				contract.Some(t.Error),
				contract.Some(delivery.Reasons[t.Error]),
				t.Request,
				contract.Some(t.Response),
				contract.Some(t.Answer),
			}
			if t.Status != 0 {
				b.StatusCode = &t.Status
			}
			return b
		}),
	}
}
