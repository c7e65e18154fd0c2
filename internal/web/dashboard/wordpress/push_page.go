package wordpress

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/text"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/site"
	"slipway/internal/web/dashboard/shell"
	"slipway/internal/web/dashboard/sites"
	"slipway/internal/wordpress/difference"
	"slipway/internal/wordpress/wordpress"
)

// pushData is the effect of pushing one WordPress site to another.
type pushData struct {
	sites.SiteHead
	To    site.Site
	Rows  []pushRow
	Since db.Time  // time of the last common content; 0: unknown
	Newer string   // content of the target newer than that: "12 posts and 3 orders"; empty: none
	Whole bool     // whether the target reported all newer content
	Why   []string // why the comparison is incomplete
}

// pushRow compares one kind of content.
type pushRow struct {
	Name     string
	From, To pushCell
	Says     string   // the difference in words; empty: unknown
	Examples []string // names of the first differences
}

// pushCell is one site's content of a kind.
type pushCell struct {
	Text string
	At   db.Time // time of the last change; 0: unknown
}

const unknown = "Unknown"

func (d *Pages) pushPage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	head, err := d.Head(ctx, q, "wordpress")
	if err != nil {
		return shell.Answer{}, err
	}
	id := site.ID(q.Query("to"))
	if q.PostForm != nil {
		id = site.ID(q.Value("to"))
	}
	if id == "" { // no target is selected yet
		return shell.GoTo(head.Base()+"/wordpress", ""), nil
	}
	to, err := d.Sites.Get(ctx, q.Caller.Owner, id)
	if err == nil {
		err = q.Caller.RequireSite(to.ID)
	}
	if err != nil {
		return shell.Answer{}, err
	}
	c, err := d.WordPress.Compare(ctx, q.Caller.Owner, head.Site.ID, to.ID)
	if err != nil {
		return shell.Answer{}, err
	}
	data := pushData{SiteHead: head, To: to, Since: c.Since, Newer: amounts(c.Lost()), Rows: pushRows(c)}
	now := c.To.State.Content
	data.Whole = c.To.Err == nil && now.Posts != nil && now.Comments != nil && now.Users != nil
	for _, side := range []wordpress.Side{c.From, c.To} {
		if f := fault.As(side.Err); f != nil {
			data.Why = append(data.Why, side.Site.Name+": "+f.Message+"; "+f.Details)
		}
	}
	data.Sub = "Push to " + to.Name
	return shell.Page("site_push", "Push "+head.Site.Name+" to "+to.Name, data), nil
}

// nouns names common post types. Others use WordPress's names.
var nouns = map[string]string{
	"post": "post", "page": "page", "attachment": "media file", "product": "product", "shop_order": "order", "shop_coupon": "coupon",
	"comment": "comment", "user": "user", "file": "file",
}

// Noun returns the display name of a kind of content, or "".
func Noun(kind string) string { return nouns[kind] }

// amounts lists newer content in words: "12 posts, 3 orders and 1 user".
func amounts(list []difference.Amount) string {
	var parts []string
	for _, a := range list {
		parts = append(parts, contentWord(a.Newer, a.Type, a.Name))
	}
	return shell.Enumerate(parts)
}

// contentWord returns the number and name of a type of content.
func contentWord(n int64, kind, name string) string {
	if noun := Noun(kind); noun != "" {
		return shell.Pluralize(n, noun)
	}
	return shell.Thousands(n) + " of " + name
}

// pushRows compares two sites. Facts that a site doesn't report are unknown.
func pushRows(c wordpress.Comparison) []pushRow {
	from, to := c.From.State, c.To.State
	rows := []pushRow{
		said("Title", c, pushCell{Text: from.Title}, pushCell{Text: to.Title}),
		said("WordPress", c, pushCell{Text: from.Version}, pushCell{Text: to.Version}),
		said("Plugins", c, pushCell{Text: extensions(from.Plugins, "plugin")}, pushCell{Text: extensions(to.Plugins, "plugin")}),
		said("Themes", c, pushCell{Text: extensions(from.Themes, "theme")}, pushCell{Text: extensions(to.Themes, "theme")}),
	}
	rows = append(rows, postRows(c)...)
	rows = append(rows,
		counted("Comments", from.Content.Comments, to.Content.Comments, c.Since),
		counted("Users", from.Content.Users, to.Content.Users, c.Since),
		optionsRow(c),
		filesRow(c),
		said("Database size", c, pushCell{Text: shell.BytesWord(from.DatabaseBytes)}, pushCell{Text: shell.BytesWord(to.DatabaseBytes)}),
	)
	return rows
}

// said compares facts that both sites reported.
func said(name string, c wordpress.Comparison, from, to pushCell) pushRow {
	r := pushRow{Name: name, From: from, To: to}
	if c.From.Err != nil {
		r.From = pushCell{Text: unknown}
	}
	if c.To.Err != nil {
		r.To = pushCell{Text: unknown}
	}
	if c.From.Err != nil || c.To.Err != nil {
		return r
	}
	r.Says = "Same"
	if from.Text != to.Text {
		r.Says = "Different"
	}
	return r
}

// postRows compares posts by type. A type missing on one site counts as 0.
func postRows(c wordpress.Comparison) []pushRow {
	from, to := c.From.State.Content.Posts, c.To.State.Content.Posts
	if from == nil && to == nil {
		return []pushRow{{Name: "Posts", From: pushCell{Text: unknown}, To: pushCell{Text: unknown}}}
	}
	find := func(list []difference.Amount, kind, name string) *difference.Amount {
		if i := slices.IndexFunc(list, func(a difference.Amount) bool { return a.Type == kind }); i >= 0 {
			return &list[i]
		}
		if list == nil {
			return nil
		}
		return &difference.Amount{Type: kind, Name: name}
	}
	var rows []pushRow
	seen := map[string]bool{}
	for _, a := range slices.Concat(from, to) {
		if !seen[a.Type] {
			seen[a.Type] = true
			rows = append(rows, counted(a.Name, find(from, a.Type, a.Name), find(to, a.Type, a.Name), c.Since))
		}
	}
	return rows
}

// counted compares both sites' numbers, and what changed in each since the time of the last common content.
func counted(name string, from, to *difference.Amount, since db.Time) pushRow {
	r := pushRow{Name: name, From: amountCell(from), To: amountCell(to)}
	switch {
	case from == nil || to == nil:
		return r
	case since != 0 && from.Newer+to.Newer > 0:
		var parts []string
		if to.Newer > 0 {
			parts = append(parts, fmt.Sprintf("%d changed in the target", to.Newer))
		}
		if from.Newer > 0 {
			parts = append(parts, fmt.Sprintf("%d changed here", from.Newer))
		}
		r.Says = strings.Join(parts, ", ")
	case from.Count != to.Count:
		r.Says = "Different"
	case since != 0 || from.Changed == to.Changed:
		r.Says = "Same"
	default:
		r.Says = "Different"
	}
	return r
}

func amountCell(a *difference.Amount) pushCell {
	if a == nil {
		return pushCell{Text: unknown}
	}
	return pushCell{shell.Thousands(a.Count), a.Changed.At()}
}

func optionsRow(c wordpress.Comparison) pushRow {
	cell := func(d difference.Digests) pushCell {
		if d == nil {
			return pushCell{Text: unknown}
		}
		return pushCell{Text: shell.Thousands(int64(len(d)))}
	}
	r := pushRow{Name: "Options", From: cell(c.From.State.Content.Options), To: cell(c.To.State.Content.Options)}
	if c.Known {
		r.Says = "Same"
		if len(c.Options) > 0 {
			r.Says = fmt.Sprintf("%d different", len(c.Options))
		}
		for _, name := range c.Options[:min(len(c.Options), 5)] {
			r.Examples = append(r.Examples, text.Clip(name, 60))
		}
	}
	return r
}

func filesRow(c wordpress.Comparison) pushRow {
	cell := func(a *difference.Amount) pushCell {
		if a == nil {
			return pushCell{Text: unknown}
		}
		return pushCell{shell.Thousands(a.Count) + ", " + shell.BytesWord(a.Bytes), a.Changed.At()}
	}
	r := pushRow{Name: "Files", From: cell(c.From.State.Content.Files), To: cell(c.To.State.Content.Files)}
	f := c.Files
	if f == nil {
		return r
	}
	var parts []string
	for _, x := range []struct {
		n    int
		word string
	}{{f.Removed, "only in the target"}, {f.Changed, "different"}, {f.Added, "new"}, {f.Unread, "too large to compare"}} {
		if x.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", x.n, x.word))
		}
	}
	r.Says = cmp.Or(strings.Join(parts, ", "), "Same")
	for _, name := range f.Examples {
		r.Examples = append(r.Examples, text.Clip(strings.ToValidUTF8(name, "\uFFFD"), 80))
	}
	return r
}

// extensions describes how many exist and are active.
func extensions(list []wordpress.Extension, noun string) string {
	active := 0
	for _, x := range list {
		if x.Active {
			active++
		}
	}
	return fmt.Sprintf("%s, %d active", shell.Pluralize(int64(len(list)), noun), active)
}

// pushWordPress replaces the content of another site after its name was typed.
func (d *Pages) pushWordPress(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	id := shell.PathID[site.ID](q, "id")
	to, err := d.Sites.Get(ctx, q.Caller.Owner, site.ID(q.Value("to")))
	if err == nil {
		err = q.Caller.RequireSite(to.ID)
	}
	if err != nil {
		return shell.Answer{}, err
	}
	if err := sites.Confirmed(q, to, "nothing was pushed"); err != nil {
		return shell.Answer{}, shell.At("confirm", err)
	}
	err = d.ActOn(ctx, q, func(tx *db.Tx) (audit.Event, error) {
		_, err := d.WordPress.PushTx(ctx, tx, q.Caller.Owner, to.ID, wordpress.Copy{
			From: id, Files: q.Checked("files"), Database: q.Checked("database"),
			Paths: q.Lines("paths"), Tables: q.Lines("tables"),
		})
		return audit.Event{Action: "site.pushed", Subject: string(to.ID), Detail: string(id)}, err
	})
	return shell.GoTo("/sites/"+string(to.ID)+"/wordpress", "Pushing to "+to.Name+"…"), err
}
