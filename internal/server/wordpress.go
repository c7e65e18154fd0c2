package server

import (
	"context"
	"net"
	"strconv"
	"time"

	"slipway/internal/app"
	"slipway/internal/bundle"
	"slipway/internal/db"
	"slipway/internal/deploy"
	"slipway/internal/egress"
	"slipway/internal/fault"
	"slipway/internal/launch"
	"slipway/internal/mail"
	"slipway/internal/runtime"
	"slipway/internal/sandbox"
	"slipway/internal/site"
	"slipway/internal/wordpress"
)

// openWordPress makes the service of WordPress sites, which stands on those of deployments
// and backups.
func (h *node) openWordPress(out *egress.Egress, bundles *bundle.Bundles) {
	h.wordpress = wordpress.New(wordpress.Config{DB: h.db, Sites: h.sites, Databases: h.databases, Bundles: bundles, Seal: h.seal, Out: out.Client(5 * time.Minute),
		Operations: h.operations, Backups: h.backups, Deployments: h.deployments,
		Dir: h.s.Path("wordpress"), Source: h.s.WordPressSource, Programs: h.apps, Say: h.apps.Note, Log: h.s.Log,
		Address: h.visitorsAddress, Errors: h.phpErrors, Content: h.contentFolder, Disk: h.contentSize, StorageLimit: launch.StorageOf,
		Hold: h.hold, Renew: h.apps.Renew, NoObjectCache: h.noObjectCache, ClearObjects: h.clearObjects})
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

func (h *node) clearObjects(site string) {
	if h.engine != nil {
		h.engine.ClearRedis(site)
	}
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

// phpErrors returns fatal errors of PHP in a site's log.
func (h *node) phpErrors(ctx context.Context, id string, since db.Time) []string {
	lines, err := h.apps.Logs(ctx, id, app.LogFilter{Since: since, Search: "PHP Fatal error", Limit: 10, Flush: true})
	if err != nil {
		h.s.Log.WarnContext(ctx, "application log not read", "site", id, "err", err)
	}
	var out []string
	for _, l := range lines {
		out = append(out, l.Message)
	}
	return out
}

// contentFolder is where this host has a site's wp-content.
func (h *node) contentFolder(_ context.Context, id site.ID) (string, error) {
	if h.engine != nil {
		folders, err := h.engine.StorageFolders(string(id))
		if dir := folders["wp-content"]; err != nil || dir != "" {
			return dir, err
		}
	}
	return "", &fault.Error{Kind: fault.Conflict, Message: "The site's files are not on this node", Code: "storage_elsewhere"}
}

// maxCounted bounds what is counted of a site's files.
const maxCounted = 1 << 40

func (h *node) contentSize(id site.ID) int64 {
	dir, err := h.contentFolder(context.Background(), id)
	if err != nil {
		return 0
	}
	return sandbox.Size(dir, maxCounted)
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

// visitorsAddress is where visitors know a site: its primary domain, or its own address.
func (h *node) visitorsAddress(ctx context.Context, s site.Site) (string, error) {
	primary, err := h.domains.Primary(ctx, h.db, string(s.ID))
	if err != nil || primary == "" {
		return h.sites.URL(s.Slug), err
	}
	return h.sites.Address(primary), nil
}

// forgetWordPress removes what is stored of a deleted site's WordPress.
func (h *node) forgetWordPress(ctx context.Context, id site.ID) error {
	return h.db.Write(ctx, func(tx *db.Tx) error { return h.wordpress.ForgetTx(ctx, tx, id) })
}
