package home

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"slipway/internal/backup/backup"
	"slipway/internal/deploy/deployment"
	"slipway/internal/tenant/domain"
	"slipway/internal/tenant/site"
	"slipway/internal/web/dashboard/shell"
	"slipway/internal/web/dashboard/sites"
)

// CardsPerPage keeps a page of cards below 100 KB.
const CardsPerPage = 24

// card is a site on the home page.
type card struct {
	Site   site.Site
	URL    string
	Host   string
	Last   *deployment.Deployment // nil: none yet
	Domain string                 // first active custom domain, or empty
	Theme  sites.Theme
	Health string // see SiteHead.Health
	Spark  shell.Spark

	Favorite bool
}

type homeFilter struct {
	Status string // a status below, or empty
	Text   string // part of a name, address or repository
	Tag    string // or empty
	Sort   string // an order below, or empty: newest first
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
	Tags   []homeTab // tags in use, the selected one first
	Views  []homeTab // cards and list
	Any    bool      // whether the user has any site
	Total  int       // matching sites
	Pages  shell.Pages
	Live   string // URL of the live part

	Deleted int // number of sites that can be restored
}

func readHomeFilter(q *shell.Request) homeFilter {
	f := homeFilter{Status: q.Query("status"), Text: strings.TrimSpace(q.Query("q")), Tag: shell.Short(site.MaxTag, q.Query("tag"))}
	if s := site.Sort(q.Query("sort")); s == site.ByName || s == site.ByUpdated {
		f.Sort = string(s)
	}
	if q.Query("view") == "list" {
		f.View = "list"
	}
	if !slices.Contains(site.Statuses, site.Status(f.Status)) {
		f.Status = ""
	}
	if r := []rune(f.Text); len(r) > site.MaxSearch {
		f.Text = string(r[:site.MaxSearch])
	}
	f.Page, _ = strconv.Atoi(q.Query("page")) // invalid numbers mean the first page
	f.Page = max(1, min(f.Page, 100_000))
	return f
}

func (d *Pages) homeAlias(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	return shell.GoTo(readHomeFilter(q).link("/"), ""), nil
}

func (d *Pages) home(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	data, err := d.homeData(ctx, q)
	if err == nil {
		err = d.addCardDetails(ctx, q, data.Cards, &days{})
	}
	if err == nil {
		data.Tags, err = d.tagTabs(ctx, q, data.Filter)
	}
	if err == nil && q.Caller.RequireAllSites() == nil {
		var gone []backup.Backup
		gone, err = d.Backups.Deleted(ctx, q.Caller.Owner)
		data.Deleted = len(gone)
	}
	return shell.Page("home", "Sites", data), err
}

// homeLive updates the cards when a site or its last deployment changes.
func (d *Pages) homeLive(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	var kept days
	return shell.LivePart(5*time.Second, func(ctx context.Context) ([]byte, bool, error) {
		data, err := d.homeData(ctx, q)
		if err == nil {
			err = d.addCardDetails(ctx, q, data.Cards, &kept)
		}
		if err != nil {
			return nil, false, err
		}
		html, err := d.Part(ctx, q, "home", "cards", data)
		return html, false, err
	}), nil
}

// tally counts the sites visible to the caller by status. Guests see few.
func (d *Pages) tally(ctx context.Context, q *shell.Request) (map[site.Status]int, error) {
	if len(q.Caller.Sites) == 0 {
		return d.Sites.Tally(ctx, q.Caller.Owner)
	}
	out := map[site.Status]int{}
	for _, s := range site.Statuses {
		_, n, err := d.Sites.List(ctx, q.Caller.Owner, site.Filter{Status: s, Only: q.Only(), Page: 1})
		if err != nil {
			return nil, err
		}
		out[s] = n
	}
	return out, nil
}

func (d *Pages) homeData(ctx context.Context, q *shell.Request) (homeData, error) {
	f := readHomeFilter(q)
	data := homeData{Filter: f, Live: f.link("/live/home")}
	tally, err := d.tally(ctx, q)
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
			name = shell.Word("site", s)
		}
		if tally[s] == 0 && s != "" && string(s) != f.Status {
			continue
		}
		data.Tabs = append(data.Tabs, homeTab{
			string(s),
			name,
			tally[s],
			homeFilter{Status: string(s), Text: f.Text, Tag: f.Tag, Sort: f.Sort, View: f.View}.link("/"),
			f.Status == string(s),
		})
	}
	for _, v := range [][2]string{{"", "Cards"}, {"list", "List"}} {
		data.Views = append(data.Views, homeTab{
			Name: v[1],
			Link: homeFilter{Status: f.Status, Text: f.Text, Tag: f.Tag, Sort: f.Sort, View: v[0]}.link("/"),
			On:   f.View == v[0],
		})
	}
	data.Any = all > 0
	favorites, err := d.Sites.Favorites(ctx, q.User.ID)
	if err != nil {
		return data, err
	}
	list, total, err := d.Sites.List(ctx, q.Caller.Owner, site.Filter{
		Status: site.Status(f.Status),
		Search: f.Text,
		Tag:    f.Tag,
		First:  favorites,
		Sort:   site.Sort(f.Sort),
		Page:   f.Page,
		Limit:  CardsPerPage,
		Only:   q.Only(),
	})
	if err != nil {
		return data, err
	}
	data.Total = total
	data.Pages = shell.Turn(f.Page, total, CardsPerPage,
		func(p int) string { return homeFilter{f.Status, f.Text, f.Tag, f.Sort, f.View, p}.link("/") })
	ids, names := make([]site.ID, len(list)), make([]site.ID, len(list))
	for i, s := range list {
		ids[i], names[i] = s.ID, s.ID
	}
	domains, err := d.Domains.Summaries(ctx, d.DB, q.Caller.Owner, names)
	if err != nil {
		return data, err
	}
	latest, err := d.Deployments.Latest(ctx, d.DB, ids)
	if err != nil {
		return data, err
	}
	for _, s := range list {
		c := card{Site: s, URL: d.Sites.URL(s.Slug)}
		c.Favorite = slices.Contains(favorites, s.ID)
		c.Host = strings.TrimPrefix(c.URL, "https://")
		c.Health = sites.HealthOf(s, d.ProcessOf(s))
		if last, ok := latest[s.ID]; ok {
			c.Last = &last
		}
		for _, dom := range domains[s.ID] {
			if dom.Status == domain.Active {
				c.Domain = dom.Name
				break
			}
		}
		data.Cards = append(data.Cards, c)
	}
	return data, nil
}

func (f homeFilter) link(dir string) string {
	page := ""
	if f.Page > 1 {
		page = strconv.Itoa(f.Page)
	}
	return shell.Link(dir, "status", f.Status, "q", f.Text, "tag", f.Tag, "sort", f.Sort, "view", f.View, "page", page)
}
