package domain

import (
	"context"
	"fmt"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
)

// route makes the edge serve a domain, or updates its route. The row's version orders it among all changes that edges
// read.
func route(ctx context.Context, tx *db.Tx, dom Domain) error {
	nextVersion(tx, dom.Owner, dom.Name)
	_, err := tx.Exec(ctx, `
		INSERT INTO domain_routes (host, site_id, redirect_to, state, version, changed_at) VALUES ($1, $2, $3, 'active', 0, $4)
		ON CONFLICT (host) DO UPDATE SET site_id = excluded.site_id, redirect_to = excluded.redirect_to, state = excluded.state,
		  changed_at = excluded.changed_at`, dom.Name, dom.SiteID, dom.RedirectTo, db.Now())
	if err != nil {
		return fmt.Errorf("route %s: %w", dom.Name, err)
	}
	return nil
}

// routed reports whether the edge serves the domain for its holder.
func routed(ctx context.Context, tx *db.Tx, dom Domain) (bool, error) {
	var n int
	err := tx.QueryRow(ctx, "SELECT count(*) FROM domain_routes WHERE host = $1 AND site_id = $2 AND state = 'active'",
		dom.Name, dom.SiteID).Scan(&n)
	if err != nil {
		return false, fmt.Errorf("look up route of %s: %w", dom.Name, err)
	}
	return n > 0, nil
}

// unroute removes a domain's route. The row stays as a tombstone so that every edge sees the removal.
func unroute(ctx context.Context, tx *db.Tx, dom Domain) error {
	if served, err := routed(ctx, tx, dom); err != nil || !served {
		return err
	}
	nextVersion(tx, dom.Owner, dom.Name)
	if _, err := tx.Exec(ctx, "UPDATE domain_routes SET state = 'deleted', redirect_to = '', changed_at = $2 WHERE host = $1",
		dom.Name, db.Now()); err != nil {
		return fmt.Errorf("end route of %s: %w", dom.Name, err)
	}
	return nil
}

// nextVersion sets a written route's version from the counter that orders the edges' changes. The counter's row lock
// makes versions commit in order.
func nextVersion(tx *db.Tx, owner account.OwnerID, host string) {
	const counter = "live_version"
	tx.Last(counter, "UPDATE live_version SET n = n + 1 WHERE id = 1")
	tx.Last(counter, "UPDATE domain_routes SET version = (SELECT n FROM live_version WHERE id = 1) WHERE host = $1", host)
	tx.Notify("live")
	tx.Notify(owner.Topic())
}
