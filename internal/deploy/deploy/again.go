package deploy

import (
	"context"
	"fmt"

	"slipway/internal/deploy/deployment"
	"slipway/internal/deploy/journal"
	"slipway/internal/deploy/screenshot"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/webhook/event"
)

// RollbackTx makes the release of an earlier production deployment live again, immediately and without a build. If id
// is empty, it is the release that was live before the current one.
func (d *Deployments) RollbackTx(
	ctx context.Context,
	tx *db.Tx,
	owner account.OwnerID,
	id site.ID,
	to deployment.ID,
) (deployment.Deployment, error) {
	s, err := d.c.Sites.LockTx(ctx, tx, owner, id)
	if err != nil {
		return deployment.Deployment{}, err
	}
	var old deployment.Deployment
	if to == "" {
		old, err = d.Find(ctx, tx, `
			WHERE d.site_id = $1 AND d.owner_id = $2 AND d.target = 'production' AND d.status = 'success' AND d.release <> '' AND d.id < $4
				AND (d.release <> $3 OR d.bundle <> COALESCE((SELECT bundle FROM deployments WHERE id = $4), ''))
			ORDER BY d.id DESC LIMIT 1`, id, owner, s.LiveRelease, s.LiveDeployment)
		if fault.Is(err, fault.NotFound) {
			return deployment.Deployment{}, fault.New(fault.Conflict, "nothing_to_roll_back",
				"No earlier release to roll back to", "")
		}
	} else {
		old, err = d.OwnedTx(ctx, tx, owner, to)
	}
	switch {
	case err != nil:
		return deployment.Deployment{}, err
	case old.Site != id:
		return deployment.Deployment{}, fault.Missing("deployment")
	case old.Target == deployment.Preview:
		return deployment.Deployment{}, fault.New(fault.Conflict, "deployment_is_preview",
			"The deployment is a preview and was never live",
			"promote it to production instead")
	}
	return d.goLiveTx(ctx, tx, s, old, deployment.ByRollback)
}

// PromoteTx makes the release of a preview live in production, immediately and without a build.
func (d *Deployments) PromoteTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id deployment.ID) (deployment.Deployment, error) {
	old, err := d.OwnedTx(ctx, tx, owner, id)
	if err != nil {
		return deployment.Deployment{}, err
	}
	s, err := d.c.Sites.LockTx(ctx, tx, owner, old.Site)
	if err != nil {
		return deployment.Deployment{}, err
	}
	if old.Fork { // it was built from unreviewed code, and without production's variables
		return deployment.Deployment{}, fault.New(fault.Conflict, "deployment_from_fork", "A preview of a fork can't be promoted",
			"merge the pull request; production is then built with its variables")
	}
	if old.Target == deployment.Production {
		return deployment.Deployment{}, fault.New(fault.Conflict, "deployment_is_production",
			"The deployment is already a production deployment",
			"roll back to an earlier one, or redeploy it")
	}
	return d.goLiveTx(ctx, tx, s, old, deployment.ByPromote)
}

// goLiveTx creates a deployment that makes the release of another one live, without a build.
func (d *Deployments) goLiveTx(
	ctx context.Context,
	tx *db.Tx,
	s site.Site,
	old deployment.Deployment,
	by deployment.Cause,
) (deployment.Deployment, error) {
	words := map[deployment.Cause]struct{ verb, log string }{
		deployment.ByRollback: {"roll back", "Rolled back to the release of %s"},
		deployment.ByPromote:  {"promote", "Promoted the preview %s"},
	}[by]
	switch {
	case old.Status != deployment.Success || old.Release == "":
		return deployment.Deployment{}, fault.New(fault.Conflict, "no_release",
			"The deployment has no release to "+words.verb+" to production",
			"choose a successful deployment whose release is still stored")
	case s.Status == site.Stopped:
		return deployment.Deployment{}, fault.New(fault.Conflict, "site_stopped", "The site is stopped",
			"start it, then "+words.verb)
	}
	now := db.Now()
	x := old
	x.ID, x.Cause, x.ReleaseOf, x.Target = db.ID[deployment.ID]("dep"), by, old.ID, deployment.Production
	x.Pull = 0
	x.Title, x.ClearCache, x.Stages, x.Queue, x.Current, x.PreviewURL = "", false, []journal.Stage{}, nil, true, ""
	x.CreatedAt, x.StartedAt, x.CompletedAt = now, now, now
	x.URL, x.SiteName = d.c.Sites.DeploymentURL(x.ID.Label(), s.Slug), s.Name
	return d.wentLiveTx(ctx, tx, x, fmt.Sprintf(words.log, old.ID))
}

// wentLiveTx writes a deployment that built nothing, and makes its release live. note is the line of its log.
func (d *Deployments) wentLiveTx(ctx context.Context, tx *db.Tx, x deployment.Deployment, note string) (deployment.Deployment, error) {
	if err := d.write(ctx, tx, x, ""); err != nil {
		return deployment.Deployment{}, err
	}
	live, err := d.c.Sites.ActivateTx(ctx, tx, x.Site, x.ID, x.Release, x.Runtime)
	if err != nil {
		return deployment.Deployment{}, err
	}
	if live == nil {
		return deployment.Deployment{}, fmt.Errorf("%s %s: a newer deployment is live", x.Cause, x.Site)
	}
	if err := screenshot.TakeTx(ctx, tx, x.Owner, x.Site); err != nil {
		return deployment.Deployment{}, err
	}
	if err := journal.AppendTx(ctx, tx, x.ID, 0, []journal.Line{{
		N:       1,
		At:      x.CreatedAt,
		Level:   "info",
		Stage:   "activate",
		Message: note,
	}}); err != nil {
		return deployment.Deployment{}, err
	}
	if err := d.emit(ctx, tx, x, event.DeploymentStarted); err != nil {
		return deployment.Deployment{}, err
	}
	return x, d.emit(ctx, tx, x, event.DeploymentCompleted)
}
