// Package home owns the first page: a user's sites as live cards with search, tags and favorites, and the results of
// the command palette. Package sites shows a single site.
package home

import (
	"slipway/internal/tenant/account"
	"slipway/internal/web/dashboard/shell"
	"slipway/internal/web/dashboard/sites"
)

// Pages serves the list of sites and the command palette.
type Pages struct{ *sites.Pages }

// New returns the pages, which share the display of sites with p.
func New(p *sites.Pages) *Pages { return &Pages{p} }

func (d *Pages) Routes() []shell.Route {
	return []shell.Route{
		shell.Get("/{$}", shell.User, d.home).Takes(account.SitesRead),
		shell.Get("/sites", shell.User, d.homeAlias).Takes(account.SitesRead),
		shell.Get("/live/home", shell.User, d.homeLive).Takes(account.SitesRead),
		shell.Get("/find", shell.User, d.findSites).Takes(account.SitesRead),
		shell.Post("/sites/{id}/favorite", shell.User, d.favorite, nil).Takes(account.SitesRead),
	}
}
