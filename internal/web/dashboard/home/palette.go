package home

import (
	"context"
	"strings"

	"slipway/internal/tenant/site"
	"slipway/internal/web/dashboard/shell"
)

// foundSites caps the sites in the command palette.
const foundSites = 8

// foundSite is a site in the command palette.
type foundSite struct {
	Name string `json:"name"`
	Host string `json:"host"`
	Path string `json:"path"`
}

// findSites lists the caller's sites that match the text in the command palette.
func (d *Pages) findSites(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	list, _, err := d.Sites.List(ctx, q.Caller.Owner, site.Filter{
		Search: shell.Short(100, strings.TrimSpace(q.Query("q"))), Sort: site.ByUpdated, Page: 1, Limit: foundSites, Only: q.Only(),
	})
	if err != nil {
		return shell.Answer{}, err
	}
	out := make([]foundSite, len(list))
	for i, s := range list {
		out[i] = foundSite{s.Name, strings.TrimPrefix(d.Sites.URL(s.Slug), "https://"), "/sites/" + string(s.ID)}
	}
	return shell.Answer{Json: out}, nil
}
