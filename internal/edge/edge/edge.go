// Package edge owns the entry of visitors' requests: TLS, the table that maps hosts to sites, and the choice of what
// answers: the files of a release (package fileserver) or a program (package proxy), behind the site's protection
// (package access), counted by package visits.
//
// Run keeps a table of hosts in memory, fed by the view live. A site's row is one pointer, which a request loads once:
// a response comes from one release only, and a switch is one store. Releases are immutable, so cached trees, small
// files and whole responses are never stale. Certificates come from [Config.Certificates], which learns from the tables
// what a host is; unknown names get a TLS alert.
//
// Package fastpath answers plain requests with responses that the files backend has made before (ready.go). All other
// requests go through net/http to a backend.
//
// The edge reads the views live, custom_hosts and previews and knows no service. It never serves the control plane's
// content on a site's host or the reverse, and it redirects only to the requested host or to the one that the owner of
// a custom host chose.
package edge

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"slipway/internal/platform/id"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"slipway/internal/build/release"
	"slipway/internal/edge/access"
	"slipway/internal/edge/allowance"
	"slipway/internal/edge/connlimit"
	"slipway/internal/edge/endpoint"
	"slipway/internal/edge/fileserver"
	"slipway/internal/edge/front"
	"slipway/internal/edge/proxy"
	"slipway/internal/edge/ready"
	"slipway/internal/edge/response"
	"slipway/internal/edge/throttle"
	"slipway/internal/edge/visits"
	"slipway/internal/platform/blob"
	"slipway/internal/platform/cache"
	"slipway/internal/platform/db"
	"slipway/internal/platform/panics"
)

// Config holds the dependencies and settings of an Edge.
type Config struct {
	DB         *db.DB
	Releases   *release.Releases
	Blobs      *blob.Store
	SiteDomain string // sites live at <label>.<SiteDomain>

	HTTPSPort    int          // port in redirects. Optional: 0 means 443.
	Control      http.Handler // the control plane. Optional.
	Draining     *atomic.Bool // if true, each response closes its connection. Optional.
	ControlHosts []string     // hosts of the control plane, without port. Optional.
	MoreControl  HostSet      // further hosts of the control plane, which may change at any time. Optional.
	Log          *slog.Logger // Optional.
	Metrics      prometheus.Registerer

	Certificates Certificates // Optional: without it every handshake ends in an alert.

	// Programs finds the program of a site, by the runtime in the views live and previews. Optional: without it such
	// sites answer with a page that says to try again.
	Programs map[string]endpoint.Source
	// FirstByte is how long a program may take until the first byte of its response. Optional: 0 means 100s.
	FirstByte time.Duration

	Visits      visits.Recorder  // Optional: nil counts nothing.
	VisitsEvery time.Duration    // interval between calls of Visits. Optional: 0 means 10s.
	Countries   visits.Countries // Optional: nil records no countries.

	// Lender lends parts of owners' remaining bandwidth. Optional: without it, sites are paused once the database says
	// that nothing is left.
	Lender allowance.Lender

	// Out forwards requests to other hosts, through egress, as sites' rules and settings say. Optional: nil forwards
	// nothing.
	Out http.RoundTripper

	// Password reports whether password matches the hash in a site's settings. Optional: nil refuses every password.
	Password func(hash, password string) bool

	// Members admits signed-in members of a site. Optional: nil means that addresses that require a sign-in admit
	// nobody.
	Members access.Members

	TreeBytes  int64 // memory for manifests. Optional: 0 means 64 MiB.
	AssetBytes int64 // memory for files, and the same again for whole responses. Optional: 0 means 128 MiB.

	Proxies    front.Proxies // which forward visitors' requests. Optional: none.
	NoFastPath bool          // leaves all connections to net/http
	HTTP3      bool          // advertises HTTP/3 at HTTPSPort to clients
}

// HostSet is a set of hosts, in lower case and without port. It is read for every connection and most requests.
type HostSet interface{ Has(host string) bool }

// Certificates provides certificates for TLS handshakes.
type Certificates interface {
	// Certificate finds the certificate for a handshake. name is the name to certify, empty for an unknown host; known
	// reports whether the host is permanent (see certificateName). A nil certificate ends the handshake with an alert.
	Certificate(hello *tls.ClientHelloInfo, name string, known bool) (*tls.Certificate, error)
	// Challenge answers an authority's HTTP request (RFC 8555 §8.3) and reports whether it was for one of our orders.
	Challenge(w http.ResponseWriter, r *http.Request) bool
}

// Edge serves sites. It is safe for concurrent use.
type Edge struct {
	Config
	control    map[string]bool
	port       string   // ":8443", or "" for 443
	altSvc     []string // the Alt-Svc header for HTTP/3; nil without it
	table      table
	previews   previews
	trees      *cache.Cache[release.ID, *release.Tree]
	fileserver *fileserver.Server
	answers    *ready.Table
	metrics    metrics
	visits     *visits.Counter
	loaded     atomic.Bool
	paused     map[id.Site]bool    // used by follow only
	capped     map[id.Owner]capped // used by follow only
	moved      bool                // used by follow only: pauses or caps have changed since all rows were read
	throttles  *throttle.Throttles
	allowances *allowance.Allowances // nil without a Lender
	backends   map[string]backend    // by kind
	guard      *access.Guard
	proxy      *proxy.Proxy
	held       *response.Held // memory held by response headers
	bodyTime   time.Duration  // time limit for request bodies that nothing reads
}

// New returns an Edge without hosts. Run reads them.
func New(c Config) *Edge {
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	c.SiteDomain = strings.ToLower(strings.Trim(c.SiteDomain, "."))
	e := &Edge{Config: c, control: map[string]bool{}}
	for _, h := range c.ControlHosts {
		e.control[strings.ToLower(h)] = true
	}
	if c.HTTPSPort != 0 && c.HTTPSPort != 443 {
		e.port = fmt.Sprintf(":%d", c.HTTPSPort)
	}
	if c.HTTP3 {
		e.altSvc = []string{fmt.Sprintf(`h3=":%d"; ma=86400`, cmp.Or(c.HTTPSPort, 443))}
	}
	e.guard = access.New(access.Config{Password: c.Password, Members: c.Members, Port: e.port})
	alt := ""
	if e.altSvc != nil {
		alt = e.altSvc[0]
	}
	e.proxy = proxy.New(proxy.Config{
		SiteDomain: c.SiteDomain, FirstByte: c.FirstByte, AltSvc: alt, VisitorHeader: c.Proxies.Header, Out: c.Out, Log: c.Log,
	})
	e.metrics = newMetrics(c.Metrics)
	trees, assets := cmp.Or(c.TreeBytes, 64<<20), cmp.Or(c.AssetBytes, 128<<20)
	// One owner may use the whole cache, since a tree that isn't cached is decoded again for each request.
	// share: total 64 MiB of releases' trees; owner what others leave, and who has the most loses first; edge trees used longest ago are read again
	e.trees = cache.New[release.ID, *release.Tree](trees, trees)
	e.fileserver = fileserver.New(fileserver.Config{
		Blobs:  c.Blobs,
		Log:    c.Log,
		Bytes:  assets,
		Looked: func(hit bool) { e.metrics.cache("asset", hit) },
	})
	e.answers = ready.New(assets)
	e.held = response.NewHeld()
	e.table.now.Store(&hosts{})
	e.table.counts = c.Visits != nil
	var marks visits.Marks
	if c.Lender != nil && c.Visits != nil {
		e.allowances = allowance.New(allowance.Config{Lender: c.Lender, Log: c.Log})
		marks = e.allowances
	}
	e.visits = visits.New(visits.Config{
		Recorder:  c.Visits,
		Marks:     marks,
		Every:     cmp.Or(c.VisitsEvery, 10*time.Second),
		Countries: c.Countries,
		Log:       c.Log,
	})
	e.throttles = throttle.New()
	e.previews.init()
	e.backends = map[string]backend{backendFiles: e.files}
	if len(c.Programs) > 0 {
		e.backends[backendProgram] = e.program
	}
	e.bodyTime = response.BodyTime
	return e
}

// Run keeps the tables of hosts in step with the views until ctx ends: at once when the database announces a change,
// otherwise within half a second. While the database is down, it serves the known hosts.
func (e *Edge) Run(ctx context.Context) error {
	var g errgroup.Group
	g.Go(func() error { return panics.Again(ctx, e.follow) })
	g.Go(func() error { return panics.Again(ctx, e.visits.Run) })
	if e.allowances == nil {
		return g.Wait()
	}
	wake, stop := e.DB.Listen(allowance.Topic)
	defer stop()
	g.Go(func() error {
		return panics.Again(ctx, func(ctx context.Context) error { return e.allowances.Run(ctx, wake) })
	})
	err := g.Wait()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	e.allowances.Return(ctx)
	return err
}

// Ready reports whether the table of hosts has been read once. Until then every host gets 503.
func (e *Edge) Ready() bool { return e.loaded.Load() }

// tableTime is how long visitors wait for the first table before they get 503.
const tableTime = 10 * time.Second

// Await returns when the edge is Ready or after tableTime.
func (e *Edge) Await(ctx context.Context) {
	look := time.NewTicker(2 * time.Millisecond)
	defer look.Stop()
	for end := time.Now().Add(tableTime); !e.Ready() && time.Now().Before(end); {
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
	}
}

// Server returns a server for one of the Edge's handlers with limits for untrusted clients: 10 s and 32 KiB for the
// header, 2 minutes of idle time, 128 streams per HTTP/2 connection. Responses of sites have their own deadline, by
// length; the control plane sets its own. The caller sets TLSConfig for HTTPS and serves a listener.
func (e *Edge) Server(h http.Handler) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    32 << 10,
		ConnState:         connlimit.Idle,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: 128, WriteByteTimeout: time.Minute,
			SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second,
		},
		TLSConfig: e.TLSConfig(),
		// Failed handshakes of strangers are only of interest for debugging.
		ErrorLog: slog.NewLogLogger(e.Log.Handler(), slog.LevelDebug),
	}
}

func (e *Edge) isControl(host string) bool {
	return e.control[host] || e.MoreControl != nil && e.MoreControl.Has(host)
}

// HTTPS returns the handler for TLS listeners: sites, and the control plane on its hosts.
func (e *Edge) HTTPS() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { e.enter(w, r, e.serve) })
}

// HTTP returns the handler for plain listeners: it redirects known hosts to HTTPS.
func (e *Edge) HTTP() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { e.enter(w, r, e.redirect) })
}

// enter answers a request with its listener's handler. If a trusted proxy forwards it, the visitor's address and scheme
// count. Headers in which other proxies name visitors are dropped.
func (e *Edge) enter(w http.ResponseWriter, r *http.Request, answer http.HandlerFunc) {
	r, forwarded := e.Proxies.Visitor(r)
	e.proxy.DropClaims(r.Header, forwarded)
	switch {
	case !forwarded:
	case r.TLS == nil, strings.HasPrefix(r.URL.Path, challengePath):
		answer = e.redirect
	default:
		answer = e.serve
	}
	response.Linger(w, r, answer)
}
