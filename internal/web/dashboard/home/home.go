// Package home owns the first page: the list of a user's sites with its search, tags and favorites, as cards that are
// sent again when they change, and the command palette's answers. How a site itself is shown is in package sites.
package home

import (
	"slipway/internal/tenant/account"
	"slipway/internal/web/dashboard/shell"
	"slipway/internal/web/dashboard/sites"
)

// Pages serves the list of sites.
type Pages struct{ *sites.Pages }

// New returns the list, which shows sites as their own pages do.
func New(p *sites.Pages) *Pages { return &Pages{p} }

// Routes lists what is served.
func (d *Pages) Routes() []shell.Route {
	return []shell.Route{
		shell.Get("/{$}", shell.User, d.home).Takes(account.SitesRead),
		shell.Get("/sites", shell.User, d.homeAlias).Takes(account.SitesRead),
		shell.Get("/live/home", shell.User, d.homeLive).Takes(account.SitesRead),
		shell.Get("/find", shell.User, d.findSites).Takes(account.SitesRead),
		shell.Post("/sites/{id}/favorite", shell.User, d.favorite, nil).Takes(account.SitesRead),
	}
}
