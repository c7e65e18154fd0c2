// Package api owns the REST API: /api/v1, deploy hook URLs, the OpenAPI document and the reference page made from it.
//
// Package contract contains what all operations share. Each noun's operations are in a package of their own beside it,
// and this package combines them. None of them contains business rules or writes a table.
package api

import (
	"cmp"
	"net/http"

	"slipway/internal/tenant/limits"
	"slipway/internal/web/api/accounts"
	"slipway/internal/web/api/contract"
	"slipway/internal/web/api/deployments"
	"slipway/internal/web/api/git"
	"slipway/internal/web/api/plans"
	"slipway/internal/web/api/programs"
	"slipway/internal/web/api/sites"
	"slipway/internal/web/api/teams"
	counted "slipway/internal/web/api/traffic"
	"slipway/internal/web/api/webhooks"
	blogs "slipway/internal/web/api/wordpress"
	"slipway/internal/web/idempotency"
	"slipway/internal/web/ratelimit"
	"slipway/internal/web/services"
)

// Config holds the services that the API exposes, and its own settings.
type Config struct {
	services.Services
	Answers *idempotency.Answers
	Limiter *ratelimit.Limiter

	RateLimit int    // requests per minute and key. Optional: 0 means 100.
	FontURL   string // of the reference's font, on the same host. Optional: empty means the system's font.
	IconURL   string // of the reference's icon, an SVG on the same host. Optional.
}

// Route is one operation of the API.
type Route = contract.Route

// API is the REST API.
type API struct{ contract *contract.API }

// New registers every route. It starts nothing.
func New(c Config) *API {
	c.Limits = cmp.Or(c.Limits, limits.New(limits.Settings{}))
	core := contract.New(contract.Config{
		DB:             c.DB,
		Accounts:       c.Accounts,
		Sites:          c.Sites,
		OAuth:          c.OAuth,
		Answers:        c.Answers,
		Streams:        c.Streams,
		Limiter:        c.Limiter,
		Log:            c.Log,
		Billing:        c.Billing != nil,
		BaseURL:        c.BaseURL,
		APIURL:         c.APIURL,
		RateLimit:      c.RateLimit,
		TrustedProxies: c.TrustedProxies,
		Ready:          c.Ready,
		Version:        c.Version,
		FontURL:        c.FontURL,
		IconURL:        c.IconURL,
	})
	// Tags are in the order in which the reference lists them.
	teams.Register(core, teams.Config{SSO: c.SSO, Teams: c.Teams})
	sites.Register(core, sites.Config{
		Apps:         c.Apps,
		Backups:      c.Backups,
		Connections:  c.Connections,
		Databases:    c.Databases,
		Deployments:  c.Deployments,
		Domains:      c.Domains,
		Operations:   c.Operations,
		Rules:        c.Rules,
		Teams:        c.Teams,
		WordPress:    c.WordPress,
		Certificates: c.Certificates,
	})
	programs.Register(core, programs.Config{Apps: c.Apps})
	blogs.Register(core, blogs.Config{Operations: c.Operations, WordPress: c.WordPress})
	counted.Register(core, counted.Config{Traffic: c.Traffic, Usage: c.Usage})
	deployments.Register(core, deployments.Config{Deployments: c.Deployments, Git: c.Git, Uploads: c.Uploads})
	git.Register(core, git.Config{Connections: c.Connections, Git: c.Git})
	webhooks.Register(core, webhooks.Config{Notify: c.Notify, Webhooks: c.Webhooks})
	if c.Billing != nil {
		plans.Register(core, c.Billing, c.Stripe, c.Sellers)
	}
	accounts.Register(core, accounts.Config{Limits: c.Limits, SSO: c.SSO, Teams: c.Teams})
	core.Finish()
	return &API{core}
}

// Handler serves /api/, /hooks/, /docs and the page at /.
func (a *API) Handler() http.Handler { return a.contract.Handler() }

// Routes returns all routes, for the authorization matrix.
func (a *API) Routes() []Route { return a.contract.Routes() }

// Serves reports whether a path belongs to the API or its reference rather than the dashboard.
func Serves(p string) bool { return contract.Serves(p) }
