package site

import (
	"context"
	"fmt"
	"slices"

	"slipway/internal/platform/id"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/text"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/webhook/event"
)

// moves lists the allowed transitions:
//
//	pending → provisioning → active | error
//	error   → provisioning            (by the next deployment)
//	active  ↔ stopped                 (stop, start)
//
// A later deployment that fails leaves an active site active on its last good release.
var moves = map[Status][]Status{
	Pending:      {Provisioning, Active, Failed},
	Provisioning: {Active, Failed},
	Failed:       {Provisioning, Active},
	Active:       {Stopped},
	Stopped:      {Active},
}

// move changes a site's status and emits the event. It does nothing if status and reason are unchanged.
func (s *Sites) move(ctx context.Context, tx *db.Tx, site Site, to Status, reason string) error {
	if site.Status == to && site.StatusReason == reason {
		return nil
	}
	if site.Status != to && !slices.Contains(moves[site.Status], to) {
		return fault.New(fault.Conflict, "invalid_transition",
			fmt.Sprintf("A site that is %s can't become %s", site.Status, to), "")
	}
	bump(tx, site.Owner, site.ID)
	_, err := tx.Exec(ctx, `
		UPDATE sites SET status = $2, status_reason = $3, updated_at = $4 WHERE id = $1`,
		site.ID, to, reason, db.Now())
	if err != nil {
		return fmt.Errorf("change status of %s: %w", site.ID, err)
	}
	if err := recount(ctx, tx, site, to); err != nil {
		return err
	}
	return s.c.Hooks.EmitTx(ctx, tx, site.Owner, event.SiteUpdated(s.Ref(site), "status"))
}

func recount(ctx context.Context, tx *db.Tx, site Site, to Status) error {
	if site.Status == to {
		return nil
	}
	if err := count(ctx, tx, site.Owner, site.Type, site.Status, -1); err != nil {
		return err
	}
	return count(ctx, tx, site.Owner, site.Type, to, 1)
}

// LockByIDTx is [Sites.LockTx] for any owner, for jobs.
func (s *Sites) LockByIDTx(ctx context.Context, tx *db.Tx, id ID) (Site, error) {
	if tx.Single() {
		return s.ByID(ctx, tx, id)
	}
	// A no-op update takes the row's lock.
	got, err := scan(tx.QueryRow(ctx,
		`UPDATE sites SET live_version = live_version WHERE id = $1 AND deleted_at = 0 RETURNING `+columns, id))
	return got, missing(err)
}

// LockTx is [Sites.GetTx] with a lock: no other transaction can change or delete the site until this one ends.
func (s *Sites) LockTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id ID) (Site, error) {
	got, err := s.LockByIDTx(ctx, tx, id)
	if err == nil && got.Owner != owner {
		return Site{}, fault.Missing("site")
	}
	return got, err
}

// ProvisioningTx moves a site that has never been live to provisioning when its deployment starts. The caller has
// locked the site.
func (s *Sites) ProvisioningTx(ctx context.Context, tx *db.Tx, site Site) error {
	if site.Status != Pending && site.Status != Failed {
		return nil
	}
	return s.move(ctx, tx, site, Provisioning, "")
}

// FailTx records why provisioning ended without a release. A live site stays live.
func (s *Sites) FailTx(ctx context.Context, tx *db.Tx, id ID, reason string) error {
	site, err := s.LockByIDTx(ctx, tx, id)
	if err != nil || site.Status == Active || site.Status == Stopped {
		return err
	}
	if site.LiveRelease != "" {
		return s.move(ctx, tx, site, Active, "")
	}
	return s.move(ctx, tx, site, Failed, text.Clip(reason, 200))
}

// ActivateTx makes a deployment's release live and returns the site as it was before. It returns nil and changes
// nothing if a newer deployment is live or the site is gone. Deployment IDs sort by time.
func (s *Sites) ActivateTx(
	ctx context.Context, tx *db.Tx, id ID, deployment id.Deployment, release id.Release, runtime string,
) (*Site, error) {
	site, err := s.LockByIDTx(ctx, tx, id)
	if fault.Is(err, fault.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if site.LiveDeployment >= deployment {
		return nil, nil
	}
	bump(tx, site.Owner, id)
	to := site.Status
	if to != Stopped {
		to = Active
	}
	_, err = tx.Exec(ctx, `
		UPDATE sites SET live_deployment = $2, live_release = $3, runtime = $4, status = $5, status_reason = '',
			needs_redeploy = FALSE, updated_at = $6
		WHERE id = $1`,
		id, deployment, release, runtime, to, db.Now())
	if err != nil {
		return nil, fmt.Errorf("activate %s: %w", deployment, err)
	}
	if err := recount(ctx, tx, site, to); err != nil {
		return nil, err
	}
	if to == site.Status {
		return &site, nil
	}
	return &site, s.c.Hooks.EmitTx(ctx, tx, site.Owner, event.SiteUpdated(s.Ref(site), "status"))
}

// DefaultBranchTx stores the repository's default branch for a site without a branch. The site keeps it if the default
// changes later.
func (s *Sites) DefaultBranchTx(ctx context.Context, tx *db.Tx, id ID, branch string) error {
	if _, err := tx.Exec(ctx, `UPDATE sites SET branch = $2 WHERE id = $1 AND branch = ''`, id, branch); err != nil {
		return fmt.Errorf("note default branch: %w", err)
	}
	return nil
}

// StopTx takes an active site offline. Its releases stay.
func (s *Sites) StopTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id ID) (Site, error) {
	return s.ownerMoves(ctx, tx, owner, id, Stopped, "Stopped by its owner")
}

// StartTx puts a stopped site online.
func (s *Sites) StartTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id ID) (Site, error) {
	return s.ownerMoves(ctx, tx, owner, id, Active, "")
}

func (s *Sites) ownerMoves(ctx context.Context, tx *db.Tx, owner account.OwnerID, id ID, to Status, reason string) (Site, error) {
	site, err := s.LockTx(ctx, tx, owner, id)
	if err != nil {
		return Site{}, err
	}
	if to == Active && site.Status != Stopped && site.Status != Active {
		return Site{}, fault.New(fault.Conflict, "invalid_transition",
			fmt.Sprintf("Only a stopped site can be started; this one is %s", site.Status),
			"deploy it instead")
	}
	if to == Stopped && site.Status != Stopped && site.Status != Active {
		return Site{}, fault.New(fault.Conflict, "invalid_transition",
			fmt.Sprintf("Only a live site can be stopped; this one is %s", site.Status),
			"it serves nothing yet: cancel its deployment, or delete it")
	}
	if site.Status != to { // stopping a stopped site changes nothing
		if err := s.move(ctx, tx, site, to, reason); err != nil {
			return Site{}, err
		}
	}
	return s.GetTx(ctx, tx, owner, id)
}
