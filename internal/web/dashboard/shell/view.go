package shell

import (
	"bytes"
	"cmp"
	"context"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"slipway/internal/tenant/account"
	"slipway/internal/tenant/billing/seller"
	"slipway/internal/tenant/team"
)

// view is the data of a template.
type view struct {
	Title   string
	Data    any // the handler's result
	User    account.User
	Session account.Session
	Path    string // the page's
	Flash   string
	Problem *Problem
	Theme   string // light, dark or system
	Version string

	calls []curl
	teams *team.Teams
	q     *Request
	sells bool // whether pages of plans and invoices exist
	shell *Shell
	brand *seller.Brand
}

// Brand returns the page's brand: that of the account's seller, before signing in that of the seller whose host it is,
// otherwise Slipway.
func (v *view) Brand() seller.Brand {
	if v.brand != nil {
		return *v.brand
	}
	at, _ := v.shell.Sellers.At(v.q.Host)
	b := at.Brand
	if v.sells && v.q.signedIn() {
		var err error
		if b, err = seller.BrandOf(v.q.Context(), v.shell.DB, v.q.Caller.Owner); err != nil {
			v.shell.Log.WarnContext(v.q.Context(), "brand not read", "request", v.q.ID, "err", err)
		}
	}
	b.Name = cmp.Or(b.Name, "Slipway")
	v.brand = &b
	return b
}

// Call adds a REST call equivalent to the page, or a part of it, to the page's drawer.
func (v *view) Call(c curl) string {
	if !slices.Contains(v.calls, c) {
		v.calls = append(v.calls, c)
	}
	return ""
}

// Calls returns the calls added so far. The layout renders them last.
func (v *view) Calls() []curl { return v.calls }

// Icon returns the favicon's URL, which shows the progress of a deployment.
func (v *view) Icon() string {
	if p, ok := v.Data.(interface{ Progress() string }); ok && p.Progress() != "" {
		return "mark-" + p.Progress() + ".svg"
	}
	return "mark.svg"
}

// Refresh returns the seconds after which a browser without scripts reloads the page, or 0 for never. The page's data
// decides with a method Refreshing.
func (v *view) Refresh() int {
	if r, ok := v.Data.(interface{ Refreshing() bool }); ok && r.Refreshing() {
		return 5
	}
	return 0
}

// SignedIn reports whether the navigation is shown.
func (v *view) SignedIn() bool { return v.q.signedIn() }

// Team returns the slug of the page's team, or "" for a personal page.
func (v *view) Team() string { return v.q.member.Slug }

// In reports whether the page's path is dir or below it, for the navigation.
func (v *view) In(dir string) bool { return v.Path == dir || strings.HasPrefix(v.Path, dir+"/") }

// Value returns a field's submitted value if a form on the page has failed, otherwise def.
func (v *view) Value(name, def string) string {
	if v.q.Problem == nil || !v.q.PostForm.Has(name) {
		return def
	}
	return v.q.PostForm.Get(name)
}

// Checked is Value for a checkbox or radio button with this value.
func (v *view) Checked(name, value string, def bool) bool {
	if v.q.Problem == nil || v.q.PostForm == nil {
		return def
	}
	for _, x := range v.q.PostForm[name] {
		if x == value {
			return true
		}
	}
	return false
}

// Wrong returns the problem of a field, or nil.
func (v *view) Wrong(name string) *Problem {
	if v.Problem == nil || v.Problem.Field != name {
		return nil
	}
	return v.Problem
}

// field is a labeled input.
type field struct {
	ID, Name, Label, Value, Hint string
	Area                         bool // whether it is a text area
	Attrs                        template.HTMLAttr
	Wrong                        *Problem
}

// fieldAttrs lists the attributes that templates may set on an input.
var fieldAttrs = map[string]bool{
	"type":           true,
	"autocomplete":   true,
	"placeholder":    true,
	"inputmode":      true,
	"minlength":      true,
	"maxlength":      true,
	"pattern":        true,
	"required":       true,
	"autofocus":      true,
	"spellcheck":     true,
	"autocapitalize": true,
	"rows":           true,
	"min":            true,
	"max":            true,
	"readonly":       true,
	"list":           true,
	"title":          true,
}

// Field returns an input that keeps its value after errors. pairs are attributes by name, and value, hint, and area (a
// text area). Passwords and codes are never rendered.
func (v *view) Field(name, label string, pairs ...string) field {
	f := field{ID: "f-" + name, Name: name, Label: label, Wrong: v.Wrong(name)}
	var attrs strings.Builder
	kind, def := "text", ""
	for i := 0; i+1 < len(pairs); i += 2 {
		switch key, val := pairs[i], pairs[i+1]; {
		case key == "value":
			def = val
		case key == "hint":
			f.Hint = val
		case key == "id":
			f.ID = val
		case key == "area":
			f.Area = true
		case key == "type":
			kind = val
		case fieldAttrs[key]:
			attrs.WriteString(" " + key + `="` + template.HTMLEscapeString(val) + `"`)
		default:
			panic("no attribute " + key + " for field " + name)
		}
	}
	if !f.Area {
		attrs.WriteString(` type="` + template.HTMLEscapeString(kind) + `"`)
	}
	switch {
	case kind == "password", name == "code":
	default:
		f.Value = v.Value(name, def)
	}
	var says []string
	if f.Hint != "" {
		says = append(says, f.ID+"-hint")
	}
	if f.Wrong != nil {
		attrs.WriteString(` aria-invalid="true"`)
		says = append(says, f.ID+"-wrong")
	}
	if len(says) > 0 {
		attrs.WriteString(` aria-describedby="` + strings.Join(says, " ") + `"`)
	}
	f.Attrs = template.HTMLAttr(attrs.String()) // listed names, escaped values
	return f
}

// Prove returns the password field for sessions that didn't sign in recently, or nil. Forms that change authentication
// show it, and their handlers call [Shell.Prove].
func (v *view) Prove(id string) *field {
	if v.Session.Fresh() {
		return nil
	}
	f := v.Field("current", "Current password", "id", "f-current-"+id, "type", "password", "autocomplete",
		"current-password", "required", "", "hint", "Confirm your password to continue.")
	return &f
}

// loadPages returns every page. Each is parsed with the layout, parts and its noun's frame on first use, since all of
// them would take a tenth of an idle program's memory.
func (d *Shell) loadPages() map[string]func() *template.Template {
	base := template.Must(template.New("layout.html").Funcs(d.funcs()).ParseFS(d.Templates, "templates/layout.html",
		"templates/parts.html"))
	files, err := fs.Glob(d.Templates, "templates/*.html")
	if err != nil {
		panic(err)
	}
	out := map[string]func() *template.Template{}
	for _, f := range files {
		name := strings.TrimSuffix(path.Base(f), ".html")
		if name == "layout" || name == "parts" || strings.HasPrefix(name, "frame_") {
			continue
		}
		out[name] = sync.OnceValue(func() *template.Template {
			t := template.Must(base.Clone())
			noun, _, _ := strings.Cut(name, "_")
			if frame := "templates/frame_" + noun + ".html"; exists(d.Templates, frame) {
				template.Must(t.ParseFS(d.Templates, frame))
			}
			return template.Must(t.ParseFS(d.Templates, f))
		})
	}
	return out
}

func exists(files fs.FS, name string) bool {
	_, err := fs.Stat(files, name)
	return err == nil
}

func (d *Shell) view(q *Request, title string, data any) *view {
	return &view{
		Title: title, Data: data, User: q.User, Session: q.Session, Path: q.URL.Path, Flash: q.Flash, Problem: q.Problem,
		Theme: d.theme(q.Request), Version: d.Version, q: q, teams: d.Teams, sells: d.Billing, shell: d,
	}
}

// render renders a page completely before sending it.
func (d *Shell) render(w http.ResponseWriter, q *Request, a Answer) {
	var buf bytes.Buffer
	page := d.Pages[a.page]
	if page == nil {
		panic("no page " + a.page)
	}
	if err := page().ExecuteTemplate(&buf, "layout.html", d.view(q, a.title, a.data)); err != nil {
		d.Log.ErrorContext(q.Context(), "page not rendered", "page", a.page, "request", q.ID, "err", err)
		http.Error(w, "Internal error ("+q.ID+")", http.StatusInternalServerError)
		return
	}
	whole := d.forMember(q, buf.Bytes())
	if q.Flash != "" {
		http.SetCookie(w, d.NoCookie(flashCookie))
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(len(whole)))
	if a.status != 0 {
		w.WriteHeader(a.status)
	}
	w.Write(whole) // errors mean that the client is gone
}

// Part renders a named template of a page, for live parts.
func (d *Shell) Part(_ context.Context, q *Request, pageName, part string, data any) ([]byte, error) {
	var buf bytes.Buffer
	err := d.Pages[pageName]().ExecuteTemplate(&buf, part, d.view(q, "", data))
	return d.forMember(q, buf.Bytes()), err
}
