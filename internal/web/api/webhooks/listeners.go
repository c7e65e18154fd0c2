package webhooks

import (
	"context"
	"net/http"
	"reflect"
	"strings"

	"slipway/internal/platform/id"
	"slipway/internal/tenant/webhook/delivery"

	"github.com/danielgtaylor/huma/v2"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/webhook"
	"slipway/internal/web/api/contract"
)

type listenerBody struct {
	ID        webhook.ID `json:"id" example:"hook_25o5kzh3mc7yw4tn6pqd2xlfae"`
	Events    []string   `json:"events" example:"[\"deployment.completed\",\"deployment.failed\"]"`
	SiteIDs   []string   `json:"siteIds" doc:"Sites whose events it receives. Empty: all sites."`
	CreatedAt string     `json:"createdAt" format:"date-time"`
	ExpiresAt string     `json:"expiresAt" format:"date-time" doc:"When the listener ends, unless deliveries are fetched before."`
}

type offersBody struct {
	Deliveries []offerBody `json:"deliveries" doc:"Oldest first, at most 100."`
}

type offerBody struct {
	N       int64             `json:"n" doc:"Sequence number: the value for after."`
	ID      delivery.ID       `json:"id" example:"dlv_25o5kzh3mc7yw4tn6pqd2xlfae"`
	EventID string            `json:"eventId" doc:"Same as the webhook-id header."`
	Event   string            `json:"event"`
	Headers map[string]string `json:"headers" doc:"Headers of the request that an endpoint would get, including signatures."`
	Body    string            `json:"body" doc:"The exact bytes that are signed."`
}

// listenerRoutes registers the operations of listeners, which receive events of all sites, like webhooks.
func (a *API) listenerRoutes() {
	r := func(path, id, summary, doc string) contract.Route {
		return contract.Route{
			Path:    path,
			ID:      id,
			Tag:     "Webhooks",
			Summary: summary,
			Doc:     doc,
			Scope:   account.WebhooksWrite,
			Noun:    "listener",
			Wide:    true,
		}
	}
	create := r("/webhook-listeners", "createListener", "Listen for events without a URL",
		"For local development: signed deliveries wait until they are fetched. A listener ends 5 minutes after the last fetch; a "+
			"user can have 5. Used by `slipway webhooks listen`.")
	create.Status = 201
	contract.Post(a.API, create, a.createListener)
	fetch := r("/webhook-listeners/{id}/deliveries", "fetchDeliveries", "Fetch deliveries of a listener",
		"With `Accept: text/event-stream` they are streamed. Deliveries are kept for an hour: a repeated request with the same "+
			"`after` returns them again.")
	fetch.Method, fetch.Status, fetch.Stream = http.MethodGet, http.StatusOK, true
	contract.StreamRoute(a.API, fetch, reflect.TypeFor[offersBody](), a.fetchDeliveries)
	contract.Change(a.API, "DELETE", r("/webhook-listeners/{id}", "deleteListener", "Stop listening", ""), a.deleteListener)
}

type createListenerIn struct {
	Body struct {
		Events []string `json:"events,omitempty" doc:"Event types. Default: all." example:"[\"deployment.completed\",\"deployment.failed\"]"`
		Secret string   `json:"secret" doc:"Signing secret, 1 to 256 characters, 16 or more recommended. Never returned."`
		Sites  []string `json:"siteIds,omitempty" doc:"Only events of these sites."`
	}
}

func (a *API) createListener(
	ctx context.Context,
	tx *db.Tx,
	c account.Caller,
	in *createListenerIn,
) (_ listenerBody, did audit.Event, _ error) {
	if err := a.OwnSites(ctx, tx, c, "siteIds", id.From[id.Site](in.Body.Sites)); err != nil {
		return listenerBody{}, did, err
	}
	l, err := a.Webhooks.ListenTx(ctx, tx, c.Owner, webhook.NewListener(in.Body))
	did = audit.Event{Action: "webhook.listener_started", Subject: string(l.ID)}
	return listenerBody{
		l.ID,
		append([]string{}, l.Events...),
		append([]string{}, l.SiteIDs...),
		l.CreatedAt.String(),
		l.ExpiresAt.String(),
	}, did, err
}

func (a *API) deleteListener(
	ctx context.Context, tx *db.Tx, c account.Caller, in *contract.ByID[webhook.ID],
) (_ contract.Message, did audit.Event, _ error) {
	did = audit.Event{Action: "webhook.listener_stopped", Subject: string(in.ID)}
	return contract.Message{Message: "Listener stopped"}, did, a.Webhooks.StopListeningTx(ctx, tx, c.Owner, in.ID)
}

type fetchDeliveriesIn struct {
	contract.ByID[webhook.ID]
	After contract.Count `query:"after" doc:"Only deliveries after the one with this number."`
	Last  string         `header:"Last-Event-ID" doc:"Alias of after, sent by clients that resume a stream."`
}

func (a *API) fetchDeliveries(ctx context.Context, r contract.Route, in *fetchDeliveriesIn) (func(huma.Context), error) {
	req := contract.From(ctx).HTTP
	c, err := r.Permit(contract.From(ctx).Caller)
	if err != nil {
		return nil, err
	}
	after, err := in.After.Parse("after", "invalid_after")
	if err != nil {
		return nil, err
	}
	id := in.ID
	ctx = db.WithShare(ctx, string(c.Owner))
	if !strings.Contains(req.Header.Get("Accept"), "text/event-stream") || req.Method != http.MethodGet {
		list, err := a.Webhooks.Fetch(ctx, c.Owner, id, after)
		if err != nil {
			return nil, err
		}
		body, err := contract.Encode(offersBody{contract.Each(list, showOffer)})
		if err != nil {
			return nil, err
		}
		return func(ctx huma.Context) {
			ctx.SetHeader("Content-Type", "application/json")
			ctx.SetStatus(http.StatusOK)
			ctx.BodyWriter().Write(body)
		}, nil
	}
	if in.Last != "" {
		if after, err = contract.Count(in.Last).Parse("Last-Event-ID", "invalid_last_event_id"); err != nil {
			return nil, err
		}
	}
	if _, err := a.Webhooks.Fetch(ctx, c.Owner, id, after); err != nil { // for an ended listener, answer 404 instead of an empty stream
		return nil, err
	}
	return a.Stream(
		ctx,
		c,
		func() (<-chan struct{}, func()) { return a.Webhooks.Listen(id) },
		func(ctx context.Context) (list []contract.Event, end any, err error) {
			for { // until all existing deliveries were read
				offers, err := a.Webhooks.Fetch(db.WithShare(ctx, string(c.Owner)), c.Owner, id, after)
				for _, o := range offers {
					list, after = append(list, contract.Event{N: o.N, Data: showOffer(o)}), o.N
				}
				if err != nil || len(offers) == 0 || len(list) >= contract.MaxEvents {
					return list, nil, err
				}
			}
		},
	)
}

func showOffer(o webhook.Offer) offerBody {
	return offerBody{o.N, o.ID, o.EventID, o.Event, o.Header, o.Body}
}
