package deploy

import (
	"context"
	"fmt"

	"slipway/internal/deploy/deployment"
	"slipway/internal/deploy/preview"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/site"
)

// targetOf returns the target of a deployment of the branch. Only the production branch, a promotion or a rollback
// changes production; every other branch is a preview. If the site names no production branch and the repository's
// default branch isn't known yet, any branch may be the production branch.
func targetOf(s site.Site, branch string) deployment.Target {
	if branch == "" || s.Branch == "" || branch == s.Branch {
		return deployment.Production
	}
	return deployment.Preview
}

// chooseTarget is targetOf with the target that the caller asked for. It refuses production for other branches.
func chooseTarget(s site.Site, t Trigger) (deployment.Target, error) {
	if t.Upload != "" && t.Target != "" {
		return t.Target, nil
	}
	decided := targetOf(s, t.Branch)
	if t.Pull > 0 || t.Fork {
		if t.Target != "" && t.Target != deployment.Preview || t.Pull > preview.MaxPull {
			return "", fmt.Errorf("deploy pull request %d to %s", t.Pull, t.Target)
		}
		return deployment.Preview, nil
	}
	switch t.Target {
	case "", decided:
		return decided, nil
	case deployment.Preview:
		return deployment.Preview, nil
	case deployment.Production:
		return "", fault.New(fault.Conflict, "not_production_branch", fmt.Sprintf("%s is not the production branch", t.Branch),
			fmt.Sprintf("production is deployed from %s: deploy a preview and promote it, or change the site's branch", s.Branch))
	}
	return "", fault.New(fault.Invalid, "invalid_target", "Invalid deployment target",
		"target must be production or preview").Got(string(t.Target))
}

// retargetTx turns a production deployment into a preview if its branch is no longer the production branch, or turned
// out not to be it.
func (d *Deployments) retargetTx(ctx context.Context, tx *db.Tx, s site.Site, x *deployment.Deployment) error {
	if x.Target != deployment.Production || x.Upload != "" || targetOf(s, x.Branch) == deployment.Production {
		return nil
	}
	s, err := d.c.Sites.ByID(ctx, tx, x.Site)
	if err != nil || targetOf(s, x.Branch) == deployment.Production {
		return err
	}
	label, err := d.Previews.HostTx(ctx, tx, s, previewKey(*x), false)
	if err != nil {
		return err
	}
	x.Target, x.PreviewURL = deployment.Preview, d.c.Sites.DeploymentURL(label, s.Slug)
	if _, err := tx.Exec(ctx, `UPDATE deployments SET target = $2, preview_label = $3 WHERE id = $1`, x.ID, x.Target, label); err != nil {
		return fmt.Errorf("make deployment a preview: %w", err)
	}
	return nil
}

// previewKey returns the key of the deployment's stable address: its pull request, or else its branch.
func previewKey(x deployment.Deployment) string {
	if x.Pull > 0 {
		return preview.PullKey(x.Pull)
	}
	return x.Branch
}

// showPreviewTx makes preview addresses serve a deployment.
func showPreviewTx(ctx context.Context, tx *db.Tx, x deployment.Deployment) error {
	return preview.ShowTx(ctx, tx, preview.Shown{
		Site:       x.Site,
		Deployment: x.ID,
		Release:    x.Release,
		Branch:     x.Branch,
		Pull:       x.Pull,
		Fork:       x.Fork,
	})
}
