// Package dashboard owns the pages for people: everything that the REST interface does,
// rendered on the server, with small scripts that only add comfort and live parts.
//
// Routes stand in one list (routes.go). A handler takes a request and returns an answer
// or an error; one place (serve.go) turns faults into pages, and a form that fails is
// shown again with what was typed and the sentence at its field. Every change goes
// through the same services as the REST interface, as the signed-in user, with a line of
// the audit log in the same transaction (Dashboard.act). Nothing is loaded from another
// host, no script or style stands in a page, and pages are never cached.
//
// To add a page: a line in routes.go, a handler in <noun>_*.go, and a template
// templates/<noun>_*.html that defines "main". templates/frame_<noun>.html, where there
// is one, is put around all pages of that noun. In templates "." is a *view: .Data is
// what the handler returned; .Field makes a labelled input that keeps what was typed.
// Parts that are ready (templates/parts.html): "field", "problem", "confirm" (a button
// that asks first, without scripts), "copy", "rest" (the curl command that does the
// same), "empty", "pages". Functions (funcs.go): ago, status, bytes, picture, rest,
// asset, dict. A live part is an element with data-live="/address" whose handler
// returns an answer with live set: it is sent again whenever it changes (live.go).
package dashboard

import (
	"cmp"
	"context"
	"html/template"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"slipway/internal/backup/backup"
	"slipway/internal/build/framework"
	"slipway/internal/deploy/deploy"
	"slipway/internal/deploy/pushes"
	"slipway/internal/deploy/ruletest"
	"slipway/internal/deploy/thumbnail"
	"slipway/internal/edge/certs"
	"slipway/internal/git/fetch"
	"slipway/internal/platform/db"
	"slipway/internal/program/database"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/connection"
	"slipway/internal/tenant/domain"
	"slipway/internal/tenant/member"
	"slipway/internal/tenant/notify"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/traffic"
	"slipway/internal/tenant/webhook"
	"slipway/internal/web/ratelimit"
	"slipway/internal/web/requestinfo"
	"slipway/internal/wordpress/wordpress"
)

// Config names the services that the pages show.
type Config struct {
	Certificates certs.Addresses // of sites' own addresses
	DB           *db.DB
	Accounts     *account.Accounts
	Sites        *site.Sites
	Deployments  *deploy.Deployments
	Streams      *requestinfo.Streams // shared with the API. Optional.
	Rules        *ruletest.Rules
	Thumbnails   *thumbnail.Thumbnails
	Git          *pushes.Pushes
	Connections  *connection.Connections
	Notify       *notify.Notifications
	Domains      *domain.Domains
	Databases    *database.Databases
	Backups      *backup.Backups
	WordPress    *wordpress.WordPress
	Traffic      *traffic.Traffic
	Webhooks     *webhook.Webhooks
	Log          *slog.Logger

	BaseURL        string         // where the pages and the REST interface are reached; https makes the cookies __Host-
	APIURL         string         // where deploy hooks are reached. Optional: empty means BaseURL.
	TrustedProxies []netip.Prefix // whose X-Forwarded-For counts. Optional: none.
	Ready          *atomic.Bool   // false while starting or draining. Optional: always true.
	Version        string         // of the program. Optional.

	Repositories Repositories    // Optional: without it a new site's repository is not inspected.
	Members      *member.Members // Optional: without it nobody goes on to a protected address.

	// Programs shows and changes the programs of sites. Optional: without it the pages show none.
	Programs Programs

	Installation Installation // Optional: without it the operator's pages leave it out.
}

// Repositories say what is in a repository before a site is made of it. A git.Look does.
type Repositories interface {
	// Branches lists a repository's branches and its default one, or says in a fault why
	// they can't be read.
	Branches(
		ctx context.Context,
		who account.OwnerID,
		repository string,
		c *fetch.Credential,
	) (branches []string, byDefault string, err error)
	// Detect says how a branch would be built.
	Detect(
		ctx context.Context,
		who account.OwnerID,
		repository, branch string,
		c *fetch.Credential,
		o framework.Overrides,
	) (framework.Plan, error)
}

// Programs shows the programs of sites, and changes them. ProgramsOf returns package
// app's.
type Programs interface {
	// Process returns the state of the program of a site's live deployment.
	Process(s site.Site) Process
	// ProgramLog returns the latest lines that a site's programs printed, the oldest first.
	ProgramLog(ctx context.Context, id site.ID, f ProgramFilter) ([]ProgramLine, error)
	// Figures returns those of a site's program over the last 24 hours, with the step between points.
	Figures(ctx context.Context, id site.ID) ([]ProgramFigures, time.Duration, error)
	// ProgramTasks lists what runs beside a site's program.
	ProgramTasks(ctx context.Context, id site.ID) ([]ProgramTask, error)
	// RunOnceTx opens the operation that runs a command once, and returns its name in the log.
	RunOnceTx(ctx context.Context, tx *db.Tx, s site.Site, command string) (string, error)
	// RestartSiteTx opens the operation that restarts a site's program.
	RestartSiteTx(ctx context.Context, tx *db.Tx, s site.Site) error
	// Storage returns what a site's programs store.
	Storage(ctx context.Context, id site.ID) (Storage, error)
	// Terminal runs a shell in the sandbox of a site's live deployment until it ends, or ctx does, and
	// returns how it ended, in words.
	Terminal(ctx context.Context, s site.Site, t Terminal) (how string, err error)
}

// Dashboard serves the pages.
type Dashboard struct {
	Config
	logins *ratelimit.Limiter
	secure bool // the base URL is https
	assets assets
	pages  map[string]func() *template.Template
	routes []route
	mux    *http.ServeMux

	terminals *requestinfo.Streams

	disk   cached[Disk]
	doctor cached[[]Finding]
}

// New reads the templates and lists the routes. It starts nothing.
func New(c Config) *Dashboard {
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	c.BaseURL = strings.TrimRight(c.BaseURL, "/")
	c.APIURL = strings.TrimRight(cmp.Or(c.APIURL, c.BaseURL), "/")
	if c.Ready == nil {
		c.Ready = new(atomic.Bool)
		c.Ready.Store(true)
	}
	d := &Dashboard{
		Config: c, secure: strings.HasPrefix(
			c.BaseURL,
			"https://",
		), mux: http.NewServeMux(), terminals: requestinfo.NewStreams(maxTerminals, maxUserTerminals, maxNetworkTerminals),
		// Guesses are counted in the database also on one node: a restart forgives nothing.
		logins: ratelimit.New(ratelimit.Config{DB: c.DB, Log: c.Log, Length: window, Shared: true}),
	}
	if d.Streams == nil {
		d.Streams = requestinfo.NewStreams(requestinfo.AllStreams, requestinfo.UserStreams, requestinfo.NetworkStreams)
	}
	if i := c.Installation; i != nil {
		d.disk.load, d.disk.good = i.Disk, time.Minute
		d.doctor.load, d.doctor.good = i.Doctor, time.Minute
	}
	d.assets = loadAssets()
	d.pages = d.loadPages()
	d.routes = d.listRoutes()
	for _, rt := range d.routes {
		d.mux.Handle(rt.method+" "+rt.path, d.handle(rt))
	}
	return d
}

// Run forgets counts of guesses that are over, until ctx ends.
func (d *Dashboard) Run(ctx context.Context) error { return d.logins.Run(ctx) }

// Handler serves every page, form, live part and asset. Unsafe methods from another
// origin are refused before anything is read.
func (d *Dashboard) Handler() http.Handler {
	cross := http.NewCrossOriginProtection()
	if u, err := url.Parse(d.BaseURL); err == nil && u.Host != "" {
		// Behind a proxy that changes Host the page's own origin is still the base URL's.
		if err := cross.AddTrustedOrigin(u.Scheme + "://" + u.Host); err != nil {
			d.Log.Error("base URL is not an origin", "url", d.BaseURL, "err", err)
		}
	}
	cross.SetDenyHandler(http.HandlerFunc(d.refuseForeign))
	return d.shell(cross.Handler(http.HandlerFunc(d.dispatch)))
}

// window is how long guesses count.
const window = 15 * time.Minute
