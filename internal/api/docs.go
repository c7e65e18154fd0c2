package api

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"slipway/internal/webhook"
)

var (
	//go:embed docs.html
	docsHTML string
	//go:embed home.html
	homeHTML string
	//go:embed docs.css
	docsCSS string
)

// reference is what docs.html shows.
type reference struct {
	CSS             template.CSS
	BaseURL, APIURL string
	Limit           int
	Groups          []group
	Scopes          [][2]string
	Failures        []failure
	Events          []webhook.Entry
}

type group struct {
	ID, Name, Text string
	Ops            []operation
}

type operation struct {
	ID, Method, Path, Summary, Scope string
	Doc                              template.HTML
	Params, Body, Answer             []field
	Status                           int
	Curl, Example                    string
	Errors                           []int
}

type field struct {
	Name, Type, In string
	Required       bool
	Doc            template.HTML
	Depth          int
}

type failure struct {
	Status int
	When   template.HTML
}

// render makes the reference page and the page at /, once: they hold nothing of a user.
func (a *API) render(doc *huma.OpenAPI) (docs, home []byte) {
	ref := reference{CSS: template.CSS(docsCSS), BaseURL: a.BaseURL, APIURL: a.APIURL, Limit: a.RateLimit, Scopes: scopes(), Events: webhook.Catalogue()}
	for _, t := range doc.Tags {
		g := group{ID: anchor(t.Name), Name: t.Name, Text: t.Description}
		for _, r := range a.ops {
			if r.Tag == t.Name {
				g.Ops = append(g.Ops, a.describe(doc, r))
			}
		}
		ref.Groups = append(ref.Groups, g)
	}
	for status, f := range failures {
		ref.Failures = append(ref.Failures, failure{status, inline(f.when)})
	}
	slices.SortFunc(ref.Failures, func(a, b failure) int { return a.Status - b.Status })
	page := func(name, text string) []byte {
		var b bytes.Buffer
		if err := template.Must(template.New(name).Parse(text)).Execute(&b, ref); err != nil {
			panic(err) // our own template over our own values: every test would end here
		}
		return b.Bytes()
	}
	return page("docs", docsHTML), page("home", homeHTML)
}

// servePage answers everything outside of /api and /hooks.
func (a *API) servePage(w http.ResponseWriter, r *http.Request) {
	body := map[string][]byte{"/": a.home, "/docs": a.docs}[r.URL.Path]
	sum := sha256.Sum256([]byte(docsCSS))
	h := w.Header()
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	h.Set("Referrer-Policy", "no-referrer")
	switch {
	case body == nil:
		http.NotFound(w, r)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "Method not allowed", http.StatusMethodNotAllowed)
	default:
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Content-Length", strconv.Itoa(len(body)))
		w.Write(body)
	}
}

// describe turns a route and what the document says of it into what the page shows.
func (a *API) describe(doc *huma.OpenAPI, r Route) operation {
	op, registry := operationOf(doc, r), doc.Components.Schemas
	o := operation{ID: r.ID, Method: r.Method, Path: op.Path, Summary: r.Summary, Scope: string(r.Scope), Doc: inline(r.Doc), Status: r.Status}
	var query []string
	for _, p := range op.Parameters {
		if p.Ref != "" || p.In == "path" {
			continue
		}
		o.Params = append(o.Params, field{Name: p.Name, In: p.In, Type: kind(registry, p.Schema), Required: p.Required, Doc: inline(p.Description)})
		if p.In == "query" && len(query) < 2 {
			query = append(query, p.Name+"="+fmt.Sprint(sample(registry, p.Schema, p.Name, 0)))
		}
	}
	base := a.BaseURL
	if r.Hook {
		base, query = a.APIURL, nil
	}
	curl := "curl"
	if r.Method != http.MethodGet {
		curl += " -X " + r.Method
	}
	url := base + placeholders.ReplaceAllStringFunc(op.Path, func(s string) string { return "$" + strings.ToUpper(s[1:len(s)-1]) })
	if len(query) > 0 {
		url += "?" + strings.Join(query, "&")
	}
	curl += ` "` + url + `"`
	if !r.Hook && !r.Open {
		curl += " \\\n  -H \"Authorization: Bearer $SLIPWAY_KEY\""
	}
	if op.RequestBody != nil {
		s := op.RequestBody.Content["application/json"].Schema
		o.Body = fields(registry, s, 0)
		text, _ := json.MarshalIndent(sample(registry, s, "", 0), "  ", "  ")
		curl += " \\\n  -H \"Content-Type: application/json\" \\\n  -d '" + string(text) + "'"
	}
	o.Curl = curl
	if answer := op.Responses[strconv.Itoa(r.Status)]; answer != nil && !r.Open {
		s := answer.Content["application/json"].Schema
		o.Answer = fields(registry, s, 0)
		text, _ := json.MarshalIndent(sample(registry, s, "", 0), "", "  ")
		o.Example = string(text)
	}
	for code := range op.Responses {
		if n, err := strconv.Atoi(code); err == nil && n >= 400 {
			o.Errors = append(o.Errors, n)
		}
	}
	slices.Sort(o.Errors)
	return o
}

var placeholders = regexp.MustCompile(`\{[a-zA-Z]+\}`)

func resolve(r huma.Registry, s *huma.Schema) *huma.Schema {
	if s != nil && s.Ref != "" {
		return r.SchemaFromRef(s.Ref)
	}
	return s
}

// ordered returns a schema's properties in the order of the Go type that it came from.
func ordered(r huma.Registry, s *huma.Schema) []string {
	var names []string
	var walk func(t reflect.Type)
	walk = func(t reflect.Type) {
		for t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if t.Kind() != reflect.Struct {
			return
		}
		for i := range t.NumField() {
			f := t.Field(i)
			if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
				names = append(names, name)
			} else if f.Anonymous {
				walk(f.Type)
			}
		}
	}
	if s.Ref != "" {
		walk(r.TypeFromRef(s.Ref))
		s = r.SchemaFromRef(s.Ref)
	}
	var rest []string
	for name := range s.Properties {
		if !slices.Contains(names, name) {
			rest = append(rest, name)
		}
	}
	slices.Sort(rest)
	return slices.DeleteFunc(append(names, rest...), func(n string) bool { return s.Properties[n] == nil })
}

// fields lists what a body holds, nested ones below their parent.
func fields(r huma.Registry, s *huma.Schema, depth int) (out []field) {
	full := resolve(r, s)
	if full == nil || depth > 3 {
		return nil
	}
	if alt := append(full.OneOf, full.AnyOf...); len(alt) > 0 {
		return fields(r, alt[0], depth)
	}
	for _, name := range ordered(r, s) {
		p := full.Properties[name]
		out = append(out, field{Name: name, Type: kind(r, p), Required: slices.Contains(full.Required, name), Doc: inline(p.Description), Depth: depth})
		inner := p
		if q := resolve(r, p); q != nil && q.Type == huma.TypeArray {
			inner = q.Items
		}
		out = append(out, fields(r, inner, depth+1)...)
	}
	return out
}

// kind names a schema's type for people.
func kind(r huma.Registry, s *huma.Schema) string {
	full := resolve(r, s)
	if full == nil {
		return ""
	}
	text := full.Type
	switch {
	case full.Type == huma.TypeArray:
		text = "array of " + kind(r, full.Items)
	case len(full.Enum) > 0:
		var words []string
		for _, v := range full.Enum {
			words = append(words, fmt.Sprint(v))
		}
		text = strings.Join(words, " | ")
	case full.Format == "date-time":
		text = "timestamp"
	case len(full.AnyOf) > 0:
		text = kind(r, full.AnyOf[0]) + " | null"
	case text == "":
		text = "any"
	}
	if full.Nullable {
		text += " | null"
	}
	return text
}

// sample makes an example of a schema.
func sample(r huma.Registry, s *huma.Schema, name string, depth int) any {
	if s != nil && len(s.Examples) > 0 {
		return s.Examples[0]
	}
	full := resolve(r, s)
	switch {
	case full == nil || depth > 4:
		return nil
	case len(full.OneOf)+len(full.AnyOf) > 0:
		return sample(r, append(full.OneOf, full.AnyOf...)[0], name, depth)
	case len(full.Enum) > 0:
		return full.Enum[0]
	}
	switch full.Type {
	case huma.TypeObject:
		out := object{}
		for _, n := range ordered(r, s) {
			v := sample(r, full.Properties[n], n, depth+1)
			if inner, empty := v.(object); !slices.Contains(full.Required, n) && (v == "…" || empty && len(inner) == 0) {
				continue // nothing worth showing
			}
			out = append(out, member{n, v})
		}
		return out
	case huma.TypeArray:
		return []any{sample(r, full.Items, strings.TrimSuffix(name, "s"), depth+1)}
	case huma.TypeInteger, huma.TypeNumber:
		if full.Minimum != nil {
			return int(*full.Minimum)
		}
		return 1
	case huma.TypeBoolean:
		return name == "active" || name == "available"
	case huma.TypeString:
		if full.Format == "date-time" {
			return "2027-01-31T12:00:00.000Z"
		}
		if v, ok := samples[name]; ok {
			return v
		}
		if strings.HasSuffix(name, "Id") {
			return strings.TrimSuffix(name, "Id") + "_25o5kzh3mc7yw4tn6pqd2xlfae"
		}
		return "…"
	}
	return nil
}

// samples are examples by the name of the field.
var samples = map[string]string{
	"name": "My Site", "slug": "my-site", "subdomain": "my-site", "branch": "main", "email": "ada@example.com", "scope": "sites:read",
	"message": "…", "url": "https://example.com/hook", "event": "deployment.completed", "site": "site_25o5kzh3mc7yw4tn6pqd2xlfae",
	"deploymentId": "dep_25o5kzh3mc7yw4tn6pqd2xlfae", "siteId": "site_25o5kzh3mc7yw4tn6pqd2xlfae", "addresse": "203.0.113.0/24",
	"framework": "astro", "runtime": "static", "commitHash": "4b825dc642cb6eb9a060e54bf8d69288fbee4904", "title": "Release 12", "value": "s3cret",
	"key": "API_TOKEN", "secret": "a long random text of yours",
}

// object is a JSON object that keeps its order.
type object []member

type member struct {
	name  string
	value any
}

// MarshalJSON writes the members in order.
func (o object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		name, err := encode(m.name)
		if err != nil {
			return nil, err
		}
		value, err := encode(m.value)
		if err != nil {
			return nil, err
		}
		b.Write(bytes.TrimSpace(name))
		b.WriteByte(':')
		b.Write(bytes.TrimSpace(value))
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

var code = regexp.MustCompile("`([^`]+)`")

// inline escapes text and shows `code` as code.
func inline(s string) template.HTML {
	return template.HTML(code.ReplaceAllString(template.HTMLEscapeString(s), "<code>$1</code>"))
}

func anchor(s string) string { return strings.ReplaceAll(strings.ToLower(s), " ", "-") }
