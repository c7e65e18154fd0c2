package dashboard

import (
	"context"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"slipway/internal/deploy"
	"slipway/internal/domain"
	"slipway/internal/site"
)

// cardsPerPage keeps a page of cards well under 100 KB.
const cardsPerPage = 24

// maxSearched is how many sites a search looks through, the newest first.
const maxSearched = 5000

// card is one site on the home page.
type card struct {
	Site   site.Site
	URL    string
	Host   string
	Last   *deploy.Deployment // nil: none yet
	Domain string             // the first active domain of its own, or empty
}

type homeFilter struct {
	Status string // of the list below, or empty
	Text   string // part of a name, address or repository
	Page   int
}

type homeTab struct {
	Status, Name string
	Count        int
	Link         string
	On           bool
}

type homeData struct {
	Cards  []card
	Tabs   []homeTab
	Filter homeFilter
	Any    bool // the user has sites at all
	Total  int  // that match
	Pages  pages
	Live   string // where the live part comes from
}

// pages is a way through a long list.
type pages struct {
	Page, Last int
	Prev, Next string // links; empty where there is none
}

func turn(page, total, per int, link func(page int) string) pages {
	p := pages{Page: page, Last: max(1, (total+per-1)/per)}
	if page > 1 {
		p.Prev = link(min(page-1, p.Last))
	}
	if page < p.Last {
		p.Next = link(page + 1)
	}
	return p
}

func readHomeFilter(q *request) homeFilter {
	f := homeFilter{Status: q.query("status"), Text: strings.TrimSpace(q.query("q"))}
	if !slices.Contains(site.Statuses, site.Status(f.Status)) {
		f.Status = ""
	}
	if len(f.Text) > 100 {
		f.Text = f.Text[:100]
	}
	f.Page, _ = strconv.Atoi(q.query("page")) // what is no number is the first page
	f.Page = max(1, min(f.Page, 100_000))
	return f
}

func (f homeFilter) link(dir string) string {
	page := ""
	if f.Page > 1 {
		page = strconv.Itoa(f.Page)
	}
	return link(dir, "status", f.Status, "q", f.Text, "page", page)
}

func (d *Dashboard) homeAlias(ctx context.Context, q *request) (answer, error) {
	return goTo(readHomeFilter(q).link("/"), ""), nil
}

func (d *Dashboard) home(ctx context.Context, q *request) (answer, error) {
	data, err := d.homeData(ctx, q)
	return page("home", "Sites", data), err
}

// homeLive sends the cards again whenever a site or its last deployment changes.
func (d *Dashboard) homeLive(ctx context.Context, q *request) (answer, error) {
	wake, stop := d.DB.Listen("live")
	return answer{live: live{wake: wake, stop: stop, render: func(ctx context.Context) ([]byte, bool, error) {
		data, err := d.homeData(ctx, q)
		if err != nil {
			return nil, false, err
		}
		html, err := d.part(ctx, q, "home", "cards", data)
		return html, false, err
	}}}, nil
}

func (d *Dashboard) homeData(ctx context.Context, q *request) (homeData, error) {
	f := readHomeFilter(q)
	data := homeData{Filter: f, Live: f.link("/live/home")}
	all := 0
	for _, s := range append([]site.Status{""}, site.Statuses...) {
		_, n, err := d.Sites.List(ctx, q.user.ID, site.Filter{Status: s, Page: 1})
		if err != nil {
			return data, err
		}
		name := "All"
		if s == "" {
			all = n
		} else {
			name = word("site", s)
		}
		if n == 0 && s != "" && string(s) != f.Status {
			continue
		}
		data.Tabs = append(data.Tabs, homeTab{string(s), name, n, homeFilter{Status: string(s), Text: f.Text}.link("/"), f.Status == string(s)})
	}
	data.Any = all > 0
	list, total, err := d.findSites(ctx, q, f)
	if err != nil {
		return data, err
	}
	data.Total = total
	data.Pages = turn(f.Page, total, cardsPerPage, func(p int) string { return homeFilter{f.Status, f.Text, p}.link("/") })
	ids := make([]string, len(list))
	for i, s := range list {
		ids[i] = string(s.ID)
	}
	domains, err := d.Domains.Summaries(ctx, d.DB, ids)
	if err != nil {
		return data, err
	}
	for _, s := range list {
		c := card{Site: s, URL: d.Sites.URL(s.Slug)}
		c.Host = strings.TrimPrefix(c.URL, "https://")
		last, _, err := d.Deployments.List(ctx, q.user.ID, s.ID, 1, 1)
		if err != nil {
			return data, err
		}
		if len(last) > 0 {
			c.Last = &last[0]
		}
		for _, dom := range domains[string(s.ID)] {
			if dom.Status == domain.Active {
				c.Domain = dom.Name
				break
			}
		}
		data.Cards = append(data.Cards, c)
	}
	return data, nil
}

// findSites is the room's list, or a search through it.
func (d *Dashboard) findSites(ctx context.Context, q *request, f homeFilter) ([]site.Site, int, error) {
	if f.Text == "" {
		return d.Sites.List(ctx, q.user.ID, site.Filter{Status: site.Status(f.Status), Page: f.Page, Limit: cardsPerPage})
	}
	want := strings.ToLower(f.Text)
	var found []site.Site
	for p := 1; p <= maxSearched/1000; p++ {
		list, total, err := d.Sites.List(ctx, q.user.ID, site.Filter{Status: site.Status(f.Status), Page: p, Limit: 1000})
		if err != nil {
			return nil, 0, err
		}
		for _, s := range list {
			if strings.Contains(strings.ToLower(s.Name+"\n"+s.Slug+"\n"+s.Repository), want) {
				found = append(found, s)
			}
		}
		if p*1000 >= total {
			break
		}
	}
	from := min((f.Page-1)*cardsPerPage, len(found))
	return found[from:min(from+cardsPerPage, len(found))], len(found), nil
}

// link is a path with those of the pairs that are not empty as its query.
func link(path string, pairs ...string) string {
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
