// Package contract owns what all operations of the REST API share: registration and calls, callers, bodies, errors,
// stored answers, streams, common shapes, and the OpenAPI document.
//
// Each request passes these steps: request id, caller, rate limit, checks of the body, route. Handlers are typed
// functions that call one service and return its error; one place turns errors into statuses and bodies. A change runs
// in one transaction, and if the client sends an Idempotency-Key, a POST stores its answer in the same transaction. The
// package knows no nouns: the packages of operations register theirs.
package contract

import (
	"cmp"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/danielgtaylor/huma/v2"

	"slipway/internal/edge/front"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fair"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/oauth"
	"slipway/internal/tenant/site"
	"slipway/internal/web/docs"
	"slipway/internal/web/idempotency"
	"slipway/internal/web/ratelimit"
	"slipway/internal/web/requestinfo"
)

// Config holds what every operation needs.
type Config struct {
	DB       *db.DB
	Accounts *account.Accounts
	Sites    *site.Sites
	OAuth    *oauth.Server // Optional: nil means that only API keys are accepted.
	Answers  *idempotency.Answers
	Streams  *requestinfo.Streams // shared with the dashboard. Optional.
	Limiter  *ratelimit.Limiter
	Log      *slog.Logger // Optional.
	Billing  bool         // whether the installation has plans and invoices

	BaseURL        string        // public URL of the API
	APIURL         string        // public URL of deploy hooks. Optional: empty means BaseURL.
	RateLimit      int           // requests per minute and key. Optional: 0 means 100.
	TrustedProxies front.Proxies // set X-Forwarded-For or the like. Optional.
	Ready          *atomic.Bool  // false while starting or draining. Optional: nil means always true.
	Version        string        // of the program. Optional.
	FontURL        string        // of the reference's font, on the same host. Optional: empty means the system's font.
	IconURL        string        // of the reference's icon, an SVG on the same host. Optional.
}

// API registers operations and serves requests.
type API struct {
	Config
	mux       *http.ServeMux
	huma      huma.API
	ops       []Route
	byPattern map[string]Route // by mux pattern
	hooks     []Hook           // handlers of /hooks
	large     *fair.Pool       // limits bodies over MaxBody
	spec      func() []byte    // openapi.json
	docs      func() *docs.Docs
}

// New returns an API without operations. It starts nothing.
func New(c Config) *API {
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	c.RateLimit = cmp.Or(c.RateLimit, 100)
	c.BaseURL = strings.TrimRight(c.BaseURL, "/")
	c.APIURL = strings.TrimRight(cmp.Or(c.APIURL, c.BaseURL), "/")
	if c.Ready == nil {
		c.Ready = new(atomic.Bool)
		c.Ready.Store(true)
	}
	if c.Streams == nil {
		c.Streams = requestinfo.NewStreams(requestinfo.AllStreams, requestinfo.UserStreams, requestinfo.NetworkStreams)
	}
	mux := http.NewServeMux()
	// share: total 2 large bodies of hooks; owner 1 of them; edge 503 after 5 seconds
	large := fair.New(fair.Config{Places: 2, Owner: 1, Waiting: 20, OwnerWaiting: 4})
	return &API{Config: c, mux: mux, huma: newHuma(mux, c), large: large}
}

// Finish completes the document after all operations were registered.
func (a *API) Finish() {
	a.finish()
	a.byPattern = map[string]Route{}
	for _, r := range a.ops {
		if r.Hook {
			a.byPattern[r.Method+" "+r.Path] = r
			continue
		}
		a.byPattern[r.Method+" /api/v1"+r.Path] = r
	}
}

// Handler serves /api/, /hooks/, /docs and the page at /.
func (a *API) Handler() http.Handler { return http.HandlerFunc(a.serve) }

// Routes returns all routes, for the authorization matrix.
func (a *API) Routes() []Route { return a.ops }
