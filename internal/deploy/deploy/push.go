package deploy

import (
	"context"
	"fmt"

	"slipway/internal/deploy/deployment"
	"slipway/internal/deploy/preview"
	"slipway/internal/git/fetch"
	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
)

// PushTx triggers a deployment of a pushed commit. It replaces deployments of the same branch that hooks and pushes
// triggered and that still wait.
func (d *Deployments) PushTx(ctx context.Context, tx *db.Tx, s site.Site, t Trigger) (deployment.Deployment, error) {
	t.Cause = deployment.ByPush
	x, err := d.insert(ctx, tx, s, t)
	if err != nil {
		return deployment.Deployment{}, err
	}
	if t.Attach > 0 {
		if x, _, err = d.AttachPullTx(ctx, tx, s.Owner, s.ID, t.Branch, t.Commit, t.Attach); err != nil {
			return deployment.Deployment{}, err
		}
	}
	return x, d.supersede(ctx, tx, x)
}

// Skipped describes a pushed commit that isn't deployed.
type Skipped struct {
	Branch  string
	Commit  string // empty if the full id isn't known
	Message string
	Author  string
	Target  deployment.Target
	Pull    int
	Reason  string // shown in the list of deployments
}

// SkipTx records that a pushed commit isn't deployed, as a canceled deployment. It sends no webhook, because nothing
// was started.
func (d *Deployments) SkipTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id site.ID, k Skipped) (deployment.Deployment, error) {
	s, err := d.c.Sites.LockTx(ctx, tx, owner, id)
	if err != nil {
		return deployment.Deployment{}, err
	}
	if err := fetch.CheckBranch(k.Branch); err != nil {
		return deployment.Deployment{}, err
	}
	if k.Commit != "" {
		if err := fetch.CheckCommit(k.Commit); err != nil {
			return deployment.Deployment{}, err
		}
	}
	now := db.Now()
	x := deployment.Deployment{
		ID:            db.ID[deployment.ID]("dep"),
		Site:          s.ID,
		Owner:         s.Owner,
		Status:        deployment.Canceled,
		Cause:         deployment.ByPush,
		Target:        k.Target,
		Branch:        k.Branch,
		CommitHash:    k.Commit,
		Pinned:        true,
		Pull:          k.Pull,
		Repository:    s.Repository,
		CommitMessage: k.Message,
		CommitAuthor:  k.Author,
		CreatedAt:     now,
		CompletedAt:   now,
	}
	if err := d.write(ctx, tx, x, ""); err != nil {
		return deployment.Deployment{}, err
	}
	if _, err := tx.Exec(ctx, `UPDATE deployments SET error = $2 WHERE id = $1`, x.ID, k.Reason); err != nil {
		return deployment.Deployment{}, fmt.Errorf("note why a push was skipped: %w", err)
	}
	tx.Notify(x.Owner.Topic())
	return x, nil
}

// EndPreviewTx ends the preview address of a deleted branch, and cancels its previews that haven't ended.
func (d *Deployments) EndPreviewTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id site.ID, branch string) (had bool, err error) {
	return d.endPreview(ctx, tx, owner, id, branch, "The branch was deleted")
}

// EndPullTx is EndPreviewTx for a pull request that was merged or closed. Its branch keeps its own preview.
func (d *Deployments) EndPullTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id site.ID, pull int) (had bool, err error) {
	return d.endPreview(ctx, tx, owner, id, preview.PullKey(pull), "The pull request was closed")
}

func (d *Deployments) endPreview(
	ctx context.Context,
	tx *db.Tx,
	owner account.OwnerID,
	id site.ID,
	branch, why string,
) (had bool, err error) {
	if _, err := d.c.Sites.LockTx(ctx, tx, owner, id); err != nil {
		return false, err
	}
	label, err := preview.EndTx(ctx, tx, id, branch)
	if err != nil || label == "" {
		return false, err
	}
	ids, err := idsOf(ctx, tx,
		`SELECT id FROM deployments WHERE site_id = $1 AND preview_label = $2 AND target = 'preview' AND status IN `+open,
		id, label)
	if err != nil {
		return false, fmt.Errorf("find previews of a branch: %w", err)
	}
	for _, one := range ids {
		if err := d.cancel(ctx, tx, one, why); err != nil {
			return false, err
		}
	}
	return true, nil
}
