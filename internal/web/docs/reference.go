package docs

import (
	"encoding/json"
	"html/template"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"slipway/internal/platform/lazyregexp"
)

// group is a noun of the API with its operations, shown on one page.
type group struct {
	ID, Name, Text string
	Operations     []described
}

// described is an operation with the data of its section.
type described struct {
	Operation
	Params, Body, Answer []field
	Sample               string     // example response
	SameAs               *described // earlier operation on the page with the same response, which isn't repeated
	Errors               []int
	call                 call
}

// withoutRepeats removes responses that an earlier operation of the page shows.
func withoutRepeats(list []described) {
	first := map[string]*described{}
	for i := range list {
		o := &list[i]
		if earlier := first[o.Sample]; earlier != nil && o.Sample != "" {
			o.SameAs, o.Sample, o.Answer = earlier, "", nil
			continue
		}
		first[o.Sample] = o
	}
}

// Socket reports whether the operation is a WebSocket. These have no examples, since not every language's HTTP client
// opens one.
func (o described) Socket() bool { return o.Status == http.StatusSwitchingProtocols }

// Example returns the call in a language.
func (o described) Example(id string) string {
	for _, l := range languages {
		if l.ID == id {
			return l.snippet(o.call)
		}
	}
	return ""
}

type field struct {
	Name, Type, In string
	Required       bool
	Doc            string
	Depth          int
}

// describe returns the data of an operation's section.
func (d *Docs) describe(o Operation) described {
	doc := d.OpenAPI
	op, registry := operationOf(doc, o), doc.Components.Schemas
	step, _ := Example(o.ID)
	out := described{Operation: o, call: newCall(o, step, d.base(o))}
	for _, p := range op.Parameters {
		if p.Ref != "" || p.In == "path" {
			continue
		}
		out.Params = append(out.Params, field{
			Name: p.Name, In: p.In, Type: kind(registry, p.Schema), Required: p.Required, Doc: p.Description,
		})
	}
	if op.RequestBody != nil && op.RequestBody.Content["application/json"] != nil {
		out.Body = fields(registry, op.RequestBody.Content["application/json"].Schema, 0)
	}
	if answer := op.Responses[strconv.Itoa(o.Status)]; answer != nil && !o.Open && answer.Content["application/json"] != nil {
		s := answer.Content["application/json"].Schema
		out.Answer = fields(registry, s, 0)
		text, _ := json.MarshalIndent(sample(registry, s, "", 0), "", "  ") // values of this program can't fail
		out.Sample = string(text)
	}
	for code := range op.Responses {
		if n, err := strconv.Atoi(code); err == nil && n >= 400 {
			out.Errors = append(out.Errors, n)
		}
	}
	slices.Sort(out.Errors)
	return out
}

func operationOf(doc *huma.OpenAPI, o Operation) *huma.Operation {
	item := doc.Paths[o.Path]
	return map[string]*huma.Operation{
		"GET": item.Get, "POST": item.Post, "PUT": item.Put, "PATCH": item.Patch,
		"DELETE": item.Delete,
	}[o.Method]
}

var placeholders = lazyregexp.New(`\{[a-zA-Z0-9]+\}`)

var code = lazyregexp.New("`([^`]+)`")

// inline escapes text and shows `code` as code.
func inline(s string) template.HTML {
	return template.HTML(code.ReplaceAllString(template.HTMLEscapeString(s), "<code>$1</code>"))
}

// breakable escapes a name such as deployment.started or sites:write and allows a line break after its first part.
func breakable(name string) template.HTML {
	return template.HTML(strings.NewReplacer(".", ".<wbr>", ":", ":<wbr>").Replace(template.HTMLEscapeString(name)))
}
