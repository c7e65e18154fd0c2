package dashboard

import (
	"context"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"slipway/internal/backup/backup"
	"slipway/internal/deploy/deployment"
	"slipway/internal/tenant/domain"
	"slipway/internal/tenant/site"
)

// cardsPerPage keeps a page of cards well under 100 KB.
const cardsPerPage = 24

// card is one site on the home page.
type card struct {
	Site   site.Site
	URL    string
	Host   string
	Last   *deployment.Deployment // nil: none yet
	Domain string                 // the first active domain of its own, or empty
	Theme  siteTheme
	Spark  spark
}

type homeFilter struct {
	Status string // of the list below, or empty
	Text   string // part of a name, address or repository
	Sort   string // of the list below, or empty: the newest first
	View   string // list, or empty: cards
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
	Views  []homeTab // cards and list
	Any    bool      // the user has sites at all
	Total  int       // that match
	Pages  pages
	Live   string // where the live part comes from

	Deleted int // sites that can be brought back
}

// pages is a way through a long list.
type pages struct {
	Page, Last int
	Prev, Next string // links; empty where there is none
	First, End string // links to the first and the last page
}

func turn(page, total, per int, link func(page int) string) pages {
	p := pages{Page: page, Last: max(1, (total+per-1)/per), First: link(1)}
	p.End = link(p.Last)
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
	if s := site.Sort(q.query("sort")); s == site.ByName || s == site.ByUpdated {
		f.Sort = string(s)
	}
	if q.query("view") == "list" {
		f.View = "list"
	}
	if !slices.Contains(site.Statuses, site.Status(f.Status)) {
		f.Status = ""
	}
	if r := []rune(f.Text); len(r) > site.MaxSearch {
		f.Text = string(r[:site.MaxSearch])
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
	return link(dir, "status", f.Status, "q", f.Text, "sort", f.Sort, "view", f.View, "page", page)
}

func (d *Dashboard) homeAlias(ctx context.Context, q *request) (answer, error) {
	return goTo(readHomeFilter(q).link("/"), ""), nil
}

func (d *Dashboard) home(ctx context.Context, q *request) (answer, error) {
	data, err := d.homeData(ctx, q)
	if err == nil {
		err = d.addCardDetails(ctx, q, data.Cards, &days{})
	}
	if err == nil {
		var gone []backup.Backup
		gone, err = d.Backups.Deleted(ctx, q.caller.Owner)
		data.Deleted = len(gone)
	}
	return page("home", "Sites", data), err
}

// homeLive sends the cards again whenever a site or its last deployment changes.
func (d *Dashboard) homeLive(ctx context.Context, q *request) (answer, error) {
	wake, stop := d.follow(q)
	var kept days
	return answer{live: live{wake: wake, stop: stop, render: func(ctx context.Context) ([]byte, bool, error) {
		data, err := d.homeData(ctx, q)
		if err == nil {
			err = d.addCardDetails(ctx, q, data.Cards, &kept)
		}
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
	tally, err := d.Sites.Tally(ctx, q.caller.Owner)
	if err != nil {
		return data, err
	}
	all := 0
	for _, n := range tally {
		all += n
	}
	tally[""] = all
	for _, s := range append([]site.Status{""}, site.Statuses...) {
		name := "All"
		if s != "" {
			name = word("site", s)
		}
		if tally[s] == 0 && s != "" && string(s) != f.Status {
			continue
		}
		data.Tabs = append(data.Tabs, homeTab{
			string(s),
			name,
			tally[s],
			homeFilter{Status: string(s), Text: f.Text, Sort: f.Sort, View: f.View}.link("/"),
			f.Status == string(s),
		})
	}
	for _, v := range [][2]string{{"", "Cards"}, {"list", "List"}} {
		data.Views = append(data.Views, homeTab{
			Name: v[1],
			Link: homeFilter{Status: f.Status, Text: f.Text, Sort: f.Sort, View: v[0]}.link("/"),
			On:   f.View == v[0],
		})
	}
	data.Any = all > 0
	list, total, err := d.Sites.List(ctx, q.caller.Owner, site.Filter{
		Status: site.Status(f.Status),
		Search: f.Text,
		Sort:   site.Sort(f.Sort),
		Page:   f.Page,
		Limit:  cardsPerPage,
	})
	if err != nil {
		return data, err
	}
	data.Total = total
	data.Pages = turn(f.Page, total, cardsPerPage, func(p int) string { return homeFilter{f.Status, f.Text, f.Sort, f.View, p}.link("/") })
	ids, names := make([]site.ID, len(list)), make([]string, len(list))
	for i, s := range list {
		ids[i], names[i] = s.ID, string(s.ID)
	}
	domains, err := d.Domains.Summaries(ctx, d.DB, q.caller.Owner, names)
	if err != nil {
		return data, err
	}
	latest, err := d.Deployments.Latest(ctx, d.DB, ids)
	if err != nil {
		return data, err
	}
	for _, s := range list {
		c := card{Site: s, URL: d.Sites.URL(s.Slug)}
		c.Host = strings.TrimPrefix(c.URL, "https://")
		if last, ok := latest[s.ID]; ok {
			c.Last = &last
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
