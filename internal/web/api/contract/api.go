// Package contract owns what all operations of the REST API share: how they are registered and called,
// callers, bodies, errors, stored answers, streams, the shapes that several of them use, and the OpenAPI
// document that is made of them.
//
// A request meets, in this order: its id, the caller, the rate limit, the body's checks,
// the route. Handlers are typed functions that call one service and return its error; one
// place turns errors into status and body. What changes something runs in one
// transaction, and a POST keeps its answer in it when the client sends an
// Idempotency-Key. The package knows no noun: packages of operations register theirs.
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

// Config names what every operation needs.
type Config struct {
	DB       *db.DB
	Accounts *account.Accounts
	Sites    *site.Sites
	OAuth    *oauth.Server // Optional: without it there are API keys alone.
	Answers  *idempotency.Answers
	Streams  *requestinfo.Streams // shared with the dashboard. Optional.
	Limiter  *ratelimit.Limiter
	Log      *slog.Logger // Optional.
	Billing  bool         // whether there are plans and invoices

	BaseURL        string        // where the interface is reached
	APIURL         string        // where deploy hooks are reached. Optional: empty means BaseURL.
	RateLimit      int           // requests per minute and key. Optional: 0 means 100.
	TrustedProxies front.Proxies // which name the client. Optional: none.
	Ready          *atomic.Bool  // false while starting or draining. Optional: always true.
	Version        string        // of the program. Optional.
	FontURL        string        // of the reference's font, on the same host. Optional: the system's.
	IconURL        string        // of the reference's icon, an SVG on the same host. Optional: none.
}

// API is what operations are registered with, and what answers requests then.
type API struct {
	Config
	mux       *http.ServeMux
	huma      huma.API
	ops       []Route
	byPattern map[string]Route // by the mux's pattern
	hooks     []Hook           // what may be called below /hooks
	large     *fair.Pool       // of bodies over MaxBody
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

// Finish completes the document. Every operation is registered by then.
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

// Routes returns every route of the interface, for the authorization matrix.
func (a *API) Routes() []Route { return a.ops }
