// Package shell owns what all dashboard pages share: sessions, rendering, failed forms, live parts, and display helpers
// (lists, charts, words).
//
// A handler takes a Request and returns an Answer or an error. serve.go turns faults into pages, and shows a failed
// form again with its values and the message at its field. Every change uses the same services as the REST API, as the
// signed-in user, and writes the audit log in the same transaction ([Shell.Act]). The package knows no pages: packages of
// pages embed a *Shell and pass their routes to Route.
package shell

import (
	"cmp"
	"context"
	"html/template"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"slipway/internal/edge/front"
	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/billing/seller"
	"slipway/internal/tenant/team"
	"slipway/internal/web/ratelimit"
	"slipway/internal/web/requestinfo"
)

type Config struct {
	DB       *db.DB
	Accounts *account.Accounts
	Teams    *team.Teams
	Log      *slog.Logger // Optional.

	Templates fs.FS            // templates/<page>.html
	Files     fs.FS            // assets/<file>
	Funcs     template.FuncMap // functions of the packages of pages. Optional.

	Billing        bool                 // whether pages of plans and invoices exist
	Sellers        *seller.Hosts        // other hosts of the dashboard. Optional.
	BaseURL        string               // URL of the dashboard and REST API; with https, cookies have the prefix __Host-
	TrustedProxies front.Proxies        // which name the client. Optional: none.
	Ready          *atomic.Bool         // false while starting or draining. Optional: always true.
	Version        string               // of the program. Optional.
	Streams        *requestinfo.Streams // shared with the API. Optional.
}

// Shell serves pages.
type Shell struct {
	Config
	Assets Assets
	Pages  map[string]func() *template.Template // by template name

	logins *ratelimit.Limiter
	secure bool // whether the base URL is https
	mux    *http.ServeMux
	routes map[string]Route // by method and path, as in mux
}

// New parses the templates and loads the assets. It starts nothing.
func New(c Config) *Shell {
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	c.BaseURL = strings.TrimRight(c.BaseURL, "/")
	if c.Ready == nil {
		c.Ready = new(atomic.Bool)
		c.Ready.Store(true)
	}
	if c.Streams == nil {
		c.Streams = requestinfo.NewStreams(requestinfo.AllStreams, requestinfo.UserStreams, requestinfo.NetworkStreams)
	}
	d := &Shell{
		Config: c,
		Assets: loadAssets(c.Files),
		secure: strings.HasPrefix(c.BaseURL, "https://"),
		mux:    http.NewServeMux(),
		routes: map[string]Route{},
		// Guesses are counted in the database even on one node, so that a restart doesn't reset them.
		logins: ratelimit.New(ratelimit.Config{DB: c.DB, Log: c.Log, Length: window, Shared: true}),
	}
	d.Pages = d.loadPages()
	d.Route(Get("/assets/{name}", Open, d.asset))
	return d
}

// Route adds routes.
func (d *Shell) Route(routes ...Route) {
	for _, rt := range routes {
		d.mux.Handle(rt.Method+" "+rt.Path, d.handle(rt))
		d.routes[rt.Method+" "+rt.Path] = rt
	}
}

// Run deletes expired counts of guesses until ctx ends.
func (d *Shell) Run(ctx context.Context) error { return d.logins.Run(ctx) }

// Handler returns the handler of all pages, forms, live parts and assets. It refuses unsafe methods from other origins
// before reading the body.
func (d *Shell) Handler() http.Handler {
	cross := http.NewCrossOriginProtection()
	if u, err := url.Parse(d.BaseURL); err == nil && u.Host != "" {
		// Behind a proxy that changes Host, the pages' origin is still the base URL's.
		if err := cross.AddTrustedOrigin(u.Scheme + "://" + u.Host); err != nil {
			d.Log.Error("base URL is not an origin", "url", d.BaseURL, "err", err)
		}
	}
	cross.SetDenyHandler(http.HandlerFunc(d.refuseForeign))
	return d.headers(cross.Handler(http.HandlerFunc(d.dispatch)))
}

// Base returns the URL of the dashboard for the request: that of the seller's host, or the base URL.
func (d *Shell) Base(q *Request) string {
	if p, ok := d.Sellers.At(q.Host); ok {
		return p.URL
	}
	return d.BaseURL
}

// Elsewhere returns the base URL if the request is at a seller's host, for features that are bound to the main host,
// otherwise "".
func (d *Shell) Elsewhere(q *Request) string {
	if d.Sellers.Has(q.Host) {
		return d.BaseURL
	}
	return ""
}

// NameAt returns the dashboard's name at the request's host.
func (d *Shell) NameAt(q *Request) string {
	p, _ := d.Sellers.At(q.Host)
	return cmp.Or(p.Brand.Name, "Slipway")
}

// window is the period in which guesses are counted.
const window = 15 * time.Minute
