package control

import (
	"context"
	"net/http"

	"slipway/internal/deploy/actions"
	"slipway/internal/tenant/billing/seller"
	"slipway/internal/tenant/confirmation"
	"slipway/internal/web/api"
	"slipway/internal/web/dashboard"
	"slipway/internal/web/dashboard/operator"
	"slipway/internal/web/dashboard/sites"
	"slipway/internal/web/idempotency"
	"slipway/internal/web/mcp"
	"slipway/internal/web/mirror"
	"slipway/internal/web/oauth"
	"slipway/internal/web/ratelimit"
	"slipway/internal/web/requestinfo"
	"slipway/internal/web/services"
)

// InterfaceConfig holds the dependencies of an Interface.
type InterfaceConfig struct {
	services.Services
	Answers *idempotency.Answers
	Limiter *ratelimit.Limiter

	Workflows    *actions.Actions      // Optional: without it, workflows get no keys.
	Repositories sites.Repositories    // inspects a new site's repository
	Installation operator.Installation // shown on the operator's pages
	SignUp       bool                  // whether people can create accounts
	RateLimit    int                   // requests per minute and key
	DataDir      string                // may contain the Terraform provider
}

// Interface serves the installation's users: the REST API, the dashboard, tools for agents, OAuth, and the Terraform
// provider's mirror.
type Interface struct {
	pages    *dashboard.Dashboard
	programs http.Handler // the REST API
	people   http.Handler // the dashboard
	agents   http.Handler
	tokens   http.Handler
	provider http.Handler
	sellers  *seller.Hosts
	base     string
}

// NewInterface constructs every part. It starts nothing.
func NewInterface(c InterfaceConfig) *Interface {
	// The limits of streams and downloads are shared by the dashboard and the API.
	c.Streams = requestinfo.NewStreams(requestinfo.AllStreams, requestinfo.UserStreams, requestinfo.NetworkStreams)
	pages := dashboard.New(dashboard.Config{
		Services: c.Services, SignUp: c.SignUp, Repositories: c.Repositories, Programs: sites.ProgramsOf(c.Apps), Installation: c.Installation,
	})
	programs := api.New(api.Config{
		Services: c.Services, Answers: c.Answers, Limiter: c.Limiter, RateLimit: c.RateLimit,
		FontURL: pages.FontURL(), IconURL: pages.IconURL(),
	})
	return &Interface{
		sellers:  c.Sellers,
		base:     c.BaseURL,
		pages:    pages,
		programs: programs.Handler(),
		people:   pages.Handler(),
		agents: mcp.New(mcp.Config{
			API: programs, Limiter: c.Limiter, Confirm: confirmation.New(c.DB), BaseURL: c.BaseURL, Version: c.Version, Ready: c.Ready,
			Log: c.Log, TrustedProxies: c.TrustedProxies,
		}),
		tokens: oauth.New(oauth.Config{
			Server: c.OAuth, Workflows: c.Workflows, Limiter: c.Limiter, TrustedProxies: c.TrustedProxies, Ready: c.Ready, Log: c.Log,
		}),
		provider: mirror.Handler(c.DataDir, c.TrustedProxies),
	}
}

// Run runs the dashboard's background work until ctx ends.
func (i *Interface) Run(ctx context.Context) error { return i.pages.Run(ctx) }

// ServeHTTP routes /api, /hooks, /docs, /mcp, /terraform and OAuth's endpoints to their handlers and everything else to
// the dashboard. Sellers' hosts have neither OAuth nor MCP. A nil Interface is that of a node without the role.
func (i *Interface) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case i == nil:
		Plain(w, http.StatusNotFound, "This node does not serve the interface.")
	case (oauth.Serves(r.URL.Path) || r.URL.Path == mcp.Path) && i.sellers.Has(r.Host):
		// Clients bind an issuer and resource to one origin.
		Plain(w, http.StatusNotFound, "OAuth and MCP are served at "+i.base+".")
	case api.Serves(r.URL.Path):
		i.programs.ServeHTTP(w, r)
	case oauth.Serves(r.URL.Path):
		i.tokens.ServeHTTP(w, r)
	case r.URL.Path == mcp.Path:
		i.agents.ServeHTTP(w, r)
	case mirror.Serves(r.URL.Path):
		i.provider.ServeHTTP(w, r)
	default:
		i.people.ServeHTTP(w, r)
	}
}
