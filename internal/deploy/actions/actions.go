// Package actions owns deploying from workflows of GitHub Actions: it exchanges the ID token that GitHub signs for a
// run for an API key that is valid for an hour. GitHub stores no secret.
//
// The site's Git settings name the repository that may deploy it. Runs of the branch named there may deploy to
// production, only in the environment named there if there is one. Other runs of the repository may deploy previews. A
// key is limited to one site and to what the member who allowed the repository may still do. An ID token works once.
// The package checks a token's signature, issuer, audience and age before it uses any claim, and reads the issuer's
// keys within the limits of package sso.
package actions

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"slipway/internal/deploy/pushes"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/text"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/oauth"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/sso"
)

// Issuer signs the ID tokens of workflows at github.com.
const Issuer = "https://token.actions.githubusercontent.com"

const (
	life    = time.Hour        // lifetime of a key
	maxAge  = 15 * time.Minute // of an ID token; GitHub's live for 5 minutes
	skew    = 5 * time.Minute  // how far the issuer's clock may be ahead
	askTime = 10 * time.Second // for requests to the issuer, and the pause between attempts to read its document
	maxKeys = 50               // per site and hour
	maxText = 8 << 10          // bytes of an ID token
)

// Config holds what New needs.
type Config struct {
	DB       *db.DB
	Accounts *account.Accounts
	Sites    *site.Sites
	Git      *pushes.Pushes
	Out      *http.Client // from egress.Client
	Issuer   string       // Optional: empty means github.com's. GitHub Enterprise Server has a different one.
	Audience string       // audience of the tokens: the installation's URL
	Log      *slog.Logger // Optional.
}

// Actions exchanges ID tokens. It is safe for concurrent use.
type Actions struct {
	c Config

	mu     sync.Mutex // guards the following fields
	check  *oidc.IDTokenVerifier
	failed error     // why the issuer's document couldn't be read,
	again  time.Time // and when to try again
}

// New returns Actions. It sends no requests.
func New(c Config) *Actions {
	c.Issuer = cmp.Or(c.Issuer, Issuer)
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	if c.Out != nil {
		c.Out = sso.Bounded(c.Out)
	}
	return &Actions{c: c}
}

// Key is the API key for a run.
type Key struct {
	Secret  string
	Scopes  account.Scopes
	Expires db.Time
}

// run holds the claims about a workflow run.
type run struct {
	ID           string `json:"jti"`
	Repository   string `json:"repository"`
	RepositoryID string `json:"repository_id"`
	Ref          string `json:"ref"`
	Environment  string `json:"environment"`
	Event        string `json:"event_name"`
	Number       string `json:"run_id"`
}

// events lists the events whose workflows can deploy. Only people with write access to the repository cause them, and
// GitHub issues no ID token to pull requests of forks. Others aren't listed: strangers cause issue_comment, and
// pull_request_target and workflow_run run with the base branch's permissions, although they often process untrusted
// input.
var events = []string{
	"push", "pull_request", "merge_group", "workflow_dispatch", "repository_dispatch", "schedule", "release", "deployment",
}

// errTarget is the answer to all runs that may not deploy a site, whether or not the site exists.
var errTarget = &oauth.Error{
	Code: "invalid_target", Status: http.StatusBadRequest,
	Description: "This workflow may not deploy this site: allow its repository in the Git settings of the site",
}

func refused(description string) *oauth.Error {
	return &oauth.Error{Code: "invalid_request", Status: http.StatusBadRequest, Description: description}
}

// Exchange returns a key for a site in exchange for the ID token of a run that may deploy it. Its errors are
// *oauth.Error, or internal ones.
func (a *Actions) Exchange(ctx context.Context, token string, id site.ID, addr netip.Addr) (Key, error) {
	r, expires, err := a.verify(ctx, token)
	if err != nil {
		return Key{}, err
	}
	var k Key
	err = a.c.DB.Write(ctx, func(tx *db.Tx) (err error) {
		k, err = a.exchangeTx(ctx, tx, r, expires, id, addr)
		return err
	})
	if f := fault.As(err); f != nil {
		// The site was deleted, or the member who allowed the repository was suspended, left the team or has fewer
		// permissions now.
		a.c.Log.InfoContext(ctx, "workflow refused", "site", id, "repository", r.Repository, "ref", r.Ref, "err", f.Message)
		return Key{}, errTarget
	}
	return k, err
}

// verify checks a token and returns its run and when the token expires.
func (a *Actions) verify(ctx context.Context, token string) (r run, expires db.Time, err error) {
	if len(token) > maxText {
		return r, 0, refused("subject_token is too long")
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	check, err := a.verifier(ctx)
	if err != nil {
		a.c.Log.WarnContext(ctx, "issuer of GitHub Actions not available", "issuer", a.c.Issuer, "err", err)
		return r, 0, &oauth.Error{
			Code: "temporarily_unavailable", Description: "The issuer of GitHub Actions is not available", Status: http.StatusServiceUnavailable,
		}
	}
	said, err := check.Verify(oidc.ClientContext(ctx, a.c.Out), token)
	if err == nil {
		err = said.Claims(&r)
	}
	now := time.Now()
	switch {
	case err != nil:
		a.c.Log.InfoContext(ctx, "ID token refused", "err", err)
		return r, 0, refused("subject_token is not a valid ID token of GitHub Actions for the audience " + a.c.Audience)
	case said.IssuedAt.Before(now.Add(-maxAge)) || said.IssuedAt.After(now.Add(skew)):
		return r, 0, refused("subject_token is too old, or from the future")
	case r.ID == "" || r.Repository == "" || r.RepositoryID == "":
		return r, 0, refused("subject_token names no run of a repository")
	case !slices.Contains(events, r.Event):
		return r, 0, refused("Workflows that run on " + text.Line(r.Event, 50) + " can't deploy: use one of " + strings.Join(events, ", "))
	}
	return r, db.At(said.Expiry), nil
}

// verifier returns the verifier of tokens. The first call reads the issuer's document. Concurrent callers share one
// request, and after a failure the next one is sent after askTime.
func (a *Actions) verifier(ctx context.Context) (*oidc.IDTokenVerifier, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.check != nil {
		return a.check, nil
	}
	if a.c.Out == nil {
		return nil, errors.New("no way to ask it")
	}
	if time.Now().Before(a.again) {
		return nil, a.failed
	}
	// The request is shared, so it continues if this caller leaves.
	ask, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTime)
	defer cancel()
	at, err := oidc.NewProvider(oidc.ClientContext(ask, a.c.Out), a.c.Issuer)
	if err != nil {
		a.failed, a.again = err, time.Now().Add(askTime)
		return nil, err
	}
	a.check = at.Verifier(&oidc.Config{ClientID: a.c.Audience, SupportedSigningAlgs: []string{oidc.RS256}})
	return a.check, nil
}

// exchangeTx makes a key for a run if the site's settings allow it.
func (a *Actions) exchangeTx(ctx context.Context, tx *db.Tx, r run, expires db.Time, id site.ID, addr netip.Addr) (Key, error) {
	s, err := a.c.Sites.ByID(ctx, tx, id)
	if err != nil {
		return Key{}, err
	}
	settings, err := a.c.Git.Get(ctx, tx, s.Owner, id)
	if err != nil {
		return Key{}, err
	}
	allowed := settings.Workflows
	if allowed.Repository == "" || !strings.EqualFold(allowed.Repository, r.Repository) ||
		allowed.RepositoryID != "" && allowed.RepositoryID != r.RepositoryID {
		return Key{}, errTarget
	}
	u, err := a.c.Accounts.UserTx(ctx, tx, allowed.By)
	if err != nil {
		return Key{}, err
	}
	by, err := a.c.Accounts.CallerFor(ctx, tx, u, s.Owner)
	if err != nil {
		return Key{}, err
	}
	if err := a.once(ctx, tx, by, r, id, expires); err != nil {
		return Key{}, err
	}
	scopes := account.Scopes{account.SitesRead, account.DeploymentsRead, account.PreviewsWrite}
	production := r.Ref == "refs/heads/"+allowed.Branch && (allowed.Environment == "" || allowed.Environment == r.Environment)
	if production {
		scopes[2] = account.DeploymentsWrite
	}
	k, secret, err := a.c.Accounts.CreateKeyTx(ctx, tx, by, account.NewKey{
		Name:   text.Line("GitHub Actions "+r.Repository, 80) + " " + text.Line(r.Number, 18),
		Scopes: scopes, Sites: []site.ID{id}, Expires: db.Now().Add(life),
	})
	if err != nil {
		return Key{}, err
	}
	if _, err := tx.Exec(ctx, `UPDATE action_runs SET key_id = $2 WHERE token = $1`, r.digest(), k.ID); err != nil {
		return Key{}, fmt.Errorf("note key of run: %w", err)
	}
	if allowed.RepositoryID == "" {
		if err := a.c.Git.PinTx(ctx, tx, id, r.RepositoryID); err != nil {
			return Key{}, err
		}
	}
	actor := by.Actor(addr)
	actor.Via = "GitHub Actions"
	err = a.c.Accounts.AuditTx(ctx, tx, actor, audit.Event{
		Action: "key.created", Subject: string(k.ID),
		Detail: fmt.Sprintf("%s (%s), %s at %s", k.Name, scopes, r.Event, r.Ref),
	})
	return Key{secret, scopes, k.Expires}, err
}

// digest identifies the run's token.
func (r run) digest() string {
	sum := sha256.Sum256([]byte(r.RepositoryID + " " + r.ID))
	return hex.EncodeToString(sum[:])
}

// once records that a token was used, and removes the site's keys of runs that have ended.
func (a *Actions) once(ctx context.Context, tx *db.Tx, by account.Caller, r run, id site.ID, expires db.Time) error {
	now := db.Now()
	rows, err := tx.Query(ctx, `SELECT key_id FROM action_runs WHERE site_id = $1 AND expires_at <= $2`, id, now)
	ended, err := db.Collect(rows, err, func(r db.Scanner) (k account.KeyID, err error) { return k, r.Scan(&k) })
	if err != nil {
		return fmt.Errorf("find ended runs: %w", err)
	}
	for _, k := range ended {
		if err := a.c.Accounts.RevokeKeyTx(ctx, tx, by, k); err != nil && fault.As(err) == nil { // a member revoked it
			return err
		}
	}
	// rows of all sites, because those of deleted sites are removed too
	if _, err := tx.Exec(ctx, `DELETE FROM action_runs WHERE expires_at <= $1 AND (site_id = $2 OR expires_at <= $3)`,
		now, id, now.Add(-24*time.Hour)); err != nil {
		return fmt.Errorf("forget ended runs: %w", err)
	}
	n, err := tx.Exec(ctx, `INSERT INTO action_runs (token, site_id, key_id, expires_at) VALUES ($1, $2, '', $3) ON CONFLICT DO NOTHING`,
		r.digest(), id, max(expires, now.Add(life)))
	if err != nil {
		return fmt.Errorf("note run: %w", err)
	}
	if n == 0 {
		return refused("subject_token was used before: ask GitHub for a new one")
	}
	var living int
	if err := tx.QueryRow(ctx, `SELECT count(*) FROM action_runs WHERE site_id = $1`, id).Scan(&living); err != nil {
		return fmt.Errorf("count runs: %w", err)
	}
	if living > maxKeys {
		return &oauth.Error{
			Code: "slow_down", Status: http.StatusTooManyRequests,
			Description: fmt.Sprintf("Workflows got %d keys for this site within the last hour: wait", maxKeys),
		}
	}
	return nil
}
