package billing

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/id"
	"slipway/internal/tenant/limits"
)

// PlanLimit returns the limit of an owner's plan, or of a grant, which goes ahead of it. It is what limits.Plans asks for.
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

// PlansBelow reports whether somebody's plan or grant may have less than n.
func (b *Billing) PlansBelow(ctx context.Context, r db.Reader, name limits.Name, n int64) (below bool, err error) {
	err = r.QueryRow(ctx, `
		SELECT EXISTS (SELECT 1 FROM billing_entitlements WHERE name = $1 AND value < $2) OR EXISTS (SELECT 1 FROM billing_grants WHERE name = $1 AND value < $2)`,
		name, n).Scan(&below)
	if err != nil {
		return false, fmt.Errorf("look for small limits: %w", err)
	}
	return below, nil
}

// Upgrade returns an owner's plan, and the cheapest that is offered with more than n of a limit.
func (b *Billing) Upgrade(ctx context.Context, r db.Reader, owner id.Owner, name limits.Name, n int64) (plan, upgrade string, err error) {
	var has Version
	s, err := b.Subscription(ctx, r, owner)
	if err == nil {
		has, err = b.version(ctx, r, s.Version)
	} else if fault.Is(err, fault.NotFound) {
		err = nil
	}
	if err != nil {
		return "", "", err
	}
	offers, err := b.Offers(ctx, r, "")
	var best Version
	for _, v := range offers {
		most, limited := v.Limits[name]
		if limited && most <= n || v.Plan == has.Plan || has.Currency != "" && v.Currency != has.Currency || has.Term != "" && v.Term != has.Term {
			continue
		}
		if best.Plan == "" || v.Amount < best.Amount {
			best = v
		}
	}
	return has.Plan, best.Plan, err
}

// features are what plans name beside limits, and the limits that are 0 where a plan doesn't name them.
var features = map[string][]limits.Name{
	"wordpress": {limits.WordPress}, "previews": {limits.Previews}, "team": {limits.Teams}, "custom_domains": {limits.Domains},
}

// Features returns the names of features that a version includes.
func (t Terms) Features() (list []string) {
	for _, name := range slices.Sorted(maps.Keys(features)) {
		if n, limited := t.Limits[features[name][0]]; !limited || n > 0 {
			list = append(list, name)
		}
	}
	return list
}

// only lets a version include these features alone.
func (t *Terms) only(named []string) error {
	for _, name := range named {
		if features[name] == nil {
			return invalid("features", fmt.Sprintf("%q is not a feature; there are custom_domains, previews, team and wordpress", name), name)
		}
	}
	for name, zero := range features {
		if slices.Contains(named, name) {
			continue
		}
		for _, l := range zero {
			if t.Limits[l] > 0 {
				return invalid("features", fmt.Sprintf("the plan has a limit of %s and not the feature %s", l, name), name)
			}
			if t.Limits == nil {
				t.Limits = map[limits.Name]int64{}
			}
			t.Limits[l] = 0
		}
	}
	return nil
}

// Grant is an exception for one owner: an add-on, or a favor.
type Grant struct {
	ID     string // "grn_" and 26 characters
	Name   limits.Name
	Value  int64
	From   db.Time // Optional: now
	Until  db.Time // Optional: without an end
	Reason string
}

// mostGrants bounds those of one owner.
const mostGrants = 100

// GrantTx gives an owner a limit of their own.
func (b *Billing) GrantTx(ctx context.Context, tx *db.Tx, owner id.Owner, g Grant) (Grant, error) {
	switch {
	case !limits.Known(g.Name):
		return g, invalid("name", fmt.Sprintf("%q is not a limit", g.Name), string(g.Name))
	case g.Value < 0:
		return g, invalid("value", "value must be at least 0", g.Value)
	case g.Reason == "" || !oneOfLines(g.Reason, 1, 200):
		return g, invalid("reason", "reason must have 1 to 200 characters on one line", g.Reason)
	case g.Until != 0 && g.Until <= max(g.From, b.now()):
		return g, invalid("until", "until must be in the future and after from", g.Until.String())
	}
	if err := lockTx(ctx, tx, owner); err != nil {
		return g, err
	}
	if g.From == 0 {
		g.From = b.now()
	}
	var n int
	if err := tx.QueryRow(ctx, `SELECT count(*) FROM billing_grants WHERE owner_id = $1`, owner).Scan(&n); err != nil {
		return g, fmt.Errorf("count grants: %w", err)
	}
	if n >= mostGrants {
		return g, conflict("too_many_grants", "The owner has too many grants", fmt.Sprintf("there may be %d; delete some", mostGrants))
	}
	g.ID = db.NewID("grn")
	if _, err := tx.Exec(ctx, `
		INSERT INTO billing_grants (id, owner_id, name, value, from_at, until_at, reason, created_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
		g.ID, owner, g.Name, g.Value, g.From, g.Until, g.Reason, b.now()); err != nil {
		return g, fmt.Errorf("write grant: %w", err)
	}
	return g, nil
}

// Grants returns an owner's grants.
func (b *Billing) Grants(ctx context.Context, r db.Reader, owner id.Owner) ([]Grant, error) {
	rows, err := r.Query(ctx, `SELECT id, name, value, from_at, until_at, reason FROM billing_grants WHERE owner_id = $1 ORDER BY id`, owner)
	list, err := db.Collect(rows, err, func(s db.Scanner) (g Grant, err error) {
		return g, s.Scan(&g.ID, &g.Name, &g.Value, &g.From, &g.Until, &g.Reason)
	})
	if err != nil {
		return nil, fmt.Errorf("list grants: %w", err)
	}
	return list, nil
}

// RevokeTx ends a grant.
func (b *Billing) RevokeTx(ctx context.Context, tx *db.Tx, owner id.Owner, grant string) error {
	n, err := tx.Exec(ctx, `DELETE FROM billing_grants WHERE id = $1 AND owner_id = $2`, grant, owner)
	if err != nil {
		return fmt.Errorf("delete grant: %w", err)
	}
	if n == 0 {
		return fault.Missing("grant")
	}
	return nil
}
