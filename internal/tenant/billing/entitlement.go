package billing

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/id"
	"slipway/internal/tenant/billing/plan"
	"slipway/internal/tenant/limits"
)

// PlanLimit returns the owner's limit from a grant, or else from the plan. It implements [limits.Plans].
func (b *Billing) PlanLimit(ctx context.Context, r db.Reader, owner id.Owner, name limits.Name) (n int64, has bool, err error) {
	err = r.QueryRow(ctx, `
		SELECT value FROM (
			SELECT 0 AS rank, from_at AS at, id, value FROM billing_grants
			WHERE owner_id = $1 AND name = $2 AND from_at <= $3 AND (until_at = 0 OR until_at > $3)
			UNION ALL
			SELECT 1, 0, '', e.value FROM billing_subscriptions s JOIN billing_entitlements e ON e.version_id = s.version_id
			WHERE s.owner_id = $1 AND s.status <> 'expired' AND e.name = $2
		) AS all_limits ORDER BY rank, at DESC, id DESC LIMIT 1`, owner, name, b.now()).Scan(&n)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("read limit of plan: %w", err)
	}
	return n, true, nil
}

// Upgrade returns the owner's plan and the cheapest offered plan with a limit above n.
func (b *Billing) Upgrade(
	ctx context.Context, r db.Reader, owner id.Owner, name limits.Name, n int64,
) (current, upgrade string, err error) {
	var has plan.Version
	s, err := b.Subscription(ctx, r, owner)
	if err == nil {
		has, err = b.Version(ctx, r, s.Version)
	} else if fault.Is(err, fault.NotFound) {
		err = nil
	}
	if err != nil {
		return "", "", err
	}
	offers, err := b.OffersTo(ctx, r, owner)
	var best plan.Version
	for _, v := range offers {
		limit, limited := v.Limits[name]
		if limited && limit <= n || v.Plan == has.Plan || has.Currency != "" && v.Currency != has.Currency ||
			has.Term != "" && v.Term != has.Term {
			continue
		}
		if best.Plan == "" || v.Amount < best.Amount {
			best = v
		}
	}
	return has.Plan, best.Plan, err
}
