// Package dashboard owns the pages for people: everything that the REST interface does,
// rendered on the server, with small scripts that only add comfort and live parts.
//
// Package shell is what pages share. The pages are in sites (the list of sites, and watching
// one), configure (what a site's owner sets up), account (signing in, and what a user has) and
// operator. Nothing is loaded from another host, no script or style stands in a page, and pages
// are never cached.
//
// To add a page: a line in the Routes of its package, a handler in <noun>_*.go, and a template
// templates/<noun>_*.html that defines "main". templates/frame_<noun>.html, where there
// is one, is put around all pages of that noun. In templates "." is a view (shell/view.go):
// .Data is what the handler returned; .Field makes a labelled input that keeps what was typed.
// Parts that are ready (templates/parts.html): "field", "problem", "confirm" (a button
// that asks first, without scripts), "copy", "rest" (the curl command that does the
// same), "empty", "pages". Functions (shell/funcs.go): ago, status, bytes, picture, rest,
// asset, dict. A live part is an element with data-live="/address" whose handler
// returns an answer with Live set: it is sent again whenever it changes (shell/live.go).
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

// Config names the services that the pages show, and what they alone need.
type Config struct {
	services.Services
	SignUp       bool                  // whether people may create accounts
	Repositories sites.Repositories    // Optional: without it a new site's repository is not inspected.
	Programs     sites.Programs        // shows and changes the programs of sites. Optional: without it the pages show none.
	Installation operator.Installation // Optional: without it the operator's pages leave it out.
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

// New reads the templates and lists the routes. It starts nothing.
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
		Sites: c.Sites, Deployments: c.Deployments, Uploads: c.Uploads, Thumbnails: c.Thumbnails, Screenshots: c.Screenshots,
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
	d.routes = slices.Concat(
		home.New(watch).Routes(), watch.Routes(), setUp.Routes(), wordpresspages.New(watch).Routes(), own.Routes(), run.Routes(),
		together.Routes(), plans.New(d.shell, c.Billing, c.Sellers).Routes(),
	)
	d.shell.Route(d.routes...)
	return d
}

// Run does what the pages need in the background, until ctx ends.
func (d *Dashboard) Run(ctx context.Context) error { return d.shell.Run(ctx) }

// Handler serves every page, form, live part and asset.
func (d *Dashboard) Handler() http.Handler { return d.shell.Handler() }

// FontURL returns the path of the interface's font, for other pages of the same host.
func (d *Dashboard) FontURL() string { return d.shell.Assets.URL("inter.woff2") }

// IconURL returns the path of the interface's icon, for other pages of the same host.
func (d *Dashboard) IconURL() string { return d.shell.Assets.URL("mark.svg") }
