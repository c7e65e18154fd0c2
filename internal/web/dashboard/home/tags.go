package home

import (
	"cmp"
	"context"
	"slices"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/site"
	"slipway/internal/web/dashboard/shell"
)

// shownTags caps the tags on the home page to the most used ones.
const shownTags = 30

// tagTabs lists the tags of the caller's sites, including the selected one.
func (d *Pages) tagTabs(ctx context.Context, q *shell.Request, f homeFilter) ([]homeTab, error) {
	tags, err := d.Sites.Tags(ctx, q.Caller.Owner, q.Only())
	if err != nil {
		return nil, err
	}
	if len(tags) > shownTags {
		slices.SortStableFunc(tags, func(a, b site.TagCount) int { return cmp.Compare(b.Sites, a.Sites) })
		tags = tags[:shownTags]
	}
	if f.Tag != "" && !slices.ContainsFunc(tags, func(t site.TagCount) bool { return t.Tag == f.Tag }) {
		tags = append(tags, site.TagCount{Tag: f.Tag}) // so that it can be deselected
	}
	var out []homeTab
	for _, t := range tags {
		to := homeFilter{Status: f.Status, Text: f.Text, Tag: t.Tag, Sort: f.Sort, View: f.View}
		if t.Tag == f.Tag {
			to.Tag = ""
		}
		out = append(out, homeTab{Name: t.Tag, Count: t.Sites, Link: to.link("/"), On: t.Tag == f.Tag})
	}
	return out, nil
}

// favorite adds a site to the user's favorites or removes it. Favorites are private, so the audit log has no entry.
func (d *Pages) favorite(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	s, err := d.Sites.Get(ctx, q.Caller.Owner, shell.PathID[site.ID](q, "id"))
	if err == nil {
		err = q.Caller.RequireSite(s.ID)
	}
	if err == nil {
		err = d.DB.Write(ctx, func(tx *db.Tx) error { return d.Sites.FavoriteTx(ctx, tx, q.User.ID, s.ID, q.Value("on") == "1") })
	}
	return shell.GoTo(shell.Local(q.Value("back")), ""), err
}

// Back returns the URL of the list with its filter.
func (h homeData) Back() string { return h.Filter.link("/") }

// TagLink returns the URL of the list of sites with a tag.
func (h homeData) TagLink(tag string) string {
	return homeFilter{Tag: tag, View: h.Filter.View, Sort: h.Filter.Sort}.link("/")
}
