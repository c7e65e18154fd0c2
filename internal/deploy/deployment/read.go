package deployment

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"slipway/internal/git/forge"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
)

// Config holds what Deployments needs.
type Config struct {
	DB    *db.DB
	Sites *site.Sites
}

// Deployments reads deployments.
type Deployments struct{ c Config }

// New returns Deployments.
func New(c Config) *Deployments { return &Deployments{c} }

// columns are those of a deployment, its site and its Git provider.
const columns = Own + `, COALESCE(f.provider, ''), s.subdomain, s.live_deployment = d.id, s.name`

// Own lists a deployment's own columns.
const Own = `d.id, d.site_id, d.owner_id, d.status, d.cause, d.target, d.preview_label, d.branch, d.pull_request, d.fork,
	d.repository, d.title, d.clear_cache, d.commit_hash, d.pinned, d.commit_message, d.commit_author,
	d.framework, d.plan, d.release, d.runtime, d.bundle, d.rollback_of, d.error, d.stages, d.created_at, d.started_at, d.completed_at,
	d.hops, d.hook_body, d.source, d.upload_id, d.limited_env`

const from = ` FROM deployments d JOIN open_sites s ON s.id = d.site_id LEFT JOIN site_forges f ON f.site_id = d.site_id `

func (d *Deployments) scan(row db.Scanner) (Deployment, error) {
	var current bool
	var subdomain, name string
	x, err := ScanOwn(row, &subdomain, &current, &name)
	if err != nil {
		return Deployment{}, err
	}
	d.Locate(&x, subdomain)
	x.Current, x.SiteName = current, name
	return x, nil
}

// Locate fills in the addresses of a deployment.
func (d *Deployments) Locate(x *Deployment, subdomain string) {
	x.URL = d.c.Sites.DeploymentURL(x.ID.Label(), subdomain)
	if x.PreviewLabel != "" {
		x.PreviewURL = d.c.Sites.DeploymentURL(x.PreviewLabel, subdomain)
	}
}

// ScanOwn reads a deployment's own columns, its provider, and then the columns of more.
func ScanOwn(row db.Scanner, more ...any) (Deployment, error) {
	var x Deployment
	var plan, stages, source string
	err := row.Scan(append([]any{
		&x.ID,
		&x.Site,
		&x.Owner,
		&x.Status,
		&x.Cause,
		&x.Target,
		&x.PreviewLabel,
		&x.Branch,
		&x.Pull,
		&x.Fork,
		&x.Repository,
		&x.Title,
		&x.ClearCache,
		&x.CommitHash,
		&x.Pinned,
		&x.CommitMessage,
		&x.CommitAuthor,
		&x.Framework,
		&plan,
		&x.Release,
		&x.Runtime,
		&x.Bundle,
		&x.ReleaseOf,
		&x.Error,
		&stages,
		&x.CreatedAt,
		&x.StartedAt,
		&x.CompletedAt,
		&x.Hops,
		&x.HookBody,
		&source,
		&x.Upload,
		&x.LimitedEnv,
		&x.Forge,
	}, more...)...)
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
	if source != "" {
		if err := json.Unmarshal([]byte(source), &x.Source); err != nil {
			return Deployment{}, fmt.Errorf("read source of %s: %w", x.ID, err)
		}
	}
	x.Forge = forge.ProviderOf(x.Repository, x.Forge)
	return x, nil
}

// Open is an SQL list of the states that aren't final.
const Open = `('pending', 'building', 'deploying')`

// Find returns the deployment that the rest of a query selects, or a NotFound fault. The query's tables are deployments
// d, open_sites s and site_forges f. It is for package deploy.
func (d *Deployments) Find(ctx context.Context, r db.Reader, rest string, args ...any) (Deployment, error) {
	return d.scan(r.QueryRow(ctx, `SELECT `+columns+from+rest, args...))
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

// ByID returns a deployment of any owner, for jobs.
func (d *Deployments) ByID(ctx context.Context, r db.Reader, id ID) (Deployment, error) {
	return d.scan(r.QueryRow(ctx, `SELECT `+columns+from+`WHERE d.id = $1`, id))
}

// Lookup returns a deployment of any owner and its site, for jobs.
func (d *Deployments) Lookup(ctx context.Context, id ID) (Deployment, site.Site, error) {
	x, err := d.ByID(ctx, d.c.DB, id)
	if err != nil {
		return x, site.Site{}, err
	}
	s, err := d.c.Sites.ByID(ctx, d.c.DB, x.Site)
	return x, s, err
}

// OwnedTx returns the owner's deployment within a transaction, without its place in the queue.
func (d *Deployments) OwnedTx(ctx context.Context, r db.Reader, owner account.OwnerID, id ID) (Deployment, error) {
	return d.Find(ctx, r, `WHERE d.id = $1 AND d.owner_id = $2`, id, owner)
}
