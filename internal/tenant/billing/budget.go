package billing

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/id"
	"slipway/internal/tenant/billing/party"
	"slipway/internal/tenant/money"
)

// Budget returns how much an owner may spend per period on usage beyond the included amounts. It is zero by default.
func (b *Billing) Budget(ctx context.Context, r db.Reader, owner id.Owner) (m Balance, err error) {
	err = r.QueryRow(ctx, `SELECT currency, amount FROM billing_budgets WHERE owner_id = $1 ORDER BY from_at DESC, id DESC LIMIT 1`, owner).
		Scan(&m.Currency, &m.Amount)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return m, fmt.Errorf("read budget: %w", err)
	}
	return m, nil
}

// SetBudgetTx changes an owner's budget from now on. 0 removes it.
func (b *Billing) SetBudgetTx(ctx context.Context, tx *db.Tx, owner id.Owner, m Balance) error {
	if m.Amount != 0 {
		if err := checkMoney(m); err != nil {
			return err
		}
	} else if _, err := money.ParseCurrency(string(m.Currency)); err != nil {
		return fault.InvalidField("currency", err.Error(), string(m.Currency))
	}
	if err := party.LockTx(ctx, tx, owner); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `INSERT INTO billing_budgets (id, owner_id, amount, currency, from_at) VALUES ($1, $2, $3, $4, $5)`,
		db.NewID("bud"), owner, m.Amount, m.Currency, b.now()); err != nil {
		return fmt.Errorf("write budget: %w", err)
	}
	return nil
}

// budgetWithin returns the largest budget in force at any moment between from and to, since usage incurred under a
// higher budget is charged even if the budget was lowered later.
func (b *Billing) budgetWithin(
	ctx context.Context, r db.Reader, owner id.Owner, c money.Currency, from, to db.Time,
) (limit int64, err error) {
	rows, err := r.Query(ctx,
		`SELECT currency, amount, from_at FROM billing_budgets WHERE owner_id = $1 AND from_at < $2 ORDER BY from_at, id`, owner, to)
	type row struct {
		Balance
		from db.Time
	}
	list, err := db.Collect(rows, err, func(s db.Scanner) (x row, err error) { return x, s.Scan(&x.Currency, &x.Amount, &x.from) })
	if err != nil {
		return 0, fmt.Errorf("read budgets: %w", err)
	}
	for n, x := range list {
		ended := n+1 < len(list) && list[n+1].from <= from
		if !ended && x.Currency == c {
			limit = max(limit, x.Amount)
		}
	}
	return limit, nil
}
