// Package dashboard owns the pages for people. They do everything that the REST API does and are rendered on the
// server; small scripts add convenience and live updates.
//
// Package shell has what the pages share. The pages are in sites (the list of sites and a site's state), configure
// (setting up a site), account (signing in and a user's own pages) and operator. Pages load nothing from other hosts,
// contain no inline scripts or styles, and are never cached.
//
// To add a page, add a line to the Routes of its package, a handler in <noun>_*.go, and a template
// templates/<noun>_*.html that defines "main". templates/frame_<noun>.html, if it exists, surrounds all pages of that
// noun. In templates "." is a view (shell/view.go): .Data is the handler's result, and .Field renders a labeled input
// that keeps its value after errors. templates/parts.html has ready parts: "field", "problem", "confirm" (a button with
// a confirmation that needs no script), "copy", "rest" (the equivalent curl command), "empty", "pages". Functions are
// in shell/funcs.go: ago, status, bytes, picture, rest, asset, dict. A live part is an element with
// data-live="/address"; its handler returns an answer with Live set, which is sent again on every change
// (shell/live.go).
package dashboard

import (
	"cmp"
	"context"
	"embed"
	"html/template"
	"net/http"
	"slices"
	"strings"

	"slipway/internal/tenant/confirmation"
	accountpages "slipway/internal/web/dashboard/account"
	"slipway/internal/web/dashboard/configure"
	"slipway/internal/web/dashboard/home"
	"slipway/internal/web/dashboard/operator"
	"slipway/internal/web/dashboard/plans"
	"slipway/internal/web/dashboard/shell"
	"slipway/internal/web/dashboard/sites"
	teampages "slipway/internal/web/dashboard/teams"
	wordpresspages "slipway/internal/web/dashboard/wordpress"
	"slipway/internal/web/services"
)

// Config holds the services that the pages use, and settings of their own.
type Config struct {
	services.Services
	SignUp       bool                  // whether people can create accounts
	Repositories sites.Repositories    // Optional: without it, new sites' repositories aren't inspected.
	Programs     sites.Programs        // shows and changes sites' programs. Optional: without it, pages show none.
	Installation operator.Installation // Optional: without it, the operator's pages omit it.
}

//go:embed templates
var templates embed.FS

//go:embed assets
var assets embed.FS

// Dashboard serves the pages.
type Dashboard struct {
	Config
	shell  *shell.Shell
	routes []shell.Route
}

// New parses the templates and builds the routes. It starts nothing.
func New(c Config) *Dashboard {
	c.BaseURL = strings.TrimRight(c.BaseURL, "/")
	c.APIURL = strings.TrimRight(cmp.Or(c.APIURL, c.BaseURL), "/")
	d := &Dashboard{Config: c}
	d.shell = shell.New(shell.Config{
		DB: c.DB, Accounts: c.Accounts, Log: c.Log, BaseURL: c.BaseURL, TrustedProxies: c.TrustedProxies, Ready: c.Ready,
		Version: c.Version, Streams: c.Streams, Templates: templates, Files: assets, Teams: c.Teams, Billing: c.Billing != nil,
		Sellers: c.Sellers,
		Funcs: template.FuncMap{
			"picture": sites.Picture, "auditLabel": accountpages.AuditLabel, "noun": accountpages.NounWords,
			"roleName": teampages.RoleName,
		},
	})
	watch := sites.New(d.shell, sites.Config{
		Sites: c.Sites, Deployments: c.Deployments, Uploads: c.Uploads, Releases: c.Releases, Screenshots: c.Screenshots,
		Connections: c.Connections, Domains: c.Domains,
		Databases: c.Databases, Backups: c.Backups, WordPress: c.WordPress, Traffic: c.Traffic, Repositories: c.Repositories,
		Programs: c.Programs,
	})
	setUp := configure.New(watch, configure.Config{
		Certificates: c.Certificates, Rules: c.Rules, Git: c.Git, Teams: c.Teams, OAuth: c.OAuth, APIURL: c.APIURL,
	})
	own := accountpages.New(d.shell, accountpages.Config{
		Sites: c.Sites, Deployments: c.Deployments, Domains: c.Domains, Connections: c.Connections, Notify: c.Notify,
		Webhooks: c.Webhooks, Members: c.Members, Teams: c.Teams, Usage: c.Usage, OAuth: c.OAuth, SSO: c.SSO,
		SignUp: c.SignUp, Plans: c.Billing != nil, Confirmations: confirmation.New(c.DB),
	})
	run := operator.New(d.shell, operator.Config{
		Sites: c.Sites, Connections: c.Connections, Webhooks: c.Webhooks, Installation: c.Installation, OAuth: c.OAuth, SignUp: c.SignUp,
	})
	together := teampages.New(d.shell, teampages.Config{Teams: c.Teams, Sites: c.Sites, SSO: c.SSO})
	d.routes = slices.Concat(home.New(watch).Routes(), watch.Routes(), setUp.Routes(),
		wordpresspages.New(watch).Routes(), own.Routes(), run.Routes(), together.Routes(),
		plans.New(d.shell, c.Billing, c.Sellers).Routes())
	d.shell.Route(d.routes...)
	return d
}

// Run runs the pages' background work until ctx ends.
func (d *Dashboard) Run(ctx context.Context) error { return d.shell.Run(ctx) }

// Handler returns the handler of all pages, forms, live parts and assets.
func (d *Dashboard) Handler() http.Handler { return d.shell.Handler() }

// FontURL returns the path of the dashboard's font for other pages on the host.
func (d *Dashboard) FontURL() string { return d.shell.Assets.URL("inter.woff2") }

// IconURL returns the path of the dashboard's icon for other pages on the host.
func (d *Dashboard) IconURL() string { return d.shell.Assets.URL("mark.svg") }
