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
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"slipway/internal/platform/lazyregexp"
	"slipway/internal/tenant/webhook"
)

var (
	//go:embed docs.html
	docsHTML string
	//go:embed home.html
	homeHTML string
	//go:embed docs.css
	docsCSS string
)

// reference holds the data of docs.html: of the guide, of one group of operations, or of
// the results of a search.
type reference struct {
	CSS             template.CSS
	Title           string
	BaseURL, APIURL string
	Limit           int
	Guide           []guideSection
	Groups          []group
	Group           *group // of the page; nil: the guide or a search
	Query           string // of the search; empty: none
	Hits            []hit
	Scopes          [][2]string
	Failures        []failure
	Events          []webhook.Entry
}

// guideSection is a section of the guide at /docs.
type guideSection struct{ ID, Name string }

var guide = []guideSection{
	{"start", "First steps"},
	{"authentication", "Authentication"},
	{"scopes", "Scopes"},
	{"formats", "Formats"},
	{"errors", "Errors"},
	{"limits", "Rate limits"},
	{"paging", "Pagination"},
	{"idempotency", "Idempotent requests"},
	{"receiving", "Receiving webhooks"},
	{"calling", "Calling deploy hooks"},
	{"following", "Streaming logs"},
}

type group struct {
	ID, Name, Text string
	Ops            []docOperation
}

type docOperation struct {
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

// pages are those of the reference and the page at /. They hold nothing of a user.
type pages struct {
	byPath    map[string][]byte
	reference reference // what they are rendered from
	index     []indexed // of their search
	css       string    // of all of them
}

func (a *API) render(doc *huma.OpenAPI) *pages {
	out := &pages{css: docsCSS}
	if a.FontURL != "" {
		out.css = `@font-face{font-family:"Inter Slipway";src:url("` + a.FontURL + `") format("woff2");font-weight:100 900;font-display:swap}` + "\n" + docsCSS
	}
	ref := reference{
		CSS:     template.CSS(out.css),
		BaseURL: a.BaseURL,
		APIURL:  a.APIURL,
		Limit:   a.RateLimit,
		Guide:   guide,
		Scopes:  scopes(),
		Events:  webhook.Catalogue(),
	}
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
	ref.Title = "Reference"
	out.byPath = map[string][]byte{"/": renderPage(homePage, ref), "/docs": renderPage(docsPage, ref)}
	for i, g := range ref.Groups {
		of := ref
		of.Title, of.Group = g.Name, &ref.Groups[i]
		out.byPath["/docs/"+g.ID] = renderPage(docsPage, of)
	}
	out.reference, out.index = ref, searchIndex(ref.Groups, string(out.byPath["/docs"]))
	return out
}

var (
	docsPage = template.Must(template.New("docs").Parse(docsHTML))
	homePage = template.Must(template.New("home").Parse(homeHTML))
)

func renderPage(t *template.Template, ref reference) []byte {
	var b bytes.Buffer
	if err := t.Execute(&b, ref); err != nil {
		panic(err) // our own template over our own values: every test would end here
	}
	return b.Bytes()
}

// servePage answers everything outside of /api and /hooks.
func (a *API) servePage(w http.ResponseWriter, r *http.Request) {
	p := a.docs()
	body := p.byPath[r.URL.Path]
	if q := searchQuery(r); q != "" && r.URL.Path == "/docs" {
		ref := p.reference
		ref.Title, ref.Query, ref.Hits = "Search", q, search(p.index, q)
		body = renderPage(docsPage, ref)
	}
	sum := sha256.Sum256([]byte(p.css))
	h := w.Header()
	h.Set(
		"Content-Security-Policy",
		"default-src 'none'; style-src 'sha256-"+base64.StdEncoding.EncodeToString(
			sum[:],
		)+"'; font-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
	)
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
func (a *API) describe(doc *huma.OpenAPI, r Route) docOperation {
	op, registry := operationOf(doc, r), doc.Components.Schemas
	o := docOperation{
		ID:      r.ID,
		Method:  r.Method,
		Path:    op.Path,
		Summary: r.Summary,
		Scope:   string(r.Scope),
		Doc:     inline(r.Doc),
		Status:  r.Status,
	}
	var query []string
	for _, p := range op.Parameters {
		if p.Ref != "" || p.In == "path" {
			continue
		}
		o.Params = append(o.Params, field{
			Name:     p.Name,
			In:       p.In,
			Type:     kind(registry, p.Schema),
			Required: p.Required,
			Doc:      inline(p.Description),
		})
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
	switch {
	case r.Raw:
		curl += " \\\n  -H \"Content-Type: application/gzip\" \\\n  --data-binary @site.tar.gz"
	case op.RequestBody != nil:
		s := op.RequestBody.Content["application/json"].Schema
		o.Body = fields(registry, s, 0)
		text, _ := json.MarshalIndent(sample(registry, s, "", 0), "  ", "  ")
		curl += " \\\n  -H \"Content-Type: application/json\" \\\n  -d '" + string(text) + "'"
	}
	o.Curl = curl
	if answer := op.Responses[strconv.Itoa(r.Status)]; answer != nil && !r.Open && answer.Content["application/json"] != nil {
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

var placeholders = lazyregexp.New(`\{[a-zA-Z]+\}`)

var code = lazyregexp.New("`([^`]+)`")

// inline escapes text and shows `code` as code.
func inline(s string) template.HTML {
	return template.HTML(code.ReplaceAllString(template.HTMLEscapeString(s), "<code>$1</code>"))
}

func anchor(s string) string { return strings.ReplaceAll(strings.ToLower(s), " ", "-") }
