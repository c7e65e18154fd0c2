// Package deploy owns deployments: from the wish for one to a release that is live, or a
// reason why not.
//
// A trigger writes a pending deployment and the job that runs it. The job fetches, plans,
// builds and publishes, each step safe to repeat and none of them visible, and then
// activates in one transaction. Deployments of one site run one at a time and in order.
// A site that is live stays so until that transaction; a crash at any line repeats the
// job. Every deployment ends. The package never serves anything.
package deploy

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"slipway/internal/account"
	"slipway/internal/build"
	"slipway/internal/bundle"
	"slipway/internal/db"
	"slipway/internal/fault"
	"slipway/internal/forge"
	"slipway/internal/framework"
	"slipway/internal/release"
	"slipway/internal/site"
	"slipway/internal/source"
	"slipway/internal/webhook"
)

// ID names a deployment: "dep_" and 26 characters.
type ID string

// ParseID takes a deployment's id in either spelling, dep_… or dpl_….
func ParseID(s string) ID {
	if rest, ok := strings.CutPrefix(s, "dpl_"); ok {
		return ID("dep_" + rest)
	}
	return ID(s)
}

// Label is the part of the id that stands in the deployment's own address.
func (id ID) Label() string { return string(id[max(0, len(id)-12):]) }

// Status is where a deployment stands.
type Status string

// The states. Pending becomes building, then deploying, then one of the last three,
// which are for ever.
const (
	Pending   Status = "pending"
	Building  Status = "building"
	Deploying Status = "deploying"
	Success   Status = "success"
	Failed    Status = "failed"
	Canceled  Status = "canceled"
)

// Statuses are all there are.
var Statuses = []Status{Pending, Building, Deploying, Success, Failed, Canceled}

// Ended reports whether nothing will change any more.
func (s Status) Ended() bool { return s == Success || s == Failed || s == Canceled }

// webhookWord is the status in the words of webhook payloads.
func (s Status) webhookWord() string {
	switch s {
	case Success:
		return "ready"
	case Failed:
		return "error"
	case Deploying:
		return "building"
	}
	return string(s)
}

// Cause names what triggered a deployment.
type Cause string

// The causes.
const (
	ByProvision Cause = "provision"
	ByAPI       Cause = "api"
	ByHook      Cause = "hook"
	ByDashboard Cause = "dashboard"
	ByPush      Cause = "push"
	ByRollback  Cause = "rollback"
	ByPromote   Cause = "promote"
	ByRestore   Cause = "restore" // of a backup
)

// Causes are all there are.
var Causes = []Cause{ByProvision, ByAPI, ByHook, ByDashboard, ByPush, ByRollback, ByPromote, ByRestore}

// Deployment is one deployment as the site's owner sees it.
type Deployment struct {
	ID            ID
	Site          site.ID
	Owner         account.OwnerID
	Status        Status
	Cause         Cause
	Target        Target
	Branch        string // empty until the repository's default is known
	Pull          int    // the pull request that it is for; 0: none
	Fork          bool   // the commit is from a fork: its build sees no variables, no credential and no cache
	Repository    string // that the commit was fetched from; empty where that was not noted
	Forge         forge.Provider
	Title         string
	ClearCache    bool
	CommitHash    string
	Pinned        bool // whether the commit was asked for; else it is the branch's newest
	CommitMessage string
	CommitAuthor  string
	Framework     string
	Plan          json.RawMessage // what was done and why; nil until it is known
	Release       release.ID      // empty: none, or no longer kept
	Runtime       string
	Bundle        bundle.ID // what its program runs from; empty: it has none, or it is no longer stored
	ReleaseOf     ID        // the deployment whose release a rollback or a promotion made live
	Error         string
	Stages        []Stage
	CreatedAt     db.Time
	StartedAt     db.Time
	CompletedAt   db.Time

	Hops     int    // webhooks and deploy hooks that led to it
	hookBody string // sealed: what the deploy hook's caller sent
	siteName string // as it was when the deployment was read

	bundleBytes, bundleAdded int64 // of a bundle that this run has stored: all of it, and what the live one doesn't have

	URL          string // its immutable address
	PreviewURL   string // the stable address of its branch; empty for production
	previewLabel string
	Current      bool   // whether the site serves it
	Queue        *Queue // for a pending one, whether it has not begun or waits for a build slot
}

// Stage is one step of a deployment.
type Stage struct {
	Name        string  `json:"name"`
	Status      string  `json:"status"` // pending, running, success, failed, skipped
	StartedAt   db.Time `json:"startedAt"`
	CompletedAt db.Time `json:"completedAt"`
}

// Queue holds the position of a waiting deployment, and why it waits.
type Queue struct {
	Position int    // 1 is next
	Reason   string // site_busy: another deployment of the site runs; workers_busy: all are taken
}

// Config holds what Deployments needs.
type Config struct {
	DB       *db.DB
	Sites    *site.Sites
	Hooks    *webhook.Webhooks
	Source   *source.Source
	Releases *release.Releases
	Builds   *build.Builds // Optional: nil refuses what needs a build.
	Bundles  *bundle.Bundles

	// StartProgram brings a deployment's program up and returns once it is healthy. Until
	// release is called it stays up. Optional: nil refuses what is a program, with WhyNot.
	StartProgram func(ctx context.Context, id ID, say func(line string)) (release func(), err error)
	WhyNot       string
	// WordPress prepares and installs sites of that type. Optional: nil refuses them, with WhyNot.
	WordPress WordPress
	// RunCommand runs a command of a deployment to its end; a fault says why it failed.
	// Required where StartProgram is set.
	RunCommand func(ctx context.Context, id ID, c framework.Command, line func(stream, text string)) error
	// PHP returns the version of PHP that answers where composer.json has a constraint, or a
	// fault that says why there is none. Optional.
	PHP func(ctx context.Context, constraint string) (version string, err error)
	// ProgramLog returns the last lines that a deployment's program printed. Optional.
	ProgramLog func(ctx context.Context, id site.ID, deployment ID) []string

	// Tell hears of every state of a deployment, in the transaction that writes it. Optional.
	Tell func(ctx context.Context, tx *db.Tx, x Deployment, site string) error

	Log *slog.Logger

	Countries bool // visitors' countries are known, so rules may ask for them

	Timeout time.Duration // of one deployment, without what it waits for a free place. Optional: 0 means 10 minutes beside what the two stages of a build may take.
	Keep    int           // releases a site keeps for rollbacks besides the live one. Optional: 0 means 20.
	History int           // deployments of a site that are remembered. Optional: 0 means 500.

	// Gone is told, in a job that may repeat, that a deleted site's traces must go.
	Gone []func(ctx context.Context, id site.ID) error

	Limits *account.Limits // Optional: without it the service's own.
}

// Deployments owns all deployments.
type Deployments struct {
	c     Config
	alone sync.Mutex // held by the one deployment at work over which the process has died before
}

// New returns Deployments. It starts nothing: Work registers its jobs.
func New(c Config) *Deployments {
	c.Builds = cmp.Or(c.Builds, build.New(build.Config{Why: "builds are not configured on this server"}))
	c.Timeout = cmp.Or(c.Timeout, 10*time.Minute+2*c.Builds.Limits().Wall)
	c.Keep = cmp.Or(c.Keep, 20)
	c.History = cmp.Or(c.History, 500)
	c.Limits = cmp.Or(c.Limits, account.NewLimits(account.LimitSettings{}))
	d := &Deployments{c: c}
	d.countLimits()
	return d
}

// columns are those of a deployment, of its site and its forge; own are its own alone.
const columns = own + `, COALESCE(f.provider, ''), s.subdomain, s.live_deployment = d.id, s.name`

const own = `d.id, d.site_id, d.owner_id, d.status, d.cause, d.target, d.preview_label, d.branch, d.pull_request, d.fork, d.repository, d.title, d.clear_cache, d.commit_hash, d.pinned, d.commit_message, d.commit_author,
	d.framework, d.plan, d.release, d.runtime, d.bundle, d.rollback_of, d.error, d.stages, d.created_at, d.started_at, d.completed_at,
	d.hops, d.hook_body`

const from = ` FROM deployments d JOIN open_sites s ON s.id = d.site_id LEFT JOIN site_forges f ON f.site_id = d.site_id `

func (d *Deployments) scan(row db.Scanner) (Deployment, error) {
	var current bool
	var subdomain, name string
	x, err := scanOwn(row, &subdomain, &current, &name)
	if err != nil {
		return Deployment{}, err
	}
	d.locate(&x, subdomain)
	x.Current, x.siteName = current, name
	return x, nil
}

// locate fills in the addresses of a deployment.
func (d *Deployments) locate(x *Deployment, subdomain string) {
	x.URL = d.c.Sites.DeploymentURL(x.ID.Label(), subdomain)
	if x.previewLabel != "" {
		x.PreviewURL = d.c.Sites.DeploymentURL(x.previewLabel, subdomain)
	}
}

// scanOwn reads a deployment's own columns, its forge, and then more.
func scanOwn(row db.Scanner, more ...any) (Deployment, error) {
	var x Deployment
	var plan, stages string
	err := row.Scan(append([]any{&x.ID, &x.Site, &x.Owner, &x.Status, &x.Cause, &x.Target, &x.previewLabel, &x.Branch, &x.Pull, &x.Fork, &x.Repository, &x.Title, &x.ClearCache, &x.CommitHash, &x.Pinned, &x.CommitMessage, &x.CommitAuthor,
		&x.Framework, &plan, &x.Release, &x.Runtime, &x.Bundle, &x.ReleaseOf, &x.Error, &stages, &x.CreatedAt, &x.StartedAt, &x.CompletedAt,
		&x.Hops, &x.hookBody, &x.Forge}, more...)...)
	if errors.Is(err, sql.ErrNoRows) {
		return Deployment{}, fault.Missing("deployment")
	}
	if err != nil {
		return Deployment{}, err
	}
	if plan != "" {
		x.Plan = json.RawMessage(plan)
	}
	if err := json.Unmarshal([]byte(stages), &x.Stages); err != nil {
		return Deployment{}, fmt.Errorf("read stages of %s: %w", x.ID, err)
	}
	x.Forge = forge.ProviderOf(x.Repository, x.Forge)
	return x, nil
}

// Get returns the owner's deployment, or a NotFound fault.
func (d *Deployments) Get(ctx context.Context, owner account.OwnerID, id ID) (Deployment, error) {
	x, err := d.scan(d.c.DB.QueryRow(ctx, `SELECT `+columns+from+`WHERE d.id = $1 AND d.owner_id = $2`, id, owner))
	if err != nil {
		return x, err
	}
	one := []Deployment{x}
	err = d.queue(ctx, one)
	return one[0], err
}

// byID returns a deployment whoever owns it, for jobs.
func (d *Deployments) byID(ctx context.Context, r db.Reader, id ID) (Deployment, error) {
	return d.scan(r.QueryRow(ctx, `SELECT `+columns+from+`WHERE d.id = $1`, id))
}

// event returns what webhooks say of a deployment.
func (x Deployment) event() webhook.Deployment {
	return webhook.Deployment{ID: string(x.ID), URL: x.URL, Status: x.Status.webhookWord(), Branch: x.Branch,
		CommitHash: x.CommitHash, CommitMessage: x.CommitMessage, CommitAuthor: x.CommitAuthor, Trigger: string(x.Cause), Target: string(x.Target),
		Error: x.Error, Hops: x.Hops, CreatedAt: x.CreatedAt, StartedAt: x.StartedAt, CompletedAt: x.CompletedAt}
}

// emit tells webhooks and open pages of a deployment. The site's name is read unless the
// transaction has read it.
func (d *Deployments) emit(ctx context.Context, tx *db.Tx, x Deployment, make func(webhook.Site, webhook.Deployment) webhook.Event) error {
	tx.Notify(x.Owner.Topic())
	if x.siteName == "" {
		err := tx.QueryRow(ctx, `SELECT name FROM open_sites WHERE id = $1`, x.Site).Scan(&x.siteName)
		if errors.Is(err, sql.ErrNoRows) {
			return nil // its site is gone, and site.deleted has said so
		}
		if err != nil {
			return fmt.Errorf("name site of %s: %w", x.ID, err)
		}
	}
	if err := d.tell(ctx, tx, x, x.siteName); err != nil {
		return err
	}
	return d.c.Hooks.EmitTx(ctx, tx, x.Owner, make(webhook.Site{ID: string(x.Site), Name: x.siteName}, x.event()))
}

// tell says how a deployment stands to whoever the configuration names.
func (d *Deployments) tell(ctx context.Context, tx *db.Tx, x Deployment, site string) error {
	if d.c.Tell == nil {
		return nil
	}
	return d.c.Tell(ctx, tx, x, site)
}

// Lookup returns a deployment and its site whoever owns it, for jobs.
func (d *Deployments) Lookup(ctx context.Context, id ID) (Deployment, site.Site, error) {
	x, err := d.byID(ctx, d.c.DB, id)
	if err != nil {
		return x, site.Site{}, err
	}
	s, err := d.c.Sites.ByID(ctx, d.c.DB, x.Site)
	return x, s, err
}

// open lists the states that are not the end, for statements.
const open = `('pending', 'building', 'deploying')`

// waits is the condition of a deployment that has not begun as the index of open ones has it:
// without the first part SQLite reads all deployments of the site.
const waits = `status IN ` + open + ` AND status = 'pending'`

// stage returns the stage of that name, added when it is new.
func stage(list *[]Stage, name string) *Stage {
	i := slices.IndexFunc(*list, func(s Stage) bool { return s.Name == name })
	if i < 0 {
		*list = append(*list, Stage{Name: name, Status: "pending"})
		i = len(*list) - 1
	}
	return &(*list)[i]
}
