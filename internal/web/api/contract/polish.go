package contract

import (
	"bytes"
	"encoding/json"
	"strings"

	"slipway/internal/tenant/webhook/event"
)

// polish adds to the document's JSON what huma must not validate itself: limits whose errors are ours, and values that
// the services check.
func (a *API) polish(spec []byte) ([]byte, error) {
	var doc map[string]any
	dec := json.NewDecoder(bytes.NewReader(spec))
	dec.UseNumber()
	if err := dec.Decode(&doc); err != nil {
		return nil, err
	}
	withoutExtras(doc)
	for path, item := range objectAt(doc, "paths") {
		for _, op := range item.(map[string]any) {
			if op, ok := op.(map[string]any); ok {
				parameters(path, op)
			}
		}
	}
	a.nameEvents(objectAt(doc, "components", "schemas"))
	return Encode(doc)
}

// objectAt returns the object at a path of names, or nil.
func objectAt(v map[string]any, names ...string) map[string]any {
	for _, n := range names {
		v, _ = v[n].(map[string]any)
	}
	return v
}

// withoutExtras removes huma's fields that OpenAPI doesn't define.
func withoutExtras(v any) {
	switch v := v.(type) {
	case map[string]any:
		delete(v, "patternDescription")
		for _, x := range v {
			withoutExtras(x)
		}
	case []any:
		for _, x := range v {
			withoutExtras(x)
		}
	}
}

// parameters adds descriptions of path parameters, and limits and defaults of query parameters.
func parameters(path string, op map[string]any) {
	list, _ := op["parameters"].([]any)
	for _, p := range list {
		p, _ := p.(map[string]any)
		schema := objectAt(p, "schema")
		if schema == nil {
			continue
		}
		text, _ := p["description"].(string)
		whole := strings.Contains(text, "whole list is returned") // no defaults without page and limit
		switch name, in := p["name"], p["in"]; {
		case in == "path" && text == "":
			p["description"] = pathParameter(path, name.(string))
		case name == "page" && !whole:
			schema["default"] = 1
		case name == "limit" && strings.HasSuffix(path, "/logs"): // counts lines rather than items
			schema["minimum"], schema["maximum"], schema["default"] = 1, 1000, 100
		case name == "limit" && strings.HasSuffix(path, "/missing"):
			schema["maximum"], schema["default"] = MaxMissing, MaxMissing
		case name == "limit":
			schema["maximum"] = 100
			if !whole {
				schema["default"] = 25
			}
		case name == "after" && schema["type"] == "integer": // a line number; elsewhere it is the previous page's next
			schema["default"] = 0
		}
		delete(schema, "description") // already on the parameter
	}
}

// pathParameter describes a path parameter.
func pathParameter(path, name string) string {
	if name == "id" {
		path = strings.TrimPrefix(path, "/api/v1/")
		noun, rest, _ := strings.Cut(path, "/")
		switch noun {
		case "hooks":
			return "The deploy hook's id."
		case "notifications":
			return "The notification channel's id."
		case "webhook-listeners":
			return "The webhook listener's id."
		case "git", "oauth":
			noun, _, _ = strings.Cut(rest, "/") // an account, an app or a grant
		}
		return "The " + strings.TrimSuffix(noun, "s") + "'s id."
	}
	if text, ok := map[string]string{
		"key": "The variable's name.", "hook": "The deploy hook's id, which is a secret.",
		"sha256": "The blob's SHA-256, in hexadecimal.", "number": "The pull request's number.", "userId": "The member's user id.",
	}[name]; ok {
		return text
	}
	return "The " + name + "'s id."
}

// nameEvents lists the allowed event names in fields for events. A delivery may also have the test event.
func (a *API) nameEvents(schemas map[string]any) {
	var names []any
	for _, e := range event.Catalogue(a.Billing) {
		names = append(names, e.Name)
	}
	schemas["EventName"] = map[string]any{"type": "string", "enum": names, "description": "The name of an event, of either set."}
	ref := map[string]any{"$ref": "#/components/schemas/EventName"}
	for _, s := range schemas {
		s, _ := s.(map[string]any)
		properties := objectAt(s, "properties")
		// Notifications have different events.
		if events := objectAt(properties, "events"); events != nil && objectAt(events, "items")["enum"] == nil {
			events["items"] = ref
		}
		switch event := objectAt(properties, "event"); {
		case event != nil:
			event["enum"] = append([]any{"ping"}, names...)
		case objectAt(properties, "sample") != nil:
			properties["name"] = ref
		}
	}
}

const MaxMissing = 10_000
