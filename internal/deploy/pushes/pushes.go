// Package pushes owns handling pushes to a site's repository: the URL that its Git provider calls, which events are
// deployed, and which are skipped and why.
//
// The transaction of the call writes the deployments, the reasons for skipping and the record of the event, so that a
// repeated call acts once. The package starts deployments but doesn't run them.
package pushes

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"slipway/internal/deploy/deploy"
	"slipway/internal/git/forge"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/seal"
	"slipway/internal/platform/text"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
)

// Previews says which branches get previews.
type Previews string

// The modes.
const (
	Off          Previews = "off"
	Branches     Previews = "branches"      // pushes to any branch except the production branch
	PullRequests Previews = "pull_requests" // branches with an open pull request
	All          Previews = "all"           // as branches; pull requests add nothing
)

// Values of the settings for tags, deleted branches and pull requests of forks.
const (
	Ignore      = "ignore"   // tags and forks are ignored
	TagPreviews = "preview"  // a tag gets a preview
	End         = "end"      // a deleted branch's preview ends
	Keep        = "keep"     // a deleted branch's preview stays
	Approval    = "approval" // a commit of a fork's pull request is built after a member approves it
)

// Initial contents of a preview's databases. None means that it has no databases.
const (
	None  = "none"
	Empty = "empty"
	Copy  = "copy" // copy of the site's databases at the preview's creation
)

// Limits of settings.
const (
	maxPreviewDays = 365
	maxPollMinutes = 60
)

// Modes lists all modes.
var Modes = []Previews{Off, Branches, PullRequests, All}

// Settings holds the Git settings of a site.
type Settings struct {
	Site        site.ID
	Owner       account.OwnerID
	Hook        HookID // empty if there is none yet
	AutoDeploy  bool
	Previews    Previews
	Watch       []string // globs; empty: see concerns
	Provider    forge.Provider
	LastEvent   string
	LastEventAt db.Time

	PreviewDays     int    // days until an unused preview address ends; 0: never
	Tags            string // Ignore or TagPreviews
	DeletedBranches string // End or Keep
	Forks           string // Approval or Ignore
	PreviewDatabase string // None, Empty or Copy
	PollMinutes     int    // interval of polling; 0: never
	PolledAt        db.Time
	PollError       string // of the last poll
	Workflows       Workflows

	secret string
}

// Workflows says which GitHub Actions workflows may deploy a site (package actions).
type Workflows struct {
	Repository   string         // owner/name; empty if none
	RepositoryID string         // set by the first run; empty before
	Branch       string         // branch whose runs may deploy to production
	Environment  string         // environment required for production. Optional.
	By           account.UserID // the member who allowed it
}

// Forge returns the provider of the site's repository; empty if it isn't known.
func (s Settings) Forge(repository string) forge.Provider {
	return forge.ProviderOf(repository, s.Provider)
}

// PullURL returns the URL of a pull request's page on the provider; empty if it isn't known.
func (s Settings) PullURL(repository string, number int) string {
	return s.Forge(repository).PullURL(repository, number)
}

// Secret returns the secret of the provider's signatures, to show to the owner.
func (s Settings) Secret() string { return s.secret }

// HookID is "ghk_" and 256 random bits. It is a secret.
type HookID string

// String keeps the secret out of logs and error messages.
func (HookID) String() string { return "[redacted]" }

// Reveal returns the secret, to show to the owner.
func (id HookID) Reveal() string { return string(id) }

// Digest identifies the id where the secret must not appear.
func (id HookID) Digest() string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:])
}

// Config holds what Pushes needs.
type Config struct {
	DB          *db.DB
	Sites       *site.Sites
	Deployments *deploy.Deployments
	Seal        *seal.Sealer

	Repositories Repositories // Optional: nil disables polling.
	Log          *slog.Logger // Optional.
}

// Repositories lists the refs of repositories. Look implements it.
type Repositories interface {
	// Heads lists the commits of a repository's branches and tags, keyed by refs/heads/… and refs/tags/…, and its
	// default branch.
	Heads(ctx context.Context, s site.Site) (refs map[string]string, byDefault string, err error)
}

// Pushes owns the settings of all sites.
type Pushes struct{ c Config }

// New returns Pushes. It starts nothing.
func New(c Config) *Pushes {
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	return &Pushes{c}
}

const columns = `g.site_id, s.owner_id, g.hook_sealed, g.secret, g.auto_deploy, g.previews, g.watch, g.provider, g.last_event,
	g.last_event_at,
	g.preview_days, g.tags, g.deleted_branches, g.forks, g.poll_minutes, g.polled_at, g.poll_error, g.preview_database,
	g.actions_repository, g.actions_repository_id, g.actions_branch, g.actions_environment, g.actions_by`

const from = ` FROM git_settings g JOIN open_sites s ON s.id = g.site_id `

func (g *Pushes) scan(row db.Scanner) (s Settings, err error) {
	var hook, secret, watch string
	err = row.Scan(&s.Site, &s.Owner, &hook, &secret, &s.AutoDeploy, &s.Previews, &watch, &s.Provider, &s.LastEvent, &s.LastEventAt,
		&s.PreviewDays, &s.Tags, &s.DeletedBranches, &s.Forks, &s.PollMinutes, &s.PolledAt, &s.PollError, &s.PreviewDatabase,
		&s.Workflows.Repository, &s.Workflows.RepositoryID, &s.Workflows.Branch, &s.Workflows.Environment, &s.Workflows.By)
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal([]byte(watch), &s.Watch); err != nil {
		return s, fmt.Errorf("read watch of %s: %w", s.Site, err)
	}
	for _, x := range []struct {
		box, purpose string
		to           func(string)
	}{{hook, "hook", func(v string) { s.Hook = HookID(v) }}, {secret, "secret", func(v string) { s.secret = v }}} {
		if x.box == "" {
			continue
		}
		plain, err := g.c.Seal.Open(x.box, purpose(s.Site, x.purpose))
		if err != nil {
			return s, fmt.Errorf("open git %s: %w", x.purpose, err)
		}
		x.to(string(plain))
	}
	return s, nil
}

func purpose(id site.ID, what string) string { return "site/" + string(id) + "/git " + what }

// Get returns the settings of the owner's site.
func (g *Pushes) Get(ctx context.Context, r db.Reader, owner account.OwnerID, id site.ID) (Settings, error) {
	s, err := g.c.Sites.ByID(ctx, r, id)
	if err == nil && s.Owner != owner {
		err = fault.Missing("site")
	}
	if err != nil {
		return Settings{}, err
	}
	set, err := g.scan(r.QueryRow(ctx, `SELECT `+columns+from+`WHERE g.site_id = $1`, id))
	if errors.Is(err, sql.ErrNoRows) {
		return Settings{
			Site:            id,
			Owner:           owner,
			AutoDeploy:      true,
			Previews:        Off,
			Watch:           []string{},
			PreviewDays:     30,
			Tags:            Ignore,
			DeletedBranches: End,
			Forks:           Approval,
			PreviewDatabase: Empty,
		}, nil
	}
	return set, err
}

// PreviewDatabase returns None, Empty or Copy for a site's previews.
func (g *Pushes) PreviewDatabase(ctx context.Context, id site.ID) (string, error) {
	var begin string
	err := g.c.DB.QueryRow(ctx, `SELECT preview_database FROM git_settings WHERE site_id = $1`, id).Scan(&begin)
	if errors.Is(err, sql.ErrNoRows) {
		return Empty, nil
	}
	if err != nil {
		return "", fmt.Errorf("read git settings: %w", err)
	}
	return begin, nil
}

// ByHook returns the settings of the site with that hook, or a NotFound fault.
func (g *Pushes) ByHook(ctx context.Context, r db.Reader, id HookID) (Settings, error) {
	s, err := g.scan(r.QueryRow(ctx, `SELECT `+columns+from+`WHERE g.hook_digest = $1`, id.Digest()))
	if errors.Is(err, sql.ErrNoRows) {
		return s, fault.Missing("git hook")
	}
	return s, err
}

// Patch changes the fields that aren't nil.
type Patch struct {
	AutoDeploy *bool
	Previews   *Previews
	Watch      []string

	PreviewDays     *int
	Tags            *string
	DeletedBranches *string
	Forks           *string
	PreviewDatabase *string
	PollMinutes     *int
}

// set sets a setting that has a fixed list of values.
func set(to *string, name string, v *string, words ...string) error {
	if v == nil {
		return nil
	}
	if !slices.Contains(words, *v) {
		return fault.New(fault.Invalid, "invalid_git_settings", "Invalid "+name,
			name+" must be "+strings.Join(words, " or ")).Got(text.Line(*v, 100))
	}
	*to = *v
	return nil
}

// setNumber sets a number between 0 and most.
func setNumber(to *int, name string, v *int, most int) error {
	if v == nil {
		return nil
	}
	if *v < 0 || *v > most {
		return fault.New(fault.Invalid, "invalid_git_settings", "Invalid "+name,
			fmt.Sprintf("%s must be a number from 0 to %d", name, most)).Got(*v)
	}
	*to = *v
	return nil
}

// UpdateTx changes the settings of the owner's site.
func (g *Pushes) UpdateTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id site.ID, p Patch) (Settings, error) {
	s, err := g.lockTx(ctx, tx, owner, id)
	if err != nil {
		return s, err
	}
	if p.AutoDeploy != nil {
		s.AutoDeploy = *p.AutoDeploy
	}
	if p.Previews != nil {
		if !slices.Contains(Modes, *p.Previews) {
			return s, fault.New(fault.Invalid, "invalid_previews", "Invalid previews",
				"previews must be off, branches, pull_requests or all").Got(string(*p.Previews))
		}
		s.Previews = *p.Previews
	}
	if p.Watch != nil {
		if err := checkWatch(p.Watch); err != nil {
			return s, err
		}
		s.Watch = p.Watch
	}
	before := s.PollMinutes
	err = errors.Join(
		setNumber(&s.PreviewDays, "previewDays", p.PreviewDays, maxPreviewDays),
		setNumber(&s.PollMinutes, "pollMinutes", p.PollMinutes, maxPollMinutes),
		set(&s.Tags, "tags", p.Tags, Ignore, TagPreviews),
		set(&s.DeletedBranches, "deletedBranches", p.DeletedBranches, End, Keep),
		set(&s.Forks, "forks", p.Forks, Approval, Ignore),
		set(&s.PreviewDatabase, "previewDatabase", p.PreviewDatabase, None, Empty, Copy),
	)
	if err != nil {
		return s, err
	}
	if p.Previews != nil && s.Previews != Off || p.Tags != nil && s.Tags == TagPreviews {
		x, err := g.c.Sites.ByID(ctx, tx, id)
		if err != nil {
			return s, err
		}
		if x.Type == site.WordPress {
			return s, site.NoPreviews
		}
	}
	watch, err := json.Marshal(s.Watch)
	if err != nil {
		return s, err
	}
	if s.PollMinutes != before { // refs that exist when polling begins aren't new
		if _, err := tx.Exec(ctx, `
			UPDATE git_settings SET poll_refs = CASE WHEN poll_minutes = 0 THEN '' ELSE poll_refs END, poll_at = $2, poll_error = ''
			WHERE site_id = $1`, id, db.Now()); err != nil {
			return s, fmt.Errorf("begin to poll: %w", err)
		}
		s.PollError = ""
	}
	_, err = tx.Exec(ctx, `
		UPDATE git_settings SET auto_deploy = $2, previews = $3, watch = $4, preview_days = $5, tags = $6, deleted_branches = $7,
		forks = $8, poll_minutes = $9, preview_database = $10 WHERE site_id = $1`,
		id, s.AutoDeploy, s.Previews, string(watch), s.PreviewDays, s.Tags, s.DeletedBranches, s.Forks, s.PollMinutes, s.PreviewDatabase)
	if err != nil {
		return s, fmt.Errorf("update git settings: %w", err)
	}
	return s, nil
}

// NewHookTx gives the owner's site a hook with a new URL and secret, and deletes the old one.
func (g *Pushes) NewHookTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id site.ID) (hook HookID, secret string, err error) {
	if _, err := g.lockTx(ctx, tx, owner, id); err != nil {
		return "", "", err
	}
	key := make([]byte, 32)
	rand.Read(key)
	// The whole string is the secret for Git providers; the part after the prefix is the key for Standard Webhooks.
	hook, secret = HookID("ghk_"+db.Random(32)), forge.SecretPrefix+base64.StdEncoding.EncodeToString(key)
	_, err = tx.Exec(
		ctx,
		`UPDATE git_settings SET hook_digest = $2, hook_sealed = $3, secret = $4, provider = '', last_event = '', last_event_at = 0
			WHERE site_id = $1`,
		id,
		hook.Digest(),
		g.c.Seal.Seal([]byte(hook), purpose(id, "hook")),
		g.c.Seal.Seal([]byte(secret), purpose(id, "secret")),
	)
	if err != nil {
		return "", "", fmt.Errorf("make git hook: %w", err)
	}
	return hook, secret, nil
}

// lockTx returns the settings of the owner's site, and inserts their row if it is missing.
func (g *Pushes) lockTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id site.ID) (Settings, error) {
	if _, err := g.c.Sites.LockTx(ctx, tx, owner, id); err != nil {
		return Settings{}, err
	}
	_, err := tx.Exec(ctx, `
		INSERT INTO git_settings (site_id, hook_digest, hook_sealed, secret, auto_deploy, previews, watch, provider, last_event, last_event_at)
		VALUES ($1, '', '', '', TRUE, 'off', '[]', '', '', 0) ON CONFLICT DO NOTHING`, id)
	if err != nil {
		return Settings{}, fmt.Errorf("make git settings: %w", err)
	}
	return g.Get(ctx, tx, owner, id)
}

// ForgetSiteTx deletes the data of a site.
func (g *Pushes) ForgetSiteTx(ctx context.Context, tx *db.Tx, id site.ID) error {
	for _, q := range []string{
		`DELETE FROM git_settings WHERE site_id = $1`, `DELETE FROM git_deliveries WHERE site_id = $1`,
		`DELETE FROM git_pulls WHERE site_id = $1`, `DELETE FROM git_events WHERE site_id = $1`,
	} {
		if _, err := tx.Exec(ctx, q, id); err != nil {
			return fmt.Errorf("forget git settings: %w", err)
		}
	}
	return nil
}
