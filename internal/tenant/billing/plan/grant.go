package plan

import (
	"context"
	"fmt"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/id"
	"slipway/internal/platform/text"
	"slipway/internal/tenant/billing/party"
	"slipway/internal/tenant/limits"
)

// Grant overrides one limit for one owner, as an add-on or a favor.
type Grant struct {
	ID     string // "grn_" and 26 characters
	Name   limits.Name
	Value  int64
	From   db.Time // Optional: defaults to now.
	Until  db.Time // Optional: 0 means no end.
	Reason string
}

// maxGrants caps the grants per owner.
const maxGrants = 100

// GrantTx adds a grant.
func (p *Plans) GrantTx(ctx context.Context, tx *db.Tx, owner id.Owner, g Grant) (Grant, error) {
	switch {
	case !limits.Known(g.Name):
		return g, fault.InvalidField("name", fmt.Sprintf("%q is not a limit", g.Name), string(g.Name))
	case g.Value < 0:
		return g, fault.InvalidField("value", "value must be at least 0", g.Value)
	case g.Name.Check(g.Value) != nil:
		return g, fault.InvalidField("value", g.Name.Check(g.Value).Error(), g.Value)
	case g.Reason == "" || !text.Fits(g.Reason, 1, 200):
		return g, fault.InvalidField("reason", "reason must have 1 to 200 characters on one line", g.Reason)
	case g.Until != 0 && g.Until <= max(g.From, p.clock.Now()):
		return g, fault.InvalidField("until", "until must be in the future and after from", g.Until.String())
	}
	if err := party.LockTx(ctx, tx, owner); err != nil {
		return g, err
	}
	if g.From == 0 {
		g.From = p.clock.Now()
	}
	var n int
	if err := tx.QueryRow(ctx, `SELECT count(*) FROM billing_grants WHERE owner_id = $1`, owner).Scan(&n); err != nil {
		return g, fmt.Errorf("count grants: %w", err)
	}
	if n >= maxGrants {
		return g, fault.New(fault.Conflict, "too_many_grants", "The owner has too many grants",
			fmt.Sprintf("the limit is %d; delete some", maxGrants))
	}
	g.ID = db.NewID("grn")
	if _, err := tx.Exec(ctx, `
		INSERT INTO billing_grants (id, owner_id, name, value, from_at, until_at, reason, created_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
		g.ID, owner, g.Name, g.Value, g.From, g.Until, g.Reason, p.clock.Now()); err != nil {
		return g, fmt.Errorf("write grant: %w", err)
	}
	return g, nil
}

func (p *Plans) Grants(ctx context.Context, r db.Reader, owner id.Owner) ([]Grant, error) {
	rows, err := r.Query(ctx, `SELECT id, name, value, from_at, until_at, reason FROM billing_grants WHERE owner_id = $1 ORDER BY id`, owner)
	list, err := db.Collect(rows, err, func(s db.Scanner) (g Grant, err error) {
		return g, s.Scan(&g.ID, &g.Name, &g.Value, &g.From, &g.Until, &g.Reason)
	})
	if err != nil {
		return nil, fmt.Errorf("list grants: %w", err)
	}
	return list, nil
}

func (p *Plans) RevokeTx(ctx context.Context, tx *db.Tx, owner id.Owner, grant string) error {
	n, err := tx.Exec(ctx, `DELETE FROM billing_grants WHERE id = $1 AND owner_id = $2`, grant, owner)
	if err != nil {
		return fmt.Errorf("delete grant: %w", err)
	}
	if n == 0 {
		return fault.Missing("grant")
	}
	return nil
}

// ForgetTx deletes all grants of a deleted owner.
func (p *Plans) ForgetTx(ctx context.Context, tx *db.Tx, owner id.Owner) error {
	if _, err := tx.Exec(ctx, `DELETE FROM billing_grants WHERE owner_id = $1`, owner); err != nil {
		return fmt.Errorf("delete grants: %w", err)
	}
	return nil
}
