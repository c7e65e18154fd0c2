// Package site owns sites: their names, source, status, environment variables and deploy
// hooks, and their deletion.
//
// A change and its events are one transaction. Work that must follow a change is a job:
// Provision and Purge are enqueued here and run by the services that implement them. The
// package never runs anything and never touches files; deployments belong to another service.
package site

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"slipway/internal/platform/id"

	"slipway/internal/git/fetch"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/seal"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/limits"
	"slipway/internal/tenant/webhook"
)

// ID names a site: "site_" and 26 characters.
type ID = id.Site

// Type is the kind of a site.
type Type string

// The site types.
const (
	Static    Type = "static"    // built from a Git repository or from an upload
	WordPress Type = "wordpress" // a WordPress installation; has no previews
)

// The sources of a site's files in the API. WordPress without a repository has none.
const (
	SourceGit    = "git"
	SourceUpload = "upload"
)

// Source returns the source of the site's files, or "".
func (x Site) Source() string {
	switch {
	case x.Repository != "":
		return SourceGit
	case x.Type == Static:
		return SourceUpload
	}
	return ""
}

// NoPreviews is the fault for previews of WordPress sites, which would share the live site's database.
var NoPreviews = fault.New(fault.Invalid, "no_wordpress_previews", "A WordPress site has no previews",
	"clone the site to try a branch on a copy of its database")

// Status is the state of a site.
type Status string

// See status.go for the transitions.
const (
	Pending      Status = "pending"
	Provisioning Status = "provisioning"
	Active       Status = "active"
	Failed       Status = "error"
	Stopped      Status = "stopped"
)

// Statuses lists all states in display order.
var Statuses = []Status{Active, Pending, Provisioning, Failed, Stopped}

// Site is a site as its owner sees it.
type Site struct {
	ID             ID
	Owner          account.OwnerID
	Name           string
	Slug           string // also the subdomain
	Type           Type
	Runtime        string // static, node, php or wordpress
	Status         Status
	StatusReason   string
	Repository     string // host/owner/repo, or empty
	Branch         string // empty: the repository's default
	Framework      string // as requested; may be empty
	Build          Build
	Run            Run
	Tags           []string // lower case, sorted
	Credential     bool     // whether one is stored
	sealed         string
	NeedsRedeploy  bool
	LiveDeployment id.Deployment
	LiveRelease    id.Release
	CreatedAt      db.Time
	UpdatedAt      db.Time
}

// Build holds the owner's build settings. A nil field is left to detection.
type Build struct {
	Command *string `json:"command,omitempty"`
	Install *string `json:"install,omitempty"`
	Output  *string `json:"output,omitempty"`
	Root    *string `json:"root,omitempty"`
	Node    *string `json:"node,omitempty"`
	Depth   *string `json:"depth,omitempty"` // commits of history that builds see, or "full"
}

// History returns how many commits of its repository a build sees: 0 is the operator's number, less than 0 all.
func (b Build) History() int {
	if b.Depth == nil {
		return 0
	}
	if *b.Depth == "full" {
		return -1
	}
	n, _ := strconv.Atoi(*b.Depth)
	return n
}

// Connections provides the credentials of connected Git accounts.
type Connections interface {
	// CredentialOf returns the credential for a site's repository, or nil if the site uses no connection.
	CredentialOf(ctx context.Context, site ID, repository string) (*fetch.Credential, error)
}

// Config holds what Sites needs.
type Config struct {
	DB     *db.DB
	Hooks  *webhook.Webhooks
	Seal   *seal.Sealer
	Domain string // sites live at <slug>.<Domain>
	Port   int    // the edge's HTTPS port. Optional: 0 and 443 are omitted from URLs.

	// Connections provides credentials for sites without one of their own. Optional.
	Connections Connections

	Limits *limits.Limits // Optional: defaults to the built-in limits.
}

// Sites is the service. It is safe for concurrent use.
type Sites struct{ c Config }

// New returns the service. It starts nothing.
func New(c Config) *Sites {
	c.Limits = cmp.Or(c.Limits, limits.New(limits.Settings{}))
	c.Limits.CountRows(limits.WordPress, `SELECT COALESCE(SUM(n), 0) FROM site_counts WHERE owner_id = $1 AND type = 'wordpress'`)
	c.Limits.CountRows(limits.Sites, `SELECT COALESCE(SUM(n), 0) FROM site_counts WHERE owner_id = $1`)
	c.Limits.CountRows(limits.Env,
		`SELECT count(*) FROM env WHERE site_id IN (SELECT id FROM sites WHERE owner_id = $1 AND deleted_at = 0)`)
	c.Limits.CountRows(limits.Hooks,
		`SELECT count(*) FROM deploy_hooks WHERE site_id IN (SELECT id FROM sites WHERE owner_id = $1 AND deleted_at = 0)`)
	return &Sites{c}
}

// URL returns a site's URL.
func (s *Sites) URL(slug string) string { return s.address(slug) }

// Address returns the URL of a site's host.
func (s *Sites) Address(host string) string {
	if s.c.Port != 0 && s.c.Port != 443 {
		host += ":" + strconv.Itoa(s.c.Port)
	}
	return "https://" + host
}

// DeploymentURL returns the permanent URL of a deployment. label is the last 12 characters of its ID.
func (s *Sites) DeploymentURL(label, slug string) string { return s.address(label + "--" + slug) }

func (s *Sites) address(label string) string {
	port := ""
	if s.c.Port != 0 && s.c.Port != 443 {
		port = ":" + strconv.Itoa(s.c.Port)
	}
	return "https://" + label + "." + s.c.Domain + port
}

const columns = `id, owner_id, name, slug, type, runtime, status, status_reason, repository, branch, framework,
	build, run, tags, credential, needs_redeploy, live_deployment, live_release, created_at, updated_at`

func scan(row db.Scanner) (Site, error) { return scanner()(row) }

// scanner returns a function that scans rows into one reused Site, so that lists allocate little per row.
func scanner() func(db.Scanner) (Site, error) {
	var s Site
	var build, run, tags string
	into := []any{
		&s.ID, &s.Owner, &s.Name, &s.Slug, &s.Type, &s.Runtime, &s.Status, &s.StatusReason, &s.Repository, &s.Branch,
		&s.Framework, &build, &run, &tags, &s.sealed, &s.NeedsRedeploy, &s.LiveDeployment, &s.LiveRelease, &s.CreatedAt, &s.UpdatedAt,
	}
	return func(row db.Scanner) (Site, error) {
		s.Build, s.Run = Build{}, Run{}
		if err := row.Scan(into...); err != nil {
			return Site{}, err
		}
		s.Credential, s.Tags = s.sealed != "", splitTags(tags)
		if build != "{}" { // most have none, and lists are long
			if err := json.Unmarshal([]byte(build), &s.Build); err != nil {
				return Site{}, fmt.Errorf("read build settings of %s: %w", s.ID, err)
			}
		}
		if run != "{}" {
			if err := json.Unmarshal([]byte(run), &s.Run); err != nil {
				return Site{}, fmt.Errorf("read run settings of %s: %w", s.ID, err)
			}
		}
		return s, nil
	}
}

// Get returns the owner's site, or a NotFound fault.
func (s *Sites) Get(ctx context.Context, owner account.OwnerID, id ID) (Site, error) {
	return s.get(ctx, s.c.DB, owner, id)
}

// GetTx is [Sites.Get] inside the caller's transaction.
func (s *Sites) GetTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id ID) (Site, error) {
	return s.get(ctx, tx, owner, id)
}

func (s *Sites) get(ctx context.Context, r db.Reader, owner account.OwnerID, id ID) (Site, error) {
	got, err := scan(r.QueryRow(ctx, `
		SELECT `+columns+` FROM sites
		WHERE id = $1 AND owner_id = $2 AND deleted_at = 0`, id, owner))
	return got, missing(err)
}

// ByID returns a site, whoever owns it, for jobs that only carry its ID.
func (s *Sites) ByID(ctx context.Context, r db.Reader, id ID) (Site, error) {
	got, err := scan(r.QueryRow(ctx, `SELECT `+columns+` FROM sites WHERE id = $1 AND deleted_at = 0`, id))
	return got, missing(err)
}

// OfRepository returns all owners' sites of a repository, host/owner/repo in any case.
func (s *Sites) OfRepository(ctx context.Context, r db.Reader, repository string) ([]Site, error) {
	rows, err := r.Query(ctx,
		`SELECT `+columns+` FROM sites WHERE LOWER(repository) = $1 AND deleted_at = 0 ORDER BY id`,
		strings.ToLower(repository))
	list, err := db.Collect(rows, err, scan)
	if err != nil {
		return nil, fmt.Errorf("find sites of a repository: %w", err)
	}
	return list, nil
}

func missing(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return fault.Missing("site")
	}
	return err
}

// bump increments the version that edges see of a written site, and wakes the edges and the owner's open pages.
func bump(tx *db.Tx, owner account.OwnerID, id ID) {
	const counter = "live_version"
	tx.Last(counter, `UPDATE live_version SET n = n + 1 WHERE id = 1`)
	tx.Last(counter, `UPDATE sites SET live_version = (SELECT n FROM live_version WHERE id = 1) WHERE id = $1`, string(id))
	tx.Notify("live")
	tx.Notify(owner.Topic())
}

// credentialPurpose binds a sealed credential to its site.
func credentialPurpose(id ID) string { return "site/" + string(id) + "/credential" }

// CredentialOf returns the credential for a site's repository, or nil if it needs none. It names the only host to which
// it may be sent.
func (s *Sites) CredentialOf(ctx context.Context, of Site) (*fetch.Credential, error) {
	if of.sealed == "" && s.c.Connections != nil {
		return s.c.Connections.CredentialOf(ctx, of.ID, of.Repository)
	}
	return s.ownCredential(of)
}

// ownCredential returns the credential stored with a site, or nil.
func (s *Sites) ownCredential(of Site) (*fetch.Credential, error) {
	if of.sealed == "" {
		return nil, nil
	}
	plain, err := s.c.Seal.Open(of.sealed, credentialPurpose(of.ID))
	if err != nil {
		return nil, fmt.Errorf("open credential of %s: %w", of.ID, err)
	}
	var c fetch.Credential
	if err := json.Unmarshal(plain, &c); err != nil {
		return nil, fmt.Errorf("read credential of %s: %w", of.ID, err)
	}
	if c.Host == "" { // sealed by a version that didn't store hosts
		c.Host = hostOf(of.Repository)
	}
	return &c, nil
}

// hostOf returns the normalized host of a repository.
func hostOf(repository string) string {
	host, _, _ := strings.Cut(repository, "/")
	return host
}
