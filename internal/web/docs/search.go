package docs

import (
	"html"
	"net/http"
	"strings"

	"slipway/internal/platform/lazyregexp"
)

// maxSearch is the length in bytes of a search that is answered, and maxHits how many results.
const (
	maxSearch = 100
	maxHits   = 50
)

// hit is a result of a search: an operation, or a section of a page.
type hit struct{ Name, Method, Path, Href string }

// indexed is something that a search can find.
type indexed struct {
	hit
	title string // lower case: found here, it comes first
	text  string // lower case
}

var (
	tags     = lazyregexp.New(`<[^>]*>`)
	headings = lazyregexp.New(`<h[1-4] id="([^"]+)">(.*?)</h[1-4]>`)
	anchors  = lazyregexp.New(`<a class="anchor".*?</a>`)
)

// searchIndex lists the operations and the sections of the guides and of the page at /docs.
func searchIndex(groups []group, guides []*guide, start string) []indexed {
	var out []indexed
	for _, g := range groups {
		for _, o := range g.Operations {
			var text strings.Builder
			text.WriteString(g.Name + " " + o.Doc)
			for _, list := range [][]field{o.Params, o.Body, o.Answer} {
				for _, f := range list {
					text.WriteString(" " + f.Name + " " + f.Doc)
				}
			}
			out = append(out, indexed{
				hit{o.Summary, o.Method, o.Path, "/docs/" + g.ID + "#" + o.ID},
				strings.ToLower(o.Summary + " " + o.ID + " " + o.Method + " " + o.Path), strings.ToLower(text.String()),
			})
		}
	}
	out = append(out, sectionsOf("", "/docs", start)...)
	for _, g := range guides {
		out = append(out, sectionsOf(g.Title, "/docs/guides/"+g.Name, string(g.HTML))...)
	}
	return out
}

// sectionsOf splits a page at its headings.
func sectionsOf(title, path, page string) []indexed {
	var out []indexed
	at := headings.FindAllStringSubmatchIndex(page, -1)
	for i, m := range at {
		end := len(page)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		name := strings.TrimSpace(withoutTags(anchors.ReplaceAllString(page[m[4]:m[5]], "")))
		if title != "" && name != title {
			name = title + ": " + name
		}
		out = append(out, indexed{
			hit{Name: name, Href: path + "#" + page[m[2]:m[3]]},
			strings.ToLower(name),
			strings.ToLower(withoutTags(page[m[1]:end])),
		})
	}
	return out
}

// search returns what has every word of the query: first where its title has them all.
func search(index []indexed, query string) []hit {
	words := strings.Fields(strings.ToLower(query))
	words = words[:min(len(words), 8)] // anybody may search: a search stays cheap
	has := func(text string) bool {
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
		case has(x.title):
			first = append(first, x.hit)
		case has(x.title + " " + x.text):
			rest = append(rest, x.hit)
		}
	}
	first = append(first, rest...)
	return first[:min(len(first), maxHits)]
}

// searchQuery returns what a request searches for: at most maxSearch bytes.
func searchQuery(r *http.Request) string {
	q := r.URL.Query().Get("q")
	return strings.TrimSpace(strings.ToValidUTF8(q[:min(len(q), maxSearch)], ""))
}

func withoutTags(s string) string { return html.UnescapeString(tags.ReplaceAllString(s, " ")) }
