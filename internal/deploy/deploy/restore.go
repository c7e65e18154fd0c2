package deploy

import (
	"context"

	"slipway/internal/deploy/deployment"
	"slipway/internal/deploy/journal"
	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
)

// RestoreTx makes a backup's content live in production with a new deployment. Its blobs must be stored already. note
// is the line of its log.
func (d *Deployments) RestoreTx(
	ctx context.Context,
	tx *db.Tx,
	owner account.OwnerID,
	id site.ID,
	l deployment.Live,
	note string,
) (deployment.Deployment, error) {
	s, err := d.c.Sites.LockTx(ctx, tx, owner, id)
	if err != nil {
		return deployment.Deployment{}, err
	}
	now := db.Now()
	x := deployment.Deployment{
		ID:            db.ID[deployment.ID]("dep"),
		Site:          id,
		Owner:         owner,
		Status:        deployment.Success,
		Cause:         deployment.ByRestore,
		Target:        deployment.Production,
		Branch:        l.Branch,
		CommitHash:    l.CommitHash,
		CommitMessage: l.CommitMessage,
		CommitAuthor:  l.CommitAuthor,
		Framework:     l.Framework,
		Plan:          l.Plan,
		Release:       l.Release,
		Runtime:       l.Runtime,
		Bundle:        l.Bundle,
		Stages:        []journal.Stage{},
		CreatedAt:     now,
		StartedAt:     now,
		CompletedAt:   now,
		Current:       true,
	}
	x.URL = d.c.Sites.DeploymentURL(x.ID.Label(), s.Slug)
	return d.wentLiveTx(ctx, tx, x, note)
}
