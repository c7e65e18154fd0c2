// Package docs owns the pages at /docs: the guides from the folder docs, the API reference by noun, and a search of
// both.
//
// The reference is generated from the OpenAPI document. Its examples are Scenarios, which tests run against the program
// as shown. Pages contain no user's data, work without scripts, and are rendered on request.
package docs

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"html/template"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"slipway/internal/tenant/webhook/event"
)

// Config describes what is documented.
type Config struct {
	OpenAPI    *huma.OpenAPI
	Operations []Operation // in the order of the reference
	Scopes     [][2]string // each with its description
	Failures   []Failure   // errors shared by operations

	BaseURL, APIURL string // URLs of the API and of deploy hooks
	RateLimit       int    // requests per minute and key
	Billing         bool   // whether billing exists; without it no page mentions plans or invoices
	FontURL         string // font on the same host. Optional: defaults to the system's.
	IconURL         string // SVG icon on the same host. Optional.
}

// Operation is an operation of the API.
type Operation struct {
	ID, Method, Path, Tag, Summary, Doc, Scope string
	Status                                     int  // of success
	Hook                                       bool // called at APIURL without a key
	Open                                       bool // needs no key
	Raw                                        bool // the body is a file
}

// Failure is an error status.
type Failure struct {
	Status int
	When   string
}

var (
	//go:embed page.html
	pageHTML string
	//go:embed home.html
	homeHTML string
	//go:embed docs.css
	styleCSS string
	//go:embed docs.js
	scriptJS string

	pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{"inline": inline, "breakable": breakable}).Parse(pageHTML))
	homeTemplate = template.Must(template.New("home").Parse(homeHTML))
)

// Docs serves the pages.
type Docs struct {
	Config
	groups []group
	guides []*guide
	index  *index
	style  file
	script file
}

// file is an asset of the pages. Its URL changes with its content.
type file struct {
	Path, kind, text string
}

func newFile(name, kind, text string) file {
	sum := sha256.Sum256([]byte(text))
	return file{"/docs/" + hex.EncodeToString(sum[:6]) + "/" + name, kind, text}
}

// New renders the fixed parts of the pages.
func New(c Config) *Docs {
	d := &Docs{Config: c, guides: readGuides(c.Billing)}
	css := styleCSS
	if c.FontURL != "" {
		css = `@font-face{font-family:"Inter Slipway";src:url("` + c.FontURL +
			`") format("woff2");font-weight:100 900;font-display:swap}` + "\n" + css
	}
	d.style, d.script = newFile("docs.css", "text/css; charset=utf-8", css), newFile("docs.js", "text/javascript; charset=utf-8", scriptJS)
	for _, t := range c.OpenAPI.Tags {
		g := group{ID: anchor(t.Name), Name: t.Name, Text: t.Description}
		for _, o := range c.Operations {
			if o.Tag == t.Name {
				g.Operations = append(g.Operations, d.describe(o))
			}
		}
		withoutRepeats(g.Operations)
		d.groups = append(d.groups, g)
	}
	slices.SortFunc(d.Failures, func(a, b Failure) int { return a.Status - b.Status })
	d.index = newIndex(d.groups, d.guides, string(d.render(d.view("start"))))
	return d
}

// section is an entry of "On this page".
type section struct {
	ID, Name string
	Depth    int
}

// basics lists the sections of the page at /docs.
var basics = []section{
	{"start", "First steps", 0},
	{"authentication", "Authentication", 0},
	{"scopes", "Scopes", 0},
	{"formats", "Formats", 0},
	{"errors", "Errors", 0},
	{"limits", "Rate limits", 0},
	{"paging", "Pagination", 0},
	{"idempotency", "Idempotent requests", 0},
	{"receiving", "Receiving webhooks", 0},
	{"calling", "Calling deploy hooks", 0},
	{"following", "Streaming logs", 0},
}

// view is the data of page.html.
type view struct {
	*Docs
	Kind     string // start, guide, group or search
	Title    string
	Path     string // of the page
	Sections []section
	Guide    *guide
	Group    *group
	Language string
	Query    string
	Hits     []hit
}

func (d *Docs) view(kind string) view {
	return view{Docs: d, Kind: kind, Title: "Documentation", Path: "/docs", Sections: basics, Language: languages[0].ID}
}

// Chapters returns the guides by chapter.
func (v view) Chapters() []chapter { return chapters(v.guides) }

// Groups returns the nouns of the API.
func (v view) Groups() []group { return v.groups }

// Style returns the URL of the style sheet.
func (v view) Style() string { return v.style.Path }

// Script returns the URL of the script.
func (v view) Script() string { return v.script.Path }

// Languages returns the languages of the examples.
func (v view) Languages() []language { return languages }

// Events returns the events of webhooks.
func (v view) Events() []event.Entry { return event.Catalogue(v.Billing) }

// FirstSteps returns the examples that create a site and follow its first deployment.
func (v view) FirstSteps() string {
	return v.example("createSite") + "\n\n" + v.example("getDeploymentLogs")
}

func (v view) example(name string) string {
	for _, g := range v.groups {
		for _, o := range g.Operations {
			if o.ID == name {
				return o.Example(v.Language)
			}
		}
	}
	return ""
}

// find returns the page for a request. ok is false if there is none.
func (d *Docs) find(r *http.Request) (view, bool) {
	v := d.view("start")
	if r.URL.Path == "/docs" {
		if q := searchQuery(r); q != "" {
			v.Kind, v.Title, v.Query, v.Hits, v.Sections = "search", "Search", q, d.index.search(q), nil
		}
		return v, true
	}
	rest, ok := strings.CutPrefix(r.URL.Path, "/docs/")
	if name, is := strings.CutPrefix(rest, "guides/"); ok && is {
		for _, g := range d.guides {
			if g.Name == name {
				v.Kind, v.Title, v.Path, v.Guide, v.Sections = "guide", g.Title, r.URL.Path, g, g.Sections
				return v, true
			}
		}
	}
	for i, g := range d.groups {
		if ok && g.ID == rest {
			v.Kind, v.Title, v.Path, v.Group, v.Sections = "group", g.Name, r.URL.Path, &d.groups[i], nil
			for _, o := range g.Operations {
				v.Sections = append(v.Sections, section{o.ID, o.Summary, 0})
			}
			for _, l := range languages {
				if r.URL.Query().Get("lang") == l.ID {
					v.Language = l.ID
				}
			}
			return v, true
		}
	}
	return v, false
}

func (d *Docs) render(v view) []byte {
	var b bytes.Buffer
	if err := pageTemplate.Execute(&b, v); err != nil {
		panic(err) // the template and values are fixed, so every test would fail
	}
	return b.Bytes()
}

// policy allows the pages their own style sheet, font and script, and the script calls of the API.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; font-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

// ServeHTTP serves /, /docs and the paths below it.
func (d *Docs) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	var body []byte
	kind := "text/html; charset=utf-8"
	v, found := d.find(r)
	switch {
	case r.URL.Path == "/":
		var b bytes.Buffer
		if err := homeTemplate.Execute(&b, v); err != nil {
			panic(err)
		}
		body = b.Bytes()
	case found:
		body = d.render(v)
	default:
		for _, f := range []file{d.style, d.script} {
			if f.Path == r.URL.Path {
				kind, body = f.kind, []byte(f.text)
				h.Set("Cache-Control", "public, max-age="+strconv.Itoa(int((365*24*time.Hour).Seconds()))+", immutable")
			}
		}
	}
	switch {
	case body == nil:
		http.NotFound(w, r)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "Method not allowed", http.StatusMethodNotAllowed)
	default:
		h.Set("Content-Type", kind)
		h.Set("Content-Length", strconv.Itoa(len(body)))
		w.Write(body)
	}
}

func anchor(s string) string { return strings.ReplaceAll(strings.ToLower(s), " ", "-") }

// base returns the base URL of an operation.
func (d *Docs) base(o Operation) string {
	if o.Hook {
		return cmp.Or(d.APIURL, d.BaseURL)
	}
	return d.BaseURL
}
