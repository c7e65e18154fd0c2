package api

import (
	"html"
	"net/http"
	"strings"

	"slipway/internal/platform/lazyregexp"
)

// maxSearch is the length in bytes of a search of the reference that is answered.
const maxSearch = 100

// hit is a result of a search: an operation, or a section of the guide.
type hit struct{ Name, Method, Path, Href string }

// indexed is something that a search can find.
type indexed struct {
	hit
	title string // lower case: found here, it comes first
	text  string // lower case
}

var (
	tags     = lazyregexp.New(`<[^>]*>`)
	headings = lazyregexp.New(`<h[12] id="([a-z]+)">`)
)

// searchIndex lists the operations and the sections of the guide, whose page is given.
func searchIndex(groups []group, page string) []indexed {
	var out []indexed
	for _, g := range groups {
		for _, o := range g.Ops {
			var text strings.Builder
			text.WriteString(g.Name + " " + withoutTags(string(o.Doc)))
			for _, list := range [][]field{o.Params, o.Body, o.Answer} {
				for _, f := range list {
					text.WriteString(" " + f.Name + " " + withoutTags(string(f.Doc)))
				}
			}
			out = append(out, indexed{
				hit{o.Summary, o.Method, o.Path, "/docs/" + g.ID + "#" + o.ID},
				strings.ToLower(o.Summary + " " + o.ID + " " + o.Method + " " + o.Path), strings.ToLower(text.String()),
			})
		}
	}
	at := headings.FindAllStringSubmatchIndex(page, -1)
	for i, m := range at {
		end := len(page)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		for _, s := range guide {
			if s.ID == page[m[2]:m[3]] {
				out = append(out, indexed{
					hit{Name: s.Name, Href: "/docs#" + s.ID},
					strings.ToLower(s.Name),
					strings.ToLower(withoutTags(page[m[0]:end])),
				})
			}
		}
	}
	return out
}

// search returns what holds every word of the query: first where its title holds them all.
func search(index []indexed, query string) []hit {
	words := strings.Fields(strings.ToLower(query))
	words = words[:min(len(words), 8)] // anybody may search: a search stays cheap
	holds := func(text string) bool {
		for _, w := range words {
			if !strings.Contains(text, w) {
				return false
			}
		}
		return true
	}
	var first, rest []hit
	for _, x := range index {
		switch {
		case holds(x.title):
			first = append(first, x.hit)
		case holds(x.title + " " + x.text):
			rest = append(rest, x.hit)
		}
	}
	return append(first, rest...)
}

// searchQuery returns what a request searches for: at most maxSearch bytes.
func searchQuery(r *http.Request) string {
	q := r.URL.Query().Get("q")
	return strings.TrimSpace(strings.ToValidUTF8(q[:min(len(q), maxSearch)], ""))
}

func withoutTags(s string) string { return html.UnescapeString(tags.ReplaceAllString(s, " ")) }
