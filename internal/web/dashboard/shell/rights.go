package shell

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"slipway/internal/platform/id"

	"golang.org/x/net/html"

	"slipway/internal/tenant/account"
)

// Pages of a team pass through this file: links and forms are kept within the team, navigation links that the member's
// role doesn't allow are removed, and forms that it doesn't allow are disabled with the reason. The routes decide, and
// check again on requests, so a page can't offer what its route refuses. Pages of personal accounts pass unchanged.

// routeOf returns the route for a path.
func (d *Shell) routeOf(q *Request, method, path string) (Route, bool) {
	r := (&http.Request{Method: method, URL: &url.URL{Path: path}, Host: q.Host}).WithContext(q.Context())
	_, pattern := d.mux.Handler(r)
	rt, ok := d.routes[pattern]
	return rt, ok
}

// refused returns why the member may not use a link or form. It is "" if allowed, or if it isn't the team's.
func (d *Shell) refused(q *Request, method, to, scope string) string {
	u, err := url.Parse(to)
	if err != nil || u.Host != "" || !strings.HasPrefix(u.Path, "/") {
		return ""
	}
	rt, ok := d.routeOf(q, method, u.Path)
	if !ok || rt.scope == "" {
		return ""
	}
	site := ""
	if rt.ofSite() {
		site, _, _ = strings.Cut(strings.TrimPrefix(u.Path, "/sites/"), "/")
		if site != q.PathValue("id") {
			return "" // another site, which may be the member's own
		}
	}
	if scope != "" {
		rt.scope = account.Scope(scope)
	}
	if _, err := rt.permit(q.member, id.Site(site)); err == nil {
		return ""
	}
	if q.member.Role == account.RoleGuest {
		return fmt.Sprintf("Your role on this site doesn't include %s", rt.scope)
	}
	return fmt.Sprintf("Your role in this team (%s) doesn't include this", q.member.Role)
}

// controls lists the interactive elements of a form.
var controls = map[string]bool{"button": true, "input": true, "select": true, "textarea": true}

// forMember adapts a rendered page, or part of one, to the member of its team.
func (d *Shell) forMember(q *Request, page []byte) []byte {
	if q.member.Team == "" {
		return page
	}
	closed := d.closedDialogs(q, page)
	out := bytes.NewBuffer(make([]byte, 0, len(page)+len(page)/16))
	z := html.NewTokenizer(bytes.NewReader(page))
	why, dropping := "", false
	for {
		kind := z.Next()
		if kind == html.ErrorToken {
			if z.Err() != io.EOF { // rendered pages are valid HTML
				return page
			}
			return out.Bytes()
		}
		raw := bytes.Clone(z.Raw())
		if kind != html.StartTagToken && kind != html.SelfClosingTagToken {
			name := ""
			if kind == html.EndTagToken {
				n, _ := z.TagName()
				name = string(n)
			}
			if !dropping {
				out.Write(raw)
			}
			switch name {
			case "a":
				dropping = false
			case "form":
				why = ""
			}
			continue
		}
		tag := tagOf(z)
		_, own := tag.attrs["data-own"] // a link out of the team, to the person's own pages
		switch {
		case dropping:
		case own:
			out.Write(raw)
		case tag.name == "a" && tag.attrs["href"] != "" && d.refused(q, "GET", tag.attrs["href"], "") != "":
			if strings.Contains(tag.attrs["class"], "rail-link") {
				dropping = true
				continue
			}
			out.Write(tag.without("href").with(`aria-disabled="true" title="` +
				html.EscapeString(d.refused(q, "GET", tag.attrs["href"], "")) + `"`))
		case tag.name == "a" || tag.attrs["data-live"] != "":
			out.Write(tag.linked(d, q, raw))
		case tag.name == "form":
			to, method := tag.attrs["action"], "POST"
			if to == "" {
				to = q.URL.Path
			}
			if !strings.EqualFold(tag.attrs["method"], "post") {
				method = "GET"
			}
			why = d.refused(q, method, to, tag.attrs["data-needs"])
			out.Write(tag.linked(d, q, raw))
			if link := d.teamLink(q, to); method == "GET" && link != to { // a GET form doesn't send the query in its action
				out.WriteString(`<input type="hidden" name="team" value="` + html.EscapeString(q.member.Slug) + `">`)
			}
		case why != "" && controls[tag.name] && tag.attrs["type"] != "hidden" && tag.attrs["popovertarget"] == "":
			out.Write(tag.with(disabled(why)))
		case tag.name == "button" && closed[tag.attrs["popovertarget"]] != "" && tag.attrs["popovertargetaction"] == "":
			out.Write(tag.with(disabled(closed[tag.attrs["popovertarget"]])))
		default:
			out.Write(raw)
		}
	}
}

func disabled(why string) string { return `disabled title="` + html.EscapeString(why) + `"` }

// closedDialogs returns the dialogs whose form the member may not submit, with the reason. It runs first, since the
// buttons that open them come earlier in the page.
func (d *Shell) closedDialogs(q *Request, page []byte) map[string]string {
	out := map[string]string{}
	z := html.NewTokenizer(bytes.NewReader(page))
	dialog := ""
	for {
		switch z.Next() {
		case html.ErrorToken:
			return out
		case html.StartTagToken:
			switch tag := tagOf(z); tag.name {
			case "dialog":
				dialog = tag.attrs["id"]
			case "form":
				if dialog == "" || !strings.EqualFold(tag.attrs["method"], "post") {
					continue
				}
				if why := d.refused(q, "POST", tag.attrs["action"], tag.attrs["data-needs"]); why != "" {
					out[dialog] = why
				}
			}
		case html.EndTagToken:
			if name, _ := z.TagName(); string(name) == "dialog" {
				dialog = ""
			}
		}
	}
}

type element struct {
	name  string
	order []string
	attrs map[string]string
}

func tagOf(z *html.Tokenizer) element {
	name, more := z.TagName()
	e := element{name: string(name), attrs: map[string]string{}}
	for more {
		var k, v []byte
		k, v, more = z.TagAttr()
		e.order = append(e.order, string(k))
		e.attrs[string(k)] = string(v)
	}
	return e
}

// with returns the tag with additional attributes.
func (e element) with(more string) []byte {
	var b bytes.Buffer
	b.WriteString("<" + e.name)
	for _, k := range e.order {
		b.WriteString(" " + k)
		if v := e.attrs[k]; v != "" {
			b.WriteString(`="` + html.EscapeString(v) + `"`)
		}
	}
	if more != "" {
		b.WriteString(" " + more)
	}
	b.WriteString(">")
	return b.Bytes()
}

// without returns the element without an attribute.
func (e element) without(name string) element {
	e.order = slices.DeleteFunc(slices.Clone(e.order), func(k string) bool { return k == name })
	return e
}

// linked returns the tag with its URLs kept within the team, or raw if nothing changes.
func (e element) linked(d *Shell, q *Request, raw []byte) []byte {
	changed := false
	for _, k := range []string{"href", "action", "data-live"} {
		if to := e.attrs[k]; to != "" {
			link := d.teamLink(q, to)
			changed = changed || link != to
			e.attrs[k] = link
		}
	}
	if !changed {
		return raw
	}
	return e.with("")
}
