// Package deploy owns deployments: from a trigger to a live release, or to an error with its
// reason.
//
// A trigger writes a pending deployment and the job that runs it. The job fetches, plans,
// builds and publishes, in steps that can be repeated and are not visible, and then
// activates in one transaction. Deployments of one site run one at a time and in order.
// The live release stays live until that transaction; after a crash the job is repeated.
// Every deployment ends. The package never serves anything.
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
	Builds   *build.Builds // Optional: nil refuses what needs a build.
	Bundles  *bundle.Bundles
	Uploads  *upload.Uploads // Optional: nil refuses what was uploaded.

	// Programs runs the programs of deployments. Optional: nil refuses what is one, with WhyNot.
	Programs Programs
	WhyNot   string

	// Connections tells the site's forge of every state of a deployment, and Notify its owner's people of
	// those that fail. Optional, together.
	Connections *connection.Connections
	Notify      *notify.Notifications

	Log *slog.Logger

	BaseURL   string // of the dashboard, which forges are told
	Countries bool   // visitors' countries are known, so rules may ask for them

	// of one deployment, without what it waits for a free place. Optional: 0 means 10 minutes beside what the
	// two stages of a build may take.
	Timeout time.Duration
	Keep    int // releases a site keeps for rollbacks besides the live one. Optional: 0 means 20.
	History int // deployments of a site that are remembered. Optional: 0 means 500.

	Limits *limits.Limits // Optional: without it the service's own.
	Usage  *usage.Usage   // where build time is counted. Optional: without it one of its own.
}

// Programs runs programs, and their release commands. Package app does, which stands on this one.
type Programs interface {
	// Place returns nil where a deployment's program may run on this node, or would be told why not when it starts; else it is for the
	// handler of a job, which returns it as it is.
	Place(ctx context.Context, deployment deployment.ID) error
	// Start brings a deployment's program up and returns once it is healthy. Until release is called it
	// stays up.
	Start(ctx context.Context, deployment deployment.ID, say func(line string)) (release func(), err error)
	// Release runs the release command of a deployment to its end; a fault says why it failed.
	Release(ctx context.Context, deployment deployment.ID, c framework.Command, line func(stream, text string)) error
	// LastLines returns the last lines that a deployment's program printed.
	LastLines(ctx context.Context, site site.ID, deployment deployment.ID) []string
}

// Deployments owns all deployments.
type Deployments struct {
	*deployment.Deployments                   // the reading of them
	Previews                *preview.Previews // their stable addresses

	c         Config
	wordpress WordPress // nil refuses sites of that type, with WhyNot
	keepers   []Keeper
	parts     []Part
	alone     sync.Mutex // held by the one deployment at work over which the process has died before
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

// Connect tells how WordPress sites come to run. It belongs before Work: package wordpress stands on
// this one.
func (d *Deployments) Connect(w WordPress) { d.wordpress = w }

// Part is a package that stores something of sites.
type Part interface {
	// ForgetSiteTx removes what is stored of a deleted site. It may be called again.
	ForgetSiteTx(ctx context.Context, tx *db.Tx, id site.ID) error
}

// Keeper is a package that stores something of sites outside the database, or too much of it for one transaction.
type Keeper interface {
	// ForgetSite removes what is stored of a deleted site. It may be called again, and where it returns an error of package job it is.
	ForgetSite(ctx context.Context, id site.ID) error
}

// ConnectParts says who forgets what there was of a deleted site: keepers first, in their order. It belongs before Work, too.
func (d *Deployments) ConnectParts(keepers []Keeper, parts ...Part) {
	d.keepers, d.parts = keepers, parts
}

// emit tells webhooks and open pages of a deployment. The site's name is read unless the
// transaction has read it.
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
			return nil // its site is gone, and site.deleted has said so
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

// open lists the states that are not the end, for statements.
const open = deployment.Open

// waits is the condition of a deployment that has not begun as the index of open ones has it:
// without the first part SQLite reads all deployments of the site.
const waits = `status IN ` + open + ` AND status = 'pending'`

// idsOf returns the ids that a statement names.
func idsOf(ctx context.Context, tx *db.Tx, query string, args ...any) ([]deployment.ID, error) {
	rows, err := tx.Query(ctx, query, args...)
	return db.Collect(rows, err, func(s db.Scanner) (id deployment.ID, err error) { return id, s.Scan(&id) })
}
