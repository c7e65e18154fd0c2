package server

import (
	"context"
	"net"
	"strconv"
	"time"

	"slipway/internal/bundle"
	"slipway/internal/db"
	"slipway/internal/deploy"
	"slipway/internal/egress"
	"slipway/internal/mail"
	"slipway/internal/runtime"
	"slipway/internal/site"
	"slipway/internal/wordpress"
)

// openWordPress makes the service of WordPress sites, which stands on those of deployments
// and backups.
func (h *node) openWordPress(out *egress.Egress, bundles *bundle.Bundles) {
	c := wordpress.Config{DB: h.db, Sites: h.sites, Domains: h.domains, Databases: h.databases, Bundles: bundles, Seal: h.seal, Out: out.Client(5 * time.Minute),
		Operations: h.operations, Backups: h.backups, Deployments: h.deployments, Programs: h.apps,
		Dir: h.s.Path("wordpress"), Source: h.s.WordPressSource, NoObjectCache: h.noObjectCache, Log: h.s.Log}
	if h.engine != nil {
		c.Host = h.engine
	}
	h.wordpress = wordpress.New(c)
}

// noObjectCache says why sites can't have an object cache here; empty: they can.
func (h *node) noObjectCache() string {
	if h.engine == nil {
		return "programs can't run on this server"
	}
	if !h.db.Single() {
		return "an installation of several nodes has none: each node would keep its own values"
	}
	_, why := runtime.RedisServer(h.s.RedisServer)
	return why
}

// wordPressDeploys says how deployments of WordPress sites come to run. The service is made
// after that of deployments.
func (h *node) wordPressDeploys() deploy.WordPress {
	return deploy.WordPress{
		Prepare: func(ctx context.Context, s site.Site, say func(string, ...any)) (bundle.ID, error) {
			return h.wordpress.Prepare(ctx, s, say)
		},
		Install: func(ctx context.Context, s site.Site, deployment string, themes []string, say func(string, ...any)) error {
			return h.wordpress.Install(ctx, s, deployment, themes, say)
		},
	}
}

// programWays returns where programs of this node get to.
func (h *node) programWays(l listeners) programWays {
	w := programWays{database: h.databaseSocket, changed: func(id string) { h.wordpress.Changed(site.ID(id)) }}
	if l.https != nil {
		if a, ok := l.https.Addr().(*net.TCPAddr); ok {
			at := a.IP
			if at.IsUnspecified() {
				at = net.IPv4(127, 0, 0, 1)
			}
			w.edge = net.JoinHostPort(at.String(), strconv.Itoa(a.Port))
		}
	}
	if h.s.Mailer != nil {
		w.mail = mail.NewRelay(mail.RelayConfig{Mailer: h.s.Mailer, Dir: h.s.DataDir, Say: func(site, line string) { h.apps.Note(site, line) }, Owner: h.ownerOfSite}).Serve
	}
	return w
}

// ownerOfSite is who pays for what a site takes; its id where that can't be read.
func (h *node) ownerOfSite(ctx context.Context, id string) string {
	s, err := h.sites.ByID(ctx, h.db, site.ID(id))
	if err != nil {
		return id
	}
	return string(s.Owner)
}

// forgetWordPress removes what is stored of a deleted site's WordPress.
func (h *node) forgetWordPress(ctx context.Context, id site.ID) error {
	return h.db.Write(ctx, func(tx *db.Tx) error { return h.wordpress.ForgetTx(ctx, tx, id) })
}
