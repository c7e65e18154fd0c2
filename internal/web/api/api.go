// Package api owns the REST API: /api/v1, deploy-hook URLs, the OpenAPI document and
// the reference page made from it.
//
// A request meets, in this order: its id, the caller, the rate limit, the body's checks,
// the route. Handlers are typed functions that call one service and return its error; one
// place turns errors into status and body. What changes something runs in one
// transaction, and a POST keeps its answer in it when the client sends an
// Idempotency-Key. The package holds no rules of its own and writes no table.
package api

import (
	"cmp"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"

	"github.com/danielgtaylor/huma/v2"

	"slipway/internal/backup/backup"
	"slipway/internal/deploy/deploy"
	"slipway/internal/deploy/pushes"
	"slipway/internal/deploy/ruletest"
	"slipway/internal/deploy/upload"
	"slipway/internal/edge/certs"
	"slipway/internal/platform/db"
	"slipway/internal/program/app"
	"slipway/internal/program/database"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/connection"
	"slipway/internal/tenant/domain"
	"slipway/internal/tenant/limits"
	"slipway/internal/tenant/notify"
	"slipway/internal/tenant/oauth"
	"slipway/internal/tenant/operation"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/sso"
	"slipway/internal/tenant/team"
	"slipway/internal/tenant/traffic"
	"slipway/internal/tenant/usage"
	"slipway/internal/tenant/webhook"
	"slipway/internal/web/docs"
	"slipway/internal/web/idempotency"
	"slipway/internal/web/ratelimit"
	"slipway/internal/web/requestinfo"
	"slipway/internal/wordpress/wordpress"
)

// Config names the services that the API exposes.
type Config struct {
	DB          *db.DB
	Accounts    *account.Accounts
	Teams       *team.Teams
	Sites       *site.Sites
	Deployments *deploy.Deployments
	Uploads     *upload.Uploads
	Rules       *ruletest.Rules
	Git         *pushes.Pushes
	Connections *connection.Connections
	Notify      *notify.Notifications
	Domains     *domain.Domains
	Traffic     *traffic.Traffic
	Usage       *usage.Usage
	Apps        *app.Apps
	Databases   *database.Databases
	WordPress   *wordpress.WordPress
	Webhooks    *webhook.Webhooks
	Backups     *backup.Backups
	Operations  *operation.Operations
	OAuth       *oauth.Server // Optional: without it there are API keys alone.
	SSO         *sso.SSO      // Optional: without it teams have no sign-in providers.
	Answers     *idempotency.Answers
	Streams     *requestinfo.Streams // shared with the dashboard. Optional.
	Limiter     *ratelimit.Limiter
	Limits      *limits.Limits // Optional: without it GET /account shows none.
	Log         *slog.Logger

	Certificates certs.Addresses // of sites' own addresses

	BaseURL        string         // where the interface is reached, without a trailing slash
	APIURL         string         // where deploy hooks are reached. Optional: empty means BaseURL.
	RateLimit      int            // requests per minute and key. Optional: 0 means 100.
	TrustedProxies []netip.Prefix // whose X-Forwarded-For counts. Optional: none.
	Ready          *atomic.Bool   // false while starting or draining. Optional: always true.
	Version        string         // of the program. Optional.
	FontURL        string         // of the reference's font, on the same host. Optional: the system's.
	IconURL        string         // of the reference's icon, an SVG on the same host. Optional: none.
}

// API is the REST API.
type API struct {
	Config
	mux       *http.ServeMux
	huma      huma.API
	ops       []Route
	byPattern map[string]Route // by the mux's pattern
	pushes    *db.Batch        // that forges tell of
	hooks     []Hook           // what may be called below /hooks
	spec      func() []byte    // openapi.json
	docs      func() *docs.Docs
}

// New registers every route. It starts nothing.
func New(c Config) *API {
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	c.RateLimit = cmp.Or(c.RateLimit, 100)
	c.Limits = cmp.Or(c.Limits, limits.New(limits.Settings{}))
	c.BaseURL = strings.TrimRight(c.BaseURL, "/")
	c.APIURL = strings.TrimRight(cmp.Or(c.APIURL, c.BaseURL), "/")
	if c.Ready == nil {
		c.Ready = new(atomic.Bool)
		c.Ready.Store(true)
	}
	a := &API{Config: c, mux: http.NewServeMux()}
	if a.Streams == nil {
		a.Streams = requestinfo.NewStreams(requestinfo.AllStreams, requestinfo.UserStreams, requestinfo.NetworkStreams)
	}
	a.pushes = c.DB.NewBatch()
	a.huma = newHuma(a.mux, c)
	a.routes()
	a.finish()
	a.byPattern = map[string]Route{}
	for _, r := range a.ops {
		if r.Hook {
			a.byPattern[r.Method+" "+r.Path] = r
			continue
		}
		a.byPattern[r.Method+" /api/v1"+r.Path] = r
	}
	return a
}

// Handler serves /api/, /hooks/, /docs and the page at /.
func (a *API) Handler() http.Handler { return http.HandlerFunc(a.serve) }

// Routes returns every route of the interface, for the authorization matrix.
func (a *API) Routes() []Route { return a.ops }

// routes lists every operation of the interface.
func (a *API) routes() {
	a.siteRoutes()
	a.programRoutes()
	a.databaseRoutes()
	a.wordpressRoutes()
	a.trafficRoutes()
	a.usageRoutes()
	a.ruleRoutes()
	a.servingRoutes()
	a.deploymentRoutes()
	a.uploadRoutes()
	a.domainRoutes()
	a.envRoutes()
	a.hookRoutes()
	a.gitRoutes()
	a.connectionRoutes()
	a.notifyRoutes()
	a.webhookRoutes()
	a.operationRoutes()
	a.backupRoutes()
	a.accountRoutes()
	a.teamRoutes()
	a.transferRoutes()
	a.oauthRoutes()
	a.teamSSORoutes()
	a.identityRoutes()
}
