// Package clients owns the API clients that an installation generates from its OpenAPI document: one file each, which
// needs only its language's standard library.
//
// They are generated from the installation's own document when they are requested, so that they fit its version and
// features. Existing generators were tried first: oapi-codegen generates 170,000 lines for this document, because it
// repeats the errors of every operation, and its code needs a library. The part of a client that is always the same is
// a file in this folder, written and tested as ordinary code.
package clients

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// document is the parsed OpenAPI document.
type document struct {
	base       string
	operations []operation
	shapes     []shape
}

// operation is an operation that clients can call.
type operation struct {
	ID, Method, Path, Summary, Doc string
	Params                         []parameter // of the path, in order
	Query                          []parameter
	Body                           *schema // JSON body; nil if there is none, or it is a file
	BodyRequired                   bool
	Files                          []string // media types of a body that is a file
	Answer                         *schema  // JSON response; nil if there is none
	Raw                            bool     // the response is a file
	Stream                         bool     // the response can also be streamed
	Item                           *schema  // element of the response's pages; nil if it has none
}

type parameter struct {
	Ref, Name, In, Description string
	Required                   bool
	Schema                     *schema
}

// shape is a named schema.
type shape struct {
	Name string
	*schema
	Sent bool // part of a request body
}

type schema struct {
	Ref         string `json:"$ref"`
	Type        kinds
	Format      string
	Description string
	Deprecated  bool
	Enum        []any
	Items       *schema
	Properties  map[string]*schema
	Required    []string
	Additional  json.RawMessage `json:"additionalProperties"`
	AnyOf       []*schema
	OneOf       []*schema
}

// kinds are the types of a schema: a string or an array of strings in JSON Schema.
type kinds []string

func (k *kinds) UnmarshalJSON(text []byte) error {
	var one string
	if json.Unmarshal(text, &one) == nil {
		*k = kinds{one}
		return nil
	}
	return json.Unmarshal(text, (*[]string)(k))
}

// read parses an OpenAPI document. It leaves out hooks, whose callers have a URL rather than a key.
func read(text []byte) (*document, error) {
	var raw struct {
		Servers []struct{ URL string }
		Paths   map[string]map[string]struct {
			OperationID, Summary, Description string
			Parameters                        []parameter
			RequestBody                       *struct {
				Required bool
				Content  map[string]struct{ Schema *schema }
			}
			Responses map[string]struct {
				Content map[string]struct{ Schema *schema }
			}
		}
		Components struct{ Schemas map[string]*schema }
	}
	if err := json.Unmarshal(text, &raw); err != nil {
		return nil, fmt.Errorf("read OpenAPI document: %w", err)
	}
	if len(raw.Servers) != 1 {
		return nil, fmt.Errorf("the OpenAPI document has %d servers", len(raw.Servers))
	}
	d := &document{base: raw.Servers[0].URL}
	sent := map[string]bool{}
	for _, path := range slices.Sorted(maps.Keys(raw.Paths)) {
		if !strings.HasPrefix(path, "/api/v1/") {
			continue
		}
		for _, method := range slices.Sorted(maps.Keys(raw.Paths[path])) {
			o := raw.Paths[path][method]
			if _, socket := o.Responses["101"]; socket {
				continue // clients don't support WebSockets
			}
			op := operation{ID: o.OperationID, Method: strings.ToUpper(method), Path: path, Summary: o.Summary, Doc: o.Description}
			for _, p := range o.Parameters {
				switch p.In {
				case "path":
					op.Params = append(op.Params, p)
				case "query":
					op.Query = append(op.Query, p)
				}
			}
			slices.SortFunc(op.Params, func(a, b parameter) int {
				return strings.Index(path, "{"+a.Name+"}") - strings.Index(path, "{"+b.Name+"}")
			})
			if o.RequestBody != nil {
				op.BodyRequired = o.RequestBody.Required
				for _, kind := range slices.Sorted(maps.Keys(o.RequestBody.Content)) {
					if kind == "application/json" {
						op.Body = o.RequestBody.Content[kind].Schema
						mark(op.Body, raw.Components.Schemas, sent)
						continue
					}
					op.Files = append(op.Files, kind)
				}
			}
			for status, answer := range o.Responses {
				if status[0] != '2' {
					continue
				}
				json, isJSON := answer.Content["application/json"]
				_, stream := answer.Content["text/event-stream"]
				if isJSON {
					op.Answer = json.Schema
				}
				op.Stream = op.Stream || stream
				op.Raw = op.Raw || !isJSON && len(answer.Content) > 0
			}
			op.Item = item(op, raw.Components.Schemas)
			if op.Body != nil && len(op.Files) > 0 { // two kinds of bodies need two methods
				file := op
				file.ID, file.Body = op.ID+"File", nil
				d.operations = append(d.operations, file)
				op.Files = nil
			}
			d.operations = append(d.operations, op)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(raw.Components.Schemas)) {
		d.shapes = append(d.shapes, shape{upper(name), raw.Components.Schemas[name], sent[name]})
	}
	return d, nil
}

// item returns the element type of a list's pages, or nil.
func item(o operation, shapes map[string]*schema) *schema {
	if o.Answer == nil || !slices.ContainsFunc(o.Query, func(p parameter) bool { return p.Name == "page" }) {
		return nil
	}
	list := shapes[named(o.Answer.Ref)]
	if list == nil || list.Properties["pagination"] == nil || list.Properties["data"] == nil {
		return nil
	}
	return list.Properties["data"].Items
}

// mark marks the shapes that a request body uses.
func mark(s *schema, shapes map[string]*schema, seen map[string]bool) {
	if s == nil {
		return
	}
	if name := named(s.Ref); name != "" && !seen[name] {
		seen[name] = true
		mark(shapes[name], shapes, seen)
	}
	mark(s.Items, shapes, seen)
	mark(s.values(), shapes, seen)
	for _, parts := range [][]*schema{s.AnyOf, s.OneOf, slices.Collect(maps.Values(s.Properties))} {
		for _, p := range parts {
			mark(p, shapes, seen)
		}
	}
}

// named returns the name that a reference refers to.
func named(ref string) string { return strings.TrimPrefix(ref, "#/components/schemas/") }

// nullable reports whether a schema allows null, and returns the schema without it.
func (s *schema) nullable() (*schema, bool) {
	if len(s.AnyOf) == 2 && slices.Equal(s.AnyOf[1].Type, kinds{"null"}) {
		return s.AnyOf[0], true
	}
	if i := slices.Index(s.Type, "null"); i >= 0 {
		other := *s
		other.Type = slices.Delete(slices.Clone(s.Type), i, i+1)
		return &other, true
	}
	return s, false
}

// kind returns the only type of a schema besides null, or "" if there are several.
func (s *schema) kind() string {
	if len(s.Type) == 1 {
		return s.Type[0]
	}
	return ""
}

// values returns the element schema of an object with arbitrary names, or nil.
func (s *schema) values() *schema {
	if len(s.Additional) == 0 || s.Additional[0] != '{' {
		return nil
	}
	v := new(schema)
	if json.Unmarshal(s.Additional, v) != nil {
		return nil
	}
	return v
}

// names returns a shape's fields: required ones in the document's order, then the others.
func (s *schema) names() []string {
	out := slices.Clone(s.Required)
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return slices.DeleteFunc(out, func(name string) bool { return s.Properties[name] == nil })
}

// iterator returns the name of the method that iterates over all pages of a list: listSites becomes iterateSites.
func (o operation) iterator() (string, bool) {
	rest, ok := strings.CutPrefix(o.ID, "list")
	return "iterate" + rest, ok && o.Item != nil
}

// stream returns the name of the method that streams a log: getSiteLogs becomes streamSiteLogs.
func (o operation) stream() string {
	_, rest := splitVerb(o.ID)
	return "stream" + rest
}

func splitVerb(id string) (verb, rest string) {
	i := strings.IndexFunc(id, unicode.IsUpper)
	if i < 0 {
		return id, ""
	}
	return id[:i], id[i:]
}

// about returns the comment of a method.
func (o operation) about() string {
	return strings.TrimSpace(strings.TrimSuffix(o.Summary, ".") + ".\n\n" + o.Doc + "\n\n" + o.Method + " " + o.Path)
}

func upper(s string) string {
	first, size := utf8.DecodeRuneInString(s)
	return string(unicode.ToUpper(first)) + s[size:]
}

// choices returns the values of an enum.
func (s *schema) choices() []string {
	var out []string
	for _, v := range s.Enum {
		if text, ok := v.(string); ok {
			out = append(out, text)
		}
	}
	return out
}
