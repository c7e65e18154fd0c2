package api

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/oauth"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/webhook"
)

type webhookBody struct {
	ID             string   `json:"id" example:"hook_25o5kzh3mc7yw4tn6pqd2xlfae"`
	URL            string   `json:"url" example:"https://example.com/hook"`
	Events         []string `json:"events" example:"[\"deployment.completed\",\"deployment.failed\"]"`
	SiteIDs        []string `json:"siteIds" doc:"Sites whose events it receives. Empty: all sites."`
	Active         bool     `json:"active"`
	DisabledReason *string  `json:"disabledReason" doc:"Why the service disabled it: gone (the endpoint answered 410) or failing (all deliveries failed for 5 days)."`
	FailingSince   *string  `json:"failingSince" format:"date-time"`
	OverlapEndsAt  *string  `json:"overlapEndsAt" format:"date-time" doc:"Until then, deliveries are also signed with the previous secret."`
	CreatedAt      string   `json:"createdAt" format:"date-time"`
	UpdatedAt      string   `json:"updatedAt" format:"date-time"`
}

type eventBody struct {
	Name        string          `json:"name" example:"deployment.completed"`
	Aliases     []string        `json:"aliases" doc:"Other names of the same event."`
	Group       string          `json:"group" enum:"deployment,domain,ssl,site,backup,team,subscription,payment"`
	Description string          `json:"description"`
	SameAs      *string         `json:"sameAs" doc:"The first of the aliases."`
	Schema      json.RawMessage `json:"schema" doc:"JSON Schema (2020-12) of a delivery's body."`
	Sample      json.RawMessage `json:"sample" doc:"Sample body."`
}

type pinged struct {
	Message    string `json:"message"`
	DeliveryID string `json:"deliveryId" example:"dlv_25o5kzh3mc7yw4tn6pqd2xlfae"`
}

// webhookRoutes: a webhook hears of all sites of its user, so a key that is restricted
// to some may not have any.
func (a *API) webhookRoutes() {
	r := func(path, id, summary, doc string, s account.Scope) Route {
		return Route{Path: path, ID: id, Tag: "Webhooks", Summary: summary, Doc: doc, Scope: s, Noun: "webhook", Wide: true}
	}
	get(a, r("/webhooks", "listWebhooks", "List webhooks", "Newest first, without secrets.", account.WebhooksRead), a.listWebhooks)
	create := r(
		"/webhooks", "createWebhook", "Create a webhook",
		"The URL must use HTTPS. Events may use either set of names. Deliveries are signed with the secret; if you don't set one, it is generated and shown in the dashboard. It is never returned.",
		account.WebhooksWrite,
	)
	create.Status = 201
	create.Limited = true
	post(a, create, a.createWebhook)
	get(
		a,
		r(
			"/webhooks/events", "listEvents", "List event names",
			"All event types, with their aliases, the JSON Schema of the body and a sample.",
			account.WebhooksRead,
		),
		a.listEvents,
	)
	get(a, r("/webhooks/{id}", "getWebhook", "Read a webhook", "", account.WebhooksRead), a.getWebhook)
	change(
		a,
		"PATCH",
		r(
			"/webhooks/{id}", "updateWebhook", "Change a webhook",
			"Disabling it (`active: false`) skips its queued deliveries; enabling it resets its failures. Read-only fields are rejected unless they equal the current value.",
			account.WebhooksWrite,
		),
		a.updateWebhook,
	)
	change(
		a,
		"DELETE",
		r("/webhooks/{id}", "deleteWebhook", "Delete a webhook", "Its queued deliveries are not sent.", account.WebhooksWrite),
		a.deleteWebhook,
	)
	post(
		a,
		r(
			"/webhooks/{id}/ping", "pingWebhook", "Send a test event",
			"Queues a `ping` event, regardless of the webhook's events.", account.WebhooksWrite,
		),
		a.pingWebhook,
	)
	post(
		a,
		r(
			"/webhooks/{id}/rotate-secret",
			"rotateWebhookSecret",
			"Rotate a webhook's secret",
			"Until the overlap ends, `X-Service-Signature` uses the old secret, `X-Service-Signature-Next` the new one, and `webhook-signature` has both signatures. "+
				"An overlap of 0 replaces the secret immediately; use it if the secret has leaked. A generated secret is shown only in the dashboard.",
			account.WebhooksWrite,
		),
		a.rotateSecret,
	)
	a.deliveryRoutes()
	a.listenerRoutes()
}

func (a *API) listWebhooks(ctx context.Context, c account.Caller, in *PartIn) (data[webhookBody], error) {
	list, err := a.Webhooks.List(ctx, c.Owner)
	return part(*in, each(list, showWebhook), err)
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
	if err := a.ownSites(ctx, tx, c, "siteIds", in.Body.Sites); err != nil {
		return webhookBody{}, did, err
	}
	w, err := a.Webhooks.CreateTx(ctx, tx, c.Owner, webhook.NewWebhook(in.Body))
	if err == nil {
		err = a.OAuth.MadeTx(ctx, tx, c, oauth.Webhook, string(w.ID))
	}
	did = audit.Event{Action: "webhook.created", Subject: string(w.ID), Detail: w.URL}
	return showWebhook(w), did, err
}

func (a *API) listEvents(_ context.Context, _ account.Caller, in *PartIn) (data[eventBody], error) {
	return part(*in, each(webhook.Catalogue(), func(e webhook.Entry) eventBody {
		b := eventBody{
			Name:        e.Name,
			Aliases:     []string{},
			Group:       e.Group,
			Description: e.Description,
			SameAs:      some(e.SameAs),
			Schema:      e.Schema,
			Sample:      e.Sample,
		}
		if e.SameAs != "" {
			b.Aliases = append(b.Aliases, e.SameAs)
		}
		return b
	}), nil)
}

func (a *API) getWebhook(ctx context.Context, c account.Caller, in *ByID) (webhookBody, error) {
	w, err := a.Webhooks.Get(ctx, c.Owner, webhook.ID(in.ID))
	return showWebhook(w), err
}

type updateWebhookIn struct {
	ByID
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
	now, err := a.Webhooks.GetTx(ctx, tx, c.Owner, webhook.ID(in.ID))
	if err == nil {
		err = a.OAuth.Changes(ctx, tx, c, oauth.Webhook, in.ID)
	}
	if err != nil {
		return webhookBody{}, did, err
	}
	err = checkPatch(ctx, "webhook", []string{"url", "events", "active", "siteIds"}, showWebhook(now), map[string]string{
		"secret": "rotate it with POST /webhooks/" + in.ID + "/rotate-secret",
	})
	if err != nil {
		return webhookBody{}, did, err
	}
	if err := a.ownSites(ctx, tx, c, "siteIds", in.Body.Sites); err != nil {
		return webhookBody{}, did, err
	}
	w, err := a.Webhooks.UpdateTx(ctx, tx, c.Owner, webhook.ID(in.ID), webhook.Change(in.Body))
	did = audit.Event{Action: "webhook.updated", Subject: in.ID, Detail: w.URL}
	return showWebhook(w), did, err
}

func (a *API) deleteWebhook(ctx context.Context, tx *db.Tx, c account.Caller, in *ByID) (_ message, did audit.Event, _ error) {
	w, err := a.Webhooks.DeleteTx(ctx, tx, c.Owner, webhook.ID(in.ID))
	if err == nil {
		err = a.OAuth.Changes(ctx, tx, c, oauth.Webhook, in.ID)
	}
	did = audit.Event{Action: "webhook.deleted", Subject: in.ID, Detail: w.URL}
	return message{"Webhook deleted"}, did, err
}

func (a *API) pingWebhook(ctx context.Context, tx *db.Tx, c account.Caller, in *ByID) (_ pinged, did audit.Event, _ error) {
	id, err := a.Webhooks.PingTx(ctx, tx, c.Owner, webhook.ID(in.ID))
	did = audit.Event{Action: "webhook.pinged", Subject: in.ID}
	return pinged{"Test event queued", string(id)}, did, err
}

type rotateSecretIn struct {
	ByID
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
	w, err := a.Webhooks.RotateTx(ctx, tx, c.Owner, webhook.ID(in.ID), secret, overlap)
	if err == nil {
		err = a.OAuth.Changes(ctx, tx, c, oauth.Webhook, in.ID)
	}
	did = audit.Event{Action: "webhook.secret_rotated", Subject: in.ID, Detail: w.URL}
	return rotated{"Secret rotated", when(w.OverlapEnds)}, did, err
}

// maxNamed is how many sites a request can name: each is looked up in a transaction that
// others wait for.
const maxNamed = 100

// ownSites refuses sites in a field that are not the caller's.
func (a *API) ownSites(ctx context.Context, tx *db.Tx, c account.Caller, field string, ids []string) error {
	ids = slices.Compact(slices.Sorted(slices.Values(ids)))
	if len(ids) > maxNamed {
		return &fault.Error{
			Kind:    fault.Invalid,
			Message: "Too many sites in " + field,
			Details: fmt.Sprintf("at most %d; leave it out for all sites", maxNamed),
			Code:    "invalid_" + snake(field),
		}
	}
	for _, id := range ids {
		if _, err := a.Sites.GetTx(ctx, tx, c.Owner, site.ID(id)); fault.Is(err, fault.NotFound) {
			return &fault.Error{
				Kind:     fault.Invalid,
				Message:  "Unknown site in " + field,
				Details:  field + " holds ids of your sites",
				Received: id,
				Code:     "invalid_" + snake(field),
			}
		} else if err != nil {
			return err
		}
	}
	return nil
}

func showWebhook(w webhook.Webhook) webhookBody {
	return webhookBody{
		string(w.ID),
		w.URL,
		append([]string{}, w.Events...),
		append([]string{}, w.SiteIDs...),
		w.Active,
		some(w.Reason),
		when(w.FailingSince),
		when(w.OverlapEnds),
		w.CreatedAt.String(),
		w.UpdatedAt.String(),
	}
}

// webhooksDoc describes what the service itself sends (OpenAPI 3.1, "webhooks").
func webhooksDoc() map[string]*huma.PathItem {
	header := func(name, what string) *huma.Param {
		return &huma.Param{Name: name, In: "header", Description: what, Schema: &huma.Schema{Type: huma.TypeString}}
	}
	out := map[string]*huma.PathItem{}
	for _, e := range webhook.Catalogue() {
		doc := e.Description
		if e.SameAs != "" {
			doc += " The same event as `" + e.SameAs + "`."
		}
		out[e.Name] = &huma.PathItem{
			Post: &huma.Operation{
				OperationID: "on" + strings.ReplaceAll(e.Name, ".", "_"),
				Tags:        []string{"Webhooks"},
				Summary:     e.Name,
				Description: doc,
				Parameters: []*huma.Param{
					header(
						"X-Service-Signature",
						"sha256= and the lower-case hex HMAC-SHA256 of the body, keyed with the webhook's secret.",
					),
					header("webhook-id", "The event's id; use it to detect duplicates."),
					header("webhook-timestamp", "Unix time in seconds of this attempt."),
					header("webhook-signature", "Standard Webhooks signatures, separated by spaces."),
				},
				RequestBody: &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{"application/json": {
					Schema: eventSchema(e.Schema), Example: e.Sample,
				}}},
				Responses: map[string]*huma.Response{
					"2XX": {Description: "Received."},
					"410": {Description: "No further events are sent: the webhook is disabled."},
				},
			},
		}
	}
	return out
}

// eventSchema turns a catalogue's JSON Schema into the document's.
func eventSchema(text json.RawMessage) *huma.Schema {
	var of struct {
		Type       any
		Format     string
		Enum       []any
		Const      any
		Items      json.RawMessage
		Properties map[string]json.RawMessage
		Required   []string
	}
	if err := json.Unmarshal(text, &of); err != nil {
		panic(err) // the catalogue is ours
	}
	s := &huma.Schema{Format: of.Format, Enum: of.Enum, Required: of.Required}
	switch t := of.Type.(type) {
	case string:
		s.Type = t
	case []any: // and null
		s.Type, s.Nullable = t[0].(string), true
	}
	if of.Const != nil {
		s.Type, s.Enum = huma.TypeString, []any{of.Const}
	}
	if of.Items != nil {
		s.Items = eventSchema(of.Items)
	}
	for name, p := range of.Properties {
		if s.Properties == nil {
			s.Properties = map[string]*huma.Schema{}
		}
		s.Properties[name] = eventSchema(p)
	}
	return s
}
