package webhooks

import (
	"context"
	"encoding/json"
	"time"

	"slipway/internal/platform/id"
	"slipway/internal/tenant/webhook/delivery"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/oauth"
	"slipway/internal/tenant/webhook"
	"slipway/internal/tenant/webhook/event"
	"slipway/internal/web/api/contract"
)

type webhookBody struct {
	ID             webhook.ID `json:"id" example:"hook_25o5kzh3mc7yw4tn6pqd2xlfae"`
	URL            string     `json:"url" example:"https://example.com/hook"`
	Events         []string   `json:"events" example:"[\"deployment.completed\",\"deployment.failed\"]"`
	SiteIDs        []string   `json:"siteIds" doc:"Sites whose events it receives. Empty: all sites."`
	Active         bool       `json:"active"`
	DisabledReason *string    `json:"disabledReason" doc:"Why the service disabled it: gone (the endpoint answered 410) or failing (all deliveries failed for 5 days)."`
	FailingSince   *string    `json:"failingSince" format:"date-time"`
	OverlapEndsAt  *string    `json:"overlapEndsAt" format:"date-time" doc:"Until then, deliveries are also signed with the previous secret."`
	CreatedAt      string     `json:"createdAt" format:"date-time"`
	UpdatedAt      string     `json:"updatedAt" format:"date-time"`
}

type eventBody struct {
	Name        string          `json:"name" example:"deployment.completed"`
	Aliases     []string        `json:"aliases" doc:"Other names of the same event."`
	Group       string          `json:"group" enum:"deployment,domain,ssl,site,backup,team,usage,subscription,payment"`
	Description string          `json:"description"`
	SameAs      *string         `json:"sameAs" doc:"The first of the aliases."`
	Schema      json.RawMessage `json:"schema" doc:"JSON Schema (2020-12) of a delivery's body."`
	Sample      json.RawMessage `json:"sample" doc:"Sample body."`
}

type pinged struct {
	Message    string      `json:"message"`
	DeliveryID delivery.ID `json:"deliveryId" example:"dlv_25o5kzh3mc7yw4tn6pqd2xlfae"`
}

// webhookRoutes registers the operations of webhooks. A webhook receives events of all the user's sites, so keys
// restricted to some sites have no access.
func (a *API) webhookRoutes() {
	r := func(path, id, summary, doc string, s account.Scope) contract.Route {
		return contract.Route{Path: path, ID: id, Tag: "Webhooks", Summary: summary, Doc: doc, Scope: s, Noun: "webhook", Wide: true}
	}
	contract.Get(a.API, r("/webhooks", "listWebhooks", "List webhooks", "Newest first, without secrets.", account.WebhooksRead),
		a.listWebhooks)
	create := r("/webhooks", "createWebhook", "Create a webhook",
		"The URL must use HTTPS. Events may use either set of names. Deliveries are signed with the secret; if you don't set one, "+
			"it is generated and shown in the dashboard. It is never returned.",
		account.WebhooksWrite)
	create.Status = 201
	create.Limited = true
	contract.Post(a.API, create, a.createWebhook)
	contract.Get(a.API,
		r("/webhooks/events", "listEvents", "List event names",
			"All event types, with their aliases, the JSON Schema of the body and a sample.", account.WebhooksRead),
		a.listEvents)
	contract.Get(a.API, r("/webhooks/{id}", "getWebhook", "Read a webhook", "", account.WebhooksRead), a.getWebhook)
	contract.Change(a.API, "PATCH",
		r("/webhooks/{id}", "updateWebhook", "Change a webhook",
			"Disabling it (`active: false`) skips its queued deliveries; enabling it resets its failures. Read-only fields are "+
				"rejected unless they equal the current value.", account.WebhooksWrite),
		a.updateWebhook)
	contract.Change(a.API, "DELETE",
		r("/webhooks/{id}", "deleteWebhook", "Delete a webhook", "Its queued deliveries are not sent.", account.WebhooksWrite),
		a.deleteWebhook)
	contract.Post(a.API,
		r("/webhooks/{id}/ping", "pingWebhook", "Send a test event",
			"Queues a `ping` event, regardless of the webhook's events.", account.WebhooksWrite),
		a.pingWebhook)
	contract.Post(a.API,
		r("/webhooks/{id}/rotate-secret", "rotateWebhookSecret", "Rotate a webhook's secret",
			"Until the overlap ends, `X-Service-Signature` uses the old secret, `X-Service-Signature-Next` the new one, and "+
				"`webhook-signature` has both signatures. "+
				"An overlap of 0 replaces the secret immediately; use it if the secret has leaked. A generated secret is shown only in the dashboard.",
			account.WebhooksWrite),
		a.rotateSecret)
	a.deliveryRoutes()
	a.listenerRoutes()
}

func (a *API) listWebhooks(ctx context.Context, c account.Caller, in *contract.PartIn) (contract.Data[webhookBody], error) {
	list, err := a.Webhooks.List(ctx, c.Owner)
	return contract.Part(*in, contract.Each(list, showWebhook), err)
}

type createWebhookIn struct {
	Body struct {
		URL    string   `json:"url" doc:"HTTPS, without user info, at most 2,048 characters."`
		Events []string `json:"events" minItems:"1" doc:"Event types." example:"[\"deployment.completed\",\"deployment.failed\"]"`
		Secret *string  `json:"secret,omitempty" doc:"Signing secret, 1 to 256 characters, 16 or more recommended. Default: generated."`
		Sites  []string `json:"siteIds,omitempty" doc:"Only events of these sites."`
	}
}

func (a *API) createWebhook(
	ctx context.Context,
	tx *db.Tx,
	c account.Caller,
	in *createWebhookIn,
) (_ webhookBody, did audit.Event, _ error) {
	if err := a.OwnSites(ctx, tx, c, "siteIds", id.From[id.Site](in.Body.Sites)); err != nil {
		return webhookBody{}, did, err
	}
	w, err := a.Webhooks.CreateTx(ctx, tx, c.Owner, webhook.NewWebhook(in.Body))
	if err == nil {
		err = a.OAuth.MadeTx(ctx, tx, c, oauth.Webhook, string(w.ID))
	}
	did = audit.Event{Action: "webhook.created", Subject: string(w.ID), Detail: w.URL}
	return showWebhook(w), did, err
}

func (a *API) listEvents(_ context.Context, _ account.Caller, in *contract.PartIn) (contract.Data[eventBody], error) {
	return contract.Part(*in, contract.Each(a.Webhooks.Catalogue(), func(e event.Entry) eventBody {
		b := eventBody{
			Name:        e.Name,
			Aliases:     []string{},
			Group:       e.Group,
			Description: e.Description,
			SameAs:      contract.Some(e.SameAs),
			Schema:      e.Schema,
			Sample:      e.Sample,
		}
		if e.SameAs != "" {
			b.Aliases = append(b.Aliases, e.SameAs)
		}
		return b
	}), nil)
}

func (a *API) getWebhook(ctx context.Context, c account.Caller, in *contract.ByID[webhook.ID]) (webhookBody, error) {
	w, err := a.Webhooks.Get(ctx, c.Owner, in.ID)
	return showWebhook(w), err
}

type updateWebhookIn struct {
	contract.ByID[webhook.ID]
	Body struct {
		URL    *string  `json:"url,omitempty"`
		Events []string `json:"events,omitempty" minItems:"1"`
		Active *bool    `json:"active,omitempty"`
		Sites  []string `json:"siteIds,omitempty" doc:"Only events of these sites. Empty: all sites."`
	}
}

func (a *API) updateWebhook(
	ctx context.Context,
	tx *db.Tx,
	c account.Caller,
	in *updateWebhookIn,
) (_ webhookBody, did audit.Event, _ error) {
	now, err := a.Webhooks.GetTx(ctx, tx, c.Owner, in.ID)
	if err == nil {
		err = a.OAuth.Changes(ctx, tx, c, oauth.Webhook, string(in.ID))
	}
	if err != nil {
		return webhookBody{}, did, err
	}
	err = contract.CheckPatch(ctx, "webhook", []string{"url", "events", "active", "siteIds"}, showWebhook(now), map[string]string{
		"secret": string("rotate it with POST /webhooks/" + in.ID + "/rotate-secret"),
	})
	if err != nil {
		return webhookBody{}, did, err
	}
	if err := a.OwnSites(ctx, tx, c, "siteIds", id.From[id.Site](in.Body.Sites)); err != nil {
		return webhookBody{}, did, err
	}
	w, err := a.Webhooks.UpdateTx(ctx, tx, c.Owner, in.ID, webhook.Change(in.Body))
	did = audit.Event{Action: "webhook.updated", Subject: string(in.ID), Detail: w.URL}
	return showWebhook(w), did, err
}

func (a *API) deleteWebhook(
	ctx context.Context, tx *db.Tx, c account.Caller, in *contract.ByID[webhook.ID],
) (_ contract.Message, did audit.Event, _ error) {
	w, err := a.Webhooks.DeleteTx(ctx, tx, c.Owner, in.ID)
	if err == nil {
		err = a.OAuth.Changes(ctx, tx, c, oauth.Webhook, string(in.ID))
	}
	did = audit.Event{Action: "webhook.deleted", Subject: string(in.ID), Detail: w.URL}
	return contract.Message{Message: "Webhook deleted"}, did, err
}

func (a *API) pingWebhook(
	ctx context.Context, tx *db.Tx, c account.Caller, in *contract.ByID[webhook.ID],
) (_ pinged, did audit.Event, _ error) {
	id, err := a.Webhooks.PingTx(ctx, tx, c.Owner, in.ID)
	did = audit.Event{Action: "webhook.pinged", Subject: string(in.ID)}
	return pinged{"Test event queued", id}, did, err
}

type rotateSecretIn struct {
	contract.ByID[webhook.ID]
	Body *struct {
		Secret         *string `json:"secret,omitempty" doc:"Signing secret, 1 to 256 characters, 16 or more recommended. Default: generated."`
		OverlapSeconds *int    `json:"overlapSeconds,omitempty" minimum:"0" maximum:"604800" default:"86400" doc:"How long deliveries are also signed with the old secret. 0: not at all."`
	}
}

type rotated struct {
	Message       string  `json:"message"`
	OverlapEndsAt *string `json:"overlapEndsAt" format:"date-time" doc:"Null if the old secret was replaced immediately."`
}

func (a *API) rotateSecret(
	ctx context.Context,
	tx *db.Tx,
	c account.Caller,
	in *rotateSecretIn,
) (_ rotated, did audit.Event, _ error) {
	var secret *string
	overlap := webhook.Overlap
	if b := in.Body; b != nil {
		secret = b.Secret
		if b.OverlapSeconds != nil {
			overlap = time.Duration(*b.OverlapSeconds) * time.Second
		}
	}
	w, err := a.Webhooks.RotateTx(ctx, tx, c.Owner, in.ID, secret, overlap)
	if err == nil {
		err = a.OAuth.Changes(ctx, tx, c, oauth.Webhook, string(in.ID))
	}
	did = audit.Event{Action: "webhook.secret_rotated", Subject: string(in.ID), Detail: w.URL}
	return rotated{"Secret rotated", contract.When(w.OverlapEnds)}, did, err
}

func showWebhook(w webhook.Webhook) webhookBody {
	return webhookBody{
		w.ID,
		w.URL,
		append([]string{}, w.Events...),
		append([]string{}, w.SiteIDs...),
		w.Active,
		contract.Some(w.Reason),
		contract.When(w.FailingSince),
		contract.When(w.OverlapEnds),
		w.CreatedAt.String(),
		w.UpdatedAt.String(),
	}
}
