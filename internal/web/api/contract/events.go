package contract

import (
	"encoding/json"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"slipway/internal/tenant/webhook/event"
)

// webhooksDoc returns the document's description of outgoing webhooks (OpenAPI 3.1, "webhooks").
func (a *API) webhooksDoc() map[string]*huma.PathItem {
	header := func(name, what string) *huma.Param {
		return &huma.Param{Name: name, In: "header", Description: what, Schema: &huma.Schema{Type: huma.TypeString}}
	}
	out := map[string]*huma.PathItem{}
	for _, e := range event.Catalogue(a.Billing) {
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
					header("X-Service-Signature",
						"sha256= and the lower-case hex HMAC-SHA256 of the body, keyed with the webhook's secret."),
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

// eventSchema converts a JSON Schema of the event catalogue to the document's type.
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
		panic(err) // the catalogue is part of the program
	}
	s := &huma.Schema{Format: of.Format, Enum: of.Enum, Required: of.Required}
	switch t := of.Type.(type) {
	case string:
		s.Type = t
	case []any: // a type and null
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
