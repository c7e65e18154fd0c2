// Package edge owns what visitors of sites meet first: TLS, which host is which site, and what
// answers for it: the files of its release (package fileserver) or its program (package
// proxy), behind what protects it (package access), counted by package visits.
//
// Run keeps a table of hosts in memory, fed by the view live: a site's row is one
// pointer, and a request takes it once, so an answer belongs to one release whole and a
// switch is one store. Releases are immutable, so what is kept in memory is never stale: trees,
// small files and whole answers of either, and nothing else. Certificates come from Config.Certificate, which is told
// what the tables say about a host; a name that is not ours ends in a TLS alert.
//
// Plain requests are answered by package fastpath with answers that the files backend has
// given before (ready.go); everything else goes through net/http to a backend.
//
// The edge reads the views live, custom_hosts and previews and knows no service. It never
// serves the control plane's bytes on a site's host or a site's bytes on the control
// plane's, and it redirects to no host but the one that the request named or the one
// that the owner of a custom host chose.
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

	HTTPSPort    int          // of addresses we redirect to. Optional: 0 means 443.
	Control      http.Handler // the control plane. Optional.
	Draining     *atomic.Bool // whether each answer is its connection's last. Optional.
	ControlHosts []string     // hosts, without port, that get it. Optional.
	MoreControl  HostSet      // others that get it, which change while the edge runs. Optional.
	Log          *slog.Logger // Optional.
	Metrics      prometheus.Registerer

	Certificates Certificates // Optional: without it every handshake ends in an alert.

	// Programs has what answers for sites that are programs, by the runtime that the views live and
	// previews name: a program, or what stands in front of one. Optional: without it they are
	// answered with a page that says to try again.
	Programs map[string]endpoint.Source
	// FirstByte is how long a program may take before the first byte of its response. Optional: 0
	// means 100s.
	FirstByte time.Duration

	Visits      visits.Recorder  // Optional: without it nothing is counted.
	VisitsEvery time.Duration    // how often it is given what was counted. Optional: 0 means 10s.
	Countries   visits.Countries // Optional: without it nobody's country is known.

	// Lender lends parts of owners' bandwidth where little is left. Optional: without it sites are paused once it is
	// written that nothing is left.
	Lender allowance.Lender

	// Out reaches other hosts, through egress, where a site's rules and settings forward
	// requests. Optional: without it nothing is forwarded.
	Out http.RoundTripper

	// Password reports whether a visitor's password is the one that a site's settings hold
	// the hash of. Optional: without it nobody passes a protected site.
	Password func(hash, password string) bool

	// Members lets members of a site in by their sign-in. Optional: without it nobody passes
	// an address that wants one.
	Members access.Members

	TreeBytes  int64 // memory for manifests. Optional: 0 means 64 MiB.
	AssetBytes int64 // memory for files, and as much again for whole answers. Optional: 0 means 128 MiB.

	NoFastPath bool // leaves all connections to net/http
	HTTP3      bool // tells clients that sites answer over HTTP/3, at HTTPSPort
}

// HostSet knows hosts by name, without port and in lower case. It is asked for every connection, and again for most requests.
type HostSet interface{ Has(host string) bool }

// Certificates answer handshakes.
type Certificates interface {
	// Certificate finds the certificate for a handshake. name is what it is made out to, or
	// nothing for a host that is not ours; known reports whether the host is one that stays
	// (see certificateName). Nothing for an answer ends the handshake in an alert.
	Certificate(hello *tls.ClientHelloInfo, name string, known bool) (*tls.Certificate, error)
	// Challenge answers an authority's question on a plain listener (RFC 8555, section
	// 8.3) and reports whether it was ours to answer.
	Challenge(w http.ResponseWriter, r *http.Request) bool
}

// Edge serves sites. It is safe for concurrent use.
type Edge struct {
	Config
	control    map[string]bool
	port       string   // ":8443", or "" for 443
	altSvc     []string // what tells of HTTP/3; nil without it
	table      table
	previews   previews
	trees      *cache.Cache[release.ID, *release.Tree]
	fileserver *fileserver.Server
	answers    *ready.Table
	metrics    metrics
	visits     *visits.Counter
	loaded     atomic.Bool
	paused     map[id.Site]bool    // sites; of follow alone
	capped     map[id.Owner]capped // of follow alone
	moved      bool                // of follow alone: who is paused or capped has changed since all rows were read
	throttles  *throttle.Throttles
	allowances *allowance.Allowances // nil without a lender
	backends   map[string]backend    // by kind
	guard      *access.Guard
	proxy      *proxy.Proxy
	held       *response.Held // by fields of answers
	bodyTime   time.Duration  // for a body that nobody reads
}

// New returns an Edge that knows no host yet: Run tells it.
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
	e.proxy = proxy.New(proxy.Config{SiteDomain: c.SiteDomain, FirstByte: c.FirstByte, AltSvc: alt, Out: c.Out, Log: c.Log})
	e.metrics = newMetrics(c.Metrics)
	trees, assets := cmp.Or(c.TreeBytes, 64<<20), cmp.Or(c.AssetBytes, 128<<20)
	// A tree that is not kept would be decoded again for each request, so one may take all.
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

// Run keeps the tables of hosts like the views until ctx ends: at once when the database
// tells of a change, within half a second when nobody told. While the database is away the
// hosts known so far are served.
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

// Ready reports whether the table of hosts has been read once. Before that every host is
// answered with 503.
func (e *Edge) Ready() bool { return e.loaded.Load() }

// tableTime is how long visitors wait for the first table; then they are told to come again.
const tableTime = 10 * time.Second

// Await returns when the edge is Ready, or that takes too long.
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

// Server returns a server for one of the Edge's handlers with limits for strangers: 10 s
// for the header, 32 KiB of it, 2 minutes of idleness, 128 streams per HTTP/2
// connection. Answers of sites have their own deadline, by length; the control plane sets
// its own. The caller gives it a listener, and TLSConfig for HTTPS.
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
		// Strangers' broken handshakes are nobody's business but a debugger's.
		ErrorLog: slog.NewLogLogger(e.Log.Handler(), slog.LevelDebug),
	}
}

// isControl reports whether a host is the control plane's.
func (e *Edge) isControl(host string) bool {
	return e.control[host] || e.MoreControl != nil && e.MoreControl.Has(host)
}

// HTTPS returns the handler for TLS listeners: sites, and the control plane on its hosts.
func (e *Edge) HTTPS() http.Handler { return http.HandlerFunc(e.serve) }

// HTTP returns the handler for plain listeners: it redirects known hosts to HTTPS.
func (e *Edge) HTTP() http.Handler { return http.HandlerFunc(e.redirect) }
