package shell

import (
	"net/url"
	"strconv"
	"strings"

	"slipway/internal/tenant/site"
)

// Pages is a way through a long list.
type Pages struct {
	Page, Last int
	Prev, Next string // links; empty where there is none
	First, End string // links to the first and the last page
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

// PageNumber is which page of a list is asked for; what is no number is the first.
func PageNumber(q *Request) int {
	n, _ := strconv.Atoi(q.Query("page"))
	return max(1, min(n, 100_000))
}

// PageOf is the page asked for; what is no number is the first.
func PageOf(q *Request) int {
	n, err := strconv.Atoi(strings.TrimSpace(q.Query("page")))
	if err != nil {
		return 1
	}
	return max(1, min(n, 1_000_000))
}

// OneSite asks for nothing but how many there are.
var OneSite = site.Filter{Page: 1}

// MaxChoices is how many sites the form offers; a key for others names their ids by the
// REST interface.
const MaxChoices = 200

// SiteLabel returns a site's name as a list of choices shows it: with its subdomain where another one has the same name.
func SiteLabel(list []site.Site, s site.Site) string {
	for _, o := range list {
		if o.ID != s.ID && strings.EqualFold(o.Name, s.Name) {
			return s.Name + " (" + s.Slug + ")"
		}
	}
	return s.Name
}

// Link is a path with those of the pairs that are not empty as its query.
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
