// Package deploy owns running deployments: from a trigger to a live release, or to an error with its reason.
//
// A trigger writes a pending deployment and the job that runs it. The job fetches, plans, builds and publishes in steps
// that are invisible and can be repeated, and then activates the release in one transaction. Deployments of one site
// run one at a time, in order. The previous release stays live until that transaction. After a crash the job is
// repeated; every deployment ends. The package never serves anything.
package deploy

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"slipway/internal/build/build"
	"slipway/internal/build/bundle"
	"slipway/internal/build/framework"
	"slipway/internal/build/release"
	"slipway/internal/deploy/deployment"
	"slipway/internal/deploy/preview"
	"slipway/internal/deploy/upload"
	"slipway/internal/git/fetch"
	"slipway/internal/platform/db"
	"slipway/internal/tenant/connection"
	"slipway/internal/tenant/limits"
	"slipway/internal/tenant/notify"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/usage"
	"slipway/internal/tenant/webhook"
	"slipway/internal/tenant/webhook/event"
)

// Config holds what Deployments needs.
type Config struct {
	DB       *db.DB
	Sites    *site.Sites
	Hooks    *webhook.Webhooks
	Source   *fetch.Fetcher
	Releases *release.Releases
	Builds   *build.Builds // Optional: nil refuses projects that need a build.
	Bundles  *bundle.Bundles
	Uploads  *upload.Uploads // Optional: nil refuses uploads.

	// Programs runs the programs of deployments. Optional: nil refuses programs, with the reason in WhyNot.
	Programs Programs
	WhyNot   string

	// Connections reports every state of a deployment to the site's Git provider. Notify notifies the site's members of
	// failures. Optional, but only together.
	Connections *connection.Connections
	Notify      *notify.Notifications

	Log *slog.Logger

	BaseURL   string // of the dashboard, for links on Git providers
	Countries bool   // whether visitors' countries are known, so that rules may use them

	// Timeout limits one deployment, without the time that it waits for a place. Optional: 0 means 10 minutes plus the
	// limits of the build's two stages.
	Timeout time.Duration
	Keep    int // releases a site keeps for rollbacks besides the live one. Optional: 0 means 20.
	History int // deployments of a site that are kept. Optional: 0 means 500.

	Limits *limits.Limits // Optional: nil means the defaults.
	Usage  *usage.Usage   // counts build time. Optional: nil means an own one.
}

// Programs runs programs and their release commands. Package app implements it; it imports this package.
type Programs interface {
	// Place returns nil if a deployment's program may run on this node, or if its start will say why not. Otherwise the
	// handler of a job must return the error unchanged.
	Place(ctx context.Context, deployment deployment.ID) error
	// Start starts a deployment's program and returns once it is healthy. The program stays up until release is called.
	Start(ctx context.Context, deployment deployment.ID, say func(line string)) (release func(), err error)
	// Release runs a deployment's release command until it exits. A fault says why it failed.
	Release(ctx context.Context, deployment deployment.ID, c framework.Command, line func(stream, text string)) error
	// LastLines returns the last lines that a deployment's program printed.
	LastLines(ctx context.Context, site site.ID, deployment deployment.ID) []string
}

// Deployments owns all deployments.
type Deployments struct {
	*deployment.Deployments                   // reads deployments
	Previews                *preview.Previews // stable addresses of previews

	c         Config
	wordpress WordPress // nil refuses sites of that type, with the reason in WhyNot
	keepers   []Keeper
	parts     []Part
	alone     sync.Mutex // held by the one deployment that runs after a crash of the process
}

// New returns Deployments. It starts nothing: Work registers its jobs.
func New(c Config) *Deployments {
	c.Builds = cmp.Or(c.Builds, build.New(build.Config{Why: "builds are not configured on this server"}))
	c.Timeout = cmp.Or(c.Timeout, 10*time.Minute+2*c.Builds.Limits().Wall)
	c.Keep = cmp.Or(c.Keep, 20)
	c.History = cmp.Or(c.History, 500)
	c.Limits = cmp.Or(c.Limits, limits.New(limits.Settings{}))
	if c.Usage == nil {
		c.Usage = usage.New(usage.Config{DB: c.DB, Limits: c.Limits, Log: c.Log})
	}
	d := &Deployments{
		Deployments: deployment.New(deployment.Config{DB: c.DB, Sites: c.Sites}),
		c:           c,
		Previews:    preview.New(preview.Config{DB: c.DB, Sites: c.Sites, Limits: c.Limits}),
	}
	d.countLimits()
	return d
}

// Connect sets what runs WordPress sites. Call it before Work. It exists because package wordpress imports this one.
func (d *Deployments) Connect(w WordPress) { d.wordpress = w }

// Part is a package that stores data of sites.
type Part interface {
	// ForgetSiteTx deletes the data of a deleted site. It may be called again.
	ForgetSiteTx(ctx context.Context, tx *db.Tx, id site.ID) error
}

// Keeper is a package whose data of sites is outside the database, or too large to delete in one transaction.
type Keeper interface {
	// ForgetSite deletes the data of a deleted site. It may be called again. An error of package job decides about the
	// retry.
	ForgetSite(ctx context.Context, id site.ID) error
}

// ConnectParts sets which packages delete a deleted site's data: keepers first, in order. Call it before Work.
func (d *Deployments) ConnectParts(keepers []Keeper, parts ...Part) {
	d.keepers, d.parts = keepers, parts
}

// emit sends a deployment's state to webhooks and open pages. It reads the site's name if name is empty.
func (d *Deployments) emit(
	ctx context.Context,
	tx *db.Tx,
	x deployment.Deployment,
	make func(event.Site, event.Deployment) event.Event,
) error {
	tx.Notify(x.Owner.Topic())
	if x.SiteName == "" {
		err := tx.QueryRow(ctx, `SELECT name FROM open_sites WHERE id = $1`, x.Site).Scan(&x.SiteName)
		if errors.Is(err, sql.ErrNoRows) {
			return nil // the site was deleted, and site.deleted was sent
		}
		if err != nil {
			return fmt.Errorf("name site of %s: %w", x.ID, err)
		}
	}
	if err := d.tell(ctx, tx, x, x.SiteName); err != nil {
		return err
	}
	return d.c.Hooks.EmitTx(ctx, tx, x.Owner, make(event.Site{ID: x.Site, Name: x.SiteName}, x.Event()))
}

// open is an SQL list of the states of deployments that haven't ended.
const open = deployment.Open

// waits is the SQL condition for a deployment that hasn't begun, in the form that the index of open ones has: without
// its first part, SQLite reads all deployments of the site.
const waits = `status IN ` + open + ` AND status = 'pending'`

// idsOf returns the ids that a query selects.
func idsOf(ctx context.Context, tx *db.Tx, query string, args ...any) ([]deployment.ID, error) {
	rows, err := tx.Query(ctx, query, args...)
	return db.Collect(rows, err, func(s db.Scanner) (id deployment.ID, err error) { return id, s.Scan(&id) })
}
