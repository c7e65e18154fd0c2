package deploy

import (
	"context"
	"fmt"

	"slipway/internal/deploy/deployment"
	"slipway/internal/deploy/preview"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
)

// AttachPullTx attaches a pull request to the newest preview of its branch that has the same commit and hasn't failed,
// so that a commit isn't built twice. It reports whether there is one. commit may be abbreviated.
func (d *Deployments) AttachPullTx(
	ctx context.Context,
	tx *db.Tx,
	owner account.OwnerID,
	id site.ID,
	branch, commit string,
	pull int,
) (deployment.Deployment, bool, error) {
	s, err := d.c.Sites.LockTx(ctx, tx, owner, id)
	if err != nil {
		return deployment.Deployment{}, false, err
	}
	x, err := d.Find(ctx, tx, `
		WHERE d.site_id = $1 AND d.branch = $2 AND d.commit_hash LIKE $3 AND d.target = 'preview' AND NOT d.fork AND d.pull_request IN (0, $4)
			AND (d.status = 'success' AND d.release <> '' OR d.status IN `+open+`)
		ORDER BY d.id DESC LIMIT 1`, id, branch, commit+"%", pull)
	if fault.Is(err, fault.NotFound) {
		return deployment.Deployment{}, false, nil
	}
	if err != nil {
		return deployment.Deployment{}, false, err
	}
	x.Pull = pull
	if _, err := tx.Exec(ctx, `UPDATE deployments SET pull_request = $2 WHERE id = $1`, x.ID, pull); err != nil {
		return deployment.Deployment{}, false, fmt.Errorf("attach pull request: %w", err)
	}
	if _, err := d.Previews.HostTx(ctx, tx, s, preview.PullKey(pull), true); err != nil {
		return deployment.Deployment{}, false, err
	}
	if x.Status == deployment.Success {
		err = showPreviewTx(ctx, tx, x)
	}
	tx.Notify(x.Owner.Topic())
	return x, true, err
}
