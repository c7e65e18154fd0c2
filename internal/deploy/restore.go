package deploy

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"slipway/internal/account"
	"slipway/internal/bundle"
	"slipway/internal/db"
	"slipway/internal/fault"
	"slipway/internal/release"
	"slipway/internal/site"
	"slipway/internal/webhook"
)

// Live holds what a site serves, as a backup holds it: the files themselves are blobs.
type Live struct {
	Release       release.ID      `json:"release"`
	Bundle        bundle.ID       `json:"bundle,omitempty"`
	Runtime       string          `json:"runtime"`
	Framework     string          `json:"framework,omitempty"`
	Plan          json.RawMessage `json:"plan,omitempty"`
	Branch        string          `json:"branch,omitempty"`
	CommitHash    string          `json:"commitHash,omitempty"`
	CommitMessage string          `json:"commitMessage,omitempty"`
	CommitAuthor  string          `json:"commitAuthor,omitempty"`
}

// LiveOf returns what a site serves; nil while it serves nothing.
func (d *Deployments) LiveOf(ctx context.Context, id site.ID) (*Live, error) {
	x, err := d.scan(d.c.DB.QueryRow(ctx, `SELECT `+columns+from+`WHERE d.site_id = $1 AND d.id = s.live_deployment`, id))
	if errors.Is(err, sql.ErrNoRows) || fault.Is(err, fault.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &Live{Release: x.Release, Bundle: x.Bundle, Runtime: x.Runtime, Framework: x.Framework, Plan: x.Plan, Branch: x.Branch,
		CommitHash: x.CommitHash, CommitMessage: x.CommitMessage, CommitAuthor: x.CommitAuthor}, nil
}

// HoldRelease keeps a release whose blobs were put back from garbage collection until a
// deployment refers to it.
func (d *Deployments) HoldRelease(ctx context.Context, id release.ID) error { return d.hold(ctx, id) }

// RestoreTx makes what a backup holds live in production by a new deployment, in the
// caller's transaction. Its blobs are stored already. note is the line of its log.
func (d *Deployments) RestoreTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id site.ID, l Live, note string) (Deployment, error) {
	s, err := d.c.Sites.LockTx(ctx, tx, owner, id)
	if err != nil {
		return Deployment{}, err
	}
	now := db.Now()
	x := Deployment{ID: ID(db.NewID("dep")), Site: id, Owner: owner, Status: Success, Cause: ByRestore, Target: Production, Branch: l.Branch,
		CommitHash: l.CommitHash, CommitMessage: l.CommitMessage, CommitAuthor: l.CommitAuthor, Framework: l.Framework, Plan: l.Plan,
		Release: l.Release, Runtime: l.Runtime, Bundle: l.Bundle, Stages: []Stage{}, CreatedAt: now, StartedAt: now, CompletedAt: now, Current: true}
	x.URL = d.c.Sites.DeploymentURL(x.ID.Label(), s.Slug)
	if err := d.write(ctx, tx, x, ""); err != nil {
		return Deployment{}, err
	}
	live, err := d.c.Sites.ActivateTx(ctx, tx, id, string(x.ID), string(x.Release), x.Runtime)
	if err != nil {
		return Deployment{}, err
	}
	if live == nil {
		return Deployment{}, fmt.Errorf("restore %s: a newer deployment is live", id)
	}
	if x.Release != "" {
		if err := drawThumbnailTx(ctx, tx, x.Release); err != nil {
			return Deployment{}, err
		}
	}
	if err := appendLines(ctx, tx, x.ID, 0, []Line{{N: 1, At: now, Level: "info", Stage: "activate", Message: note}}); err != nil {
		return Deployment{}, err
	}
	if err := d.emit(ctx, tx, x, webhook.DeploymentStarted); err != nil {
		return Deployment{}, err
	}
	return x, d.emit(ctx, tx, x, webhook.DeploymentCompleted)
}
