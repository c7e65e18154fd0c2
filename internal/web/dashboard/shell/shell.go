// Package shell owns what every page of the dashboard shares: sessions, rendering, forms
// that failed, live parts, and what a page is drawn with (lists, plots, words).
//
// A handler takes a Request and returns an Answer or an error; serve.go turns faults into
// pages, and a form that fails is shown again with what was typed and the sentence at its
// field. Every change goes through the same services as the REST interface, as the signed-in
// user, with a line of the audit log in the same transaction (Shell.Act). The package knows no
// page: packages of pages embed a *Shell and give their routes to Route.
package shell

import (
	"cmp"
	"context"
	"html/template"
	"io/fs"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/billing/seller"
	"slipway/internal/tenant/team"
	"slipway/internal/web/ratelimit"
	"slipway/internal/web/requestinfo"
)

// Config holds what pages are made of.
type Config struct {
	DB       *db.DB
	Accounts *account.Accounts
	Teams    *team.Teams
	Log      *slog.Logger // Optional.

	Templates fs.FS            // templates/<page>.html
	Files     fs.FS            // assets/<file>, that pages load
	Funcs     template.FuncMap // of the packages of pages, for templates. Optional.

	Billing        bool                 // whether there are pages of plans and invoices
	Sellers        *seller.Hosts        // other hosts of the pages. Optional.
	BaseURL        string               // where the pages and the REST interface are reached; https makes the cookies __Host-
	TrustedProxies []netip.Prefix       // whose X-Forwarded-For counts. Optional: none.
	Ready          *atomic.Bool         // false while starting or draining. Optional: always true.
	Version        string               // of the program. Optional.
	Streams        *requestinfo.Streams // shared with the API. Optional.
}

// Shell serves pages.
type Shell struct {
	Config
	Assets Assets
	Pages  map[string]func() *template.Template // by the template's name

	logins *ratelimit.Limiter
	secure bool // the base URL is https
	mux    *http.ServeMux
	routes map[string]Route // by method and path, as mux names them
}

// New reads the templates and the assets. It starts nothing.
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
		// Guesses are counted in the database also on one node: a restart forgives nothing.
		logins: ratelimit.New(ratelimit.Config{DB: c.DB, Log: c.Log, Length: window, Shared: true}),
	}
	d.Pages = d.loadPages()
	d.Route(Get("/assets/{name}", Open, d.asset))
	return d
}

// Route serves more routes.
func (d *Shell) Route(routes ...Route) {
	for _, rt := range routes {
		d.mux.Handle(rt.Method+" "+rt.Path, d.handle(rt))
		d.routes[rt.Method+" "+rt.Path] = rt
	}
}

// Run forgets counts of guesses that are over, until ctx ends.
func (d *Shell) Run(ctx context.Context) error { return d.logins.Run(ctx) }

// Handler serves every page, form, live part and asset. Unsafe methods from another
// origin are refused before anything is read.
func (d *Shell) Handler() http.Handler {
	cross := http.NewCrossOriginProtection()
	if u, err := url.Parse(d.BaseURL); err == nil && u.Host != "" {
		// Behind a proxy that changes Host the page's own origin is still the base URL's.
		if err := cross.AddTrustedOrigin(u.Scheme + "://" + u.Host); err != nil {
			d.Log.Error("base URL is not an origin", "url", d.BaseURL, "err", err)
		}
	}
	cross.SetDenyHandler(http.HandlerFunc(d.refuseForeign))
	return d.headers(cross.Handler(http.HandlerFunc(d.dispatch)))
}

// Base returns the URL at which the asker has the dashboard: the seller's host that they are at, or the base URL.
func (d *Shell) Base(q *Request) string {
	if p, ok := d.Sellers.At(q.Host); ok {
		return p.URL
	}
	return d.BaseURL
}

// Elsewhere returns the base URL where the asker is at a seller's host: what is bound to one host is at that one. Empty: they are there.
func (d *Shell) Elsewhere(q *Request) string {
	if d.Sellers.Has(q.Host) {
		return d.BaseURL
	}
	return ""
}

// NameAt returns under which name the dashboard is at the host that the asker is at.
func (d *Shell) NameAt(q *Request) string {
	p, _ := d.Sellers.At(q.Host)
	return cmp.Or(p.Brand.Name, "Slipway")
}

// window is how long guesses count.
const window = 15 * time.Minute
