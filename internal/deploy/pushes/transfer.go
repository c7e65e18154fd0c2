package pushes

import (
	"context"
	"fmt"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
)

// ChosenByApp is called when an app's access ends. It stops automatic deployments and polling of sites whose repository
// the app chose: otherwise the app's commits would still be deployed.
type ChosenByApp struct{ *Pushes }

// RemoveMadeTx stops them for the site with the given id if the owner still has it.
func (c ChosenByApp) RemoveMadeTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id string) error {
	if _, err := c.lockTx(ctx, tx, owner, site.ID(id)); fault.Is(err, fault.NotFound) {
		return nil
	} else if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `UPDATE git_settings SET auto_deploy = FALSE WHERE site_id = $1`, id); err != nil {
		return fmt.Errorf("end deployments of an app's repository: %w", err)
	}
	return c.Pushes.RemoveMadeTx(ctx, tx, owner, id)
}

// RemoveMadeTx stops the polling of a site's repository that an app started, when the app's access ends: otherwise the
// app's commits would still be deployed. id is the site's.
func (g *Pushes) RemoveMadeTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id string) error {
	if _, err := tx.Exec(ctx, `UPDATE git_settings SET poll_minutes = 0, poll_refs = '', poll_error = ''
		WHERE site_id = $1 AND site_id IN (SELECT id FROM open_sites WHERE owner_id = $2)`, id, owner); err != nil {
		return fmt.Errorf("end polling of an app: %w", err)
	}
	return nil
}

// RotateHookTx gives a site's Git hook, if it has one, a new URL and secret, so that calls of the old URL get a 404. It
// also ends the permission of GitHub Actions workflows. It reports which of both existed.
func (g *Pushes) RotateHookTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id site.ID) (hook, workflows bool, err error) {
	before, err := g.Get(ctx, tx, owner, id)
	if err == nil && before.Workflows.Repository != "" {
		workflows = true
		err = g.AllowTx(ctx, tx, owner, id, Workflows{})
	}
	if err != nil {
		return false, false, err
	}
	var has bool
	if err := tx.QueryRow(ctx, `
		SELECT EXISTS (SELECT 1 FROM git_settings WHERE site_id = $1 AND hook_digest <> '')`, id).Scan(&has); err != nil {
		return false, false, fmt.Errorf("find git hook of site: %w", err)
	}
	if !has {
		return false, workflows, nil
	}
	_, _, err = g.NewHookTx(ctx, tx, owner, id)
	return true, workflows, err
}

// StopPollingTx stops the polling of a site's repository, and reports whether it was on.
func (g *Pushes) StopPollingTx(ctx context.Context, tx *db.Tx, id site.ID) (polled bool, err error) {
	n, err := tx.Exec(ctx, `
		UPDATE git_settings SET poll_minutes = 0, poll_refs = '', poll_error = '' WHERE site_id = $1 AND poll_minutes > 0`, id)
	if err != nil {
		return false, fmt.Errorf("stop polling: %w", err)
	}
	return n > 0, nil
}
