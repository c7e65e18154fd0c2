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

// InterfaceConfig names what the parts of an Interface need.
type InterfaceConfig struct {
	services.Services
	Answers *idempotency.Answers
	Limiter *ratelimit.Limiter

	Workflows    *actions.Actions      // Optional: without it no workflow gets a key.
	Repositories sites.Repositories    // inspects a new site's repository
	Installation operator.Installation // what the operator's pages show
	SignUp       bool                  // whether people may create accounts
	RateLimit    int                   // requests per minute and key
	DataDir      string                // where the provider for Terraform is served from, if the operator put it there
}

// Interface is what users of the installation reach: the REST interface, the pages, tools for agents, the endpoints of OAuth and
// the mirror of the provider for Terraform.
type Interface struct {
	pages    *dashboard.Dashboard
	programs http.Handler // the REST interface
	people   http.Handler // the pages
	agents   http.Handler
	tokens   http.Handler
	provider http.Handler
	sellers  *seller.Hosts
	base     string
}

// NewInterface makes every part. It starts nothing.
func NewInterface(c InterfaceConfig) *Interface {
	// One user has so many streams and downloads, whether of pages or of the API.
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

// Run keeps the pages' lists in order until ctx ends.
func (i *Interface) Run(ctx context.Context) error { return i.pages.Run(ctx) }

// ServeHTTP says what answers which path: programs at /api, /hooks, /docs, /mcp, /terraform and the endpoints of OAuth, people
// everywhere else. At sellers' hosts there is neither OAuth nor MCP. A nil Interface is that of a node without the role.
func (i *Interface) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case i == nil:
		Plain(w, http.StatusNotFound, "This node does not serve the interface.")
	case (oauth.Serves(r.URL.Path) || r.URL.Path == mcp.Path) && i.sellers.Has(r.Host):
		// What clients keep of an issuer and of a resource is bound to one origin.
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
