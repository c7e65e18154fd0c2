package configure

import (
	"context"
	"strconv"
	"sync"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/site"
	"slipway/internal/web/dashboard/shell"
	"slipway/internal/web/dashboard/sites"
	"slipway/internal/wordpress/wordpress"
)

// pushData holds what a push of a WordPress over another would change.
type pushData struct {
	sites.SiteHead
	To   site.Site
	Rows []pushRow
	Why  string // why not everything could be compared
}

// pushRow compares one kind of content.
type pushRow struct{ Name, From, To string }

// Says whether the two have the same; empty where that is unknown.
func (r pushRow) Says() string {
	switch {
	case r.From == unknown || r.To == unknown:
		return ""
	case r.From == r.To:
		return "Same"
	}
	return "Differs"
}

const unknown = "Unknown"

// sideOf holds one of two sites that are compared.
type sideOf struct {
	state wordpress.State
	users int
	err   error
}

func (d *Pages) pushPage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	head, err := d.Head(ctx, q, "wordpress")
	if err != nil {
		return shell.Answer{}, err
	}
	id := site.ID(q.Query("to"))
	if q.PostForm != nil {
		id = site.ID(q.Value("to"))
	}
	if id == "" { // the site is chosen there
		return shell.GoTo(head.Base()+"/wordpress", ""), nil
	}
	to, err := d.Sites.Get(ctx, q.Caller.Owner, id)
	if err == nil {
		err = q.Caller.RequireSite(string(to.ID))
	}
	if err != nil {
		return shell.Answer{}, err
	}
	data := pushData{SiteHead: head, To: to}
	var sides [2]sideOf
	var both sync.WaitGroup
	for i, id := range []site.ID{head.Site.ID, to.ID} {
		both.Go(func() {
			x := &sides[i]
			if x.state, x.err = d.WordPress.Read(ctx, q.Caller.Owner, id); x.err == nil {
				_, x.users, x.err = d.WordPress.Users(ctx, q.Caller.Owner, id)
			}
		})
	}
	both.Wait()
	for i, name := range []string{head.Site.Name, to.Name} {
		if f := fault.As(sides[i].err); f != nil {
			data.Why = name + ": " + f.Message + "; " + f.Details
		} else if sides[i].err != nil {
			return shell.Answer{}, sides[i].err
		}
	}
	data.Rows = pushRows(sides[0], sides[1])
	return shell.Page("site_push", "Push "+head.Site.Name+" to "+to.Name, data), nil
}

// pushRows compares two sites. What one of them doesn't say is unknown.
func pushRows(from, to sideOf) []pushRow {
	says := func(x sideOf, fn func(sideOf) string) string {
		if x.err != nil {
			return unknown
		}
		return fn(x)
	}
	var rows []pushRow
	for _, r := range []struct {
		name string
		fn   func(sideOf) string
	}{
		{"Title", func(x sideOf) string { return x.state.Title }},
		{"WordPress", func(x sideOf) string { return x.state.Version }},
		{"Plugins", func(x sideOf) string { return extensions(x.state.Plugins, "plugin") }},
		{"Themes", func(x sideOf) string { return extensions(x.state.Themes, "theme") }},
		{"Users", func(x sideOf) string { return strconv.Itoa(x.users) }},
		{"Files", func(x sideOf) string { return shell.BytesWord(x.state.DiskBytes) }},
		{"Database", func(x sideOf) string { return shell.BytesWord(x.state.DatabaseBytes) }},
	} {
		rows = append(rows, pushRow{r.name, says(from, r.fn), says(to, r.fn)})
	}
	return rows
}

// extensions says how many there are, and how many of them are active.
func extensions(list []wordpress.Extension, noun string) string {
	active := 0
	for _, x := range list {
		if x.Active {
			active++
		}
	}
	return shell.Pluralize(int64(len(list)), noun) + ", " + strconv.Itoa(active) + " active"
}

// pushWordPress replaces the content of another site, whose name was typed.
func (d *Pages) pushWordPress(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	id := site.ID(q.PathValue("id"))
	to, err := d.Sites.Get(ctx, q.Caller.Owner, site.ID(q.Value("to")))
	if err == nil {
		err = q.Caller.RequireSite(string(to.ID))
	}
	if err != nil {
		return shell.Answer{}, err
	}
	if err := confirmed(q, to, "nothing was pushed"); err != nil {
		return shell.Answer{}, shell.At("confirm", err)
	}
	err = d.ActOn(ctx, q, func(tx *db.Tx) (audit.Event, error) {
		_, err := d.WordPress.PushTx(ctx, tx, q.Caller.Owner, id, to.ID, q.Checked("files"), q.Checked("database"))
		return audit.Event{Action: "site.pushed", Subject: string(to.ID), Detail: string(id)}, err
	})
	return shell.GoTo("/sites/"+string(to.ID)+"/wordpress", "Pushing to "+to.Name+"…"), err
}
