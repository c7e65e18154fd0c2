package shell

import (
	"net/url"
	"strconv"
	"strings"

	"slipway/internal/tenant/site"
)

// Pages is the pagination of a list.
type Pages struct {
	Page, Last int
	Prev, Next string // URLs; empty if there is none
	First, End string // URLs of the first and last page
}

func Turn(page, total, per int, link func(page int) string) Pages {
	p := Pages{Page: page, Last: max(1, (total+per-1)/per), First: link(1)}
	p.End = link(p.Last)
	if page > 1 {
		p.Prev = link(min(page-1, p.Last))
	}
	if page < p.Last {
		p.Next = link(page + 1)
	}
	return p
}

// PageNumber returns the requested page of a list; invalid numbers mean the first.
func PageNumber(q *Request) int {
	n, _ := strconv.Atoi(q.Query("page"))
	return max(1, min(n, 100_000))
}

// PageOf returns the requested page; invalid numbers mean the first.
func PageOf(q *Request) int {
	n, err := strconv.Atoi(strings.TrimSpace(q.Query("page")))
	if err != nil {
		return 1
	}
	return max(1, min(n, 1_000_000))
}

// OneSite is a filter that only counts.
var OneSite = site.Filter{Page: 1}

// MaxChoices caps the sites in a form. Keys for other sites can be created with their IDs through the REST API.
const MaxChoices = 200

// SiteLabel returns a site's name for a list of choices, with the subdomain if another site has the same name.
func SiteLabel(list []site.Site, s site.Site) string {
	for _, o := range list {
		if o.ID != s.ID && strings.EqualFold(o.Name, s.Name) {
			return s.Name + " (" + s.Slug + ")"
		}
	}
	return s.Name
}

// Link returns a path with a query of the non-empty pairs.
func Link(path string, pairs ...string) string {
	v := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			v.Set(pairs[i], pairs[i+1])
		}
	}
	if len(v) == 0 {
		return path
	}
	return path + "?" + v.Encode()
}
