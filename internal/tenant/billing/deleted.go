package billing

import (
	"context"
	"fmt"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/id"
	"slipway/internal/platform/job"
)

// settleDeleted ends the subscriptions of deleted accounts, invoices their remaining usage, and deletes their billing
// profiles. Final invoices stay, since they must be retained by law.
func (b *Billing) settleDeleted(ctx context.Context) error {
	rows, err := b.c.DB.Query(ctx, `
		SELECT p.owner_id FROM billing_profiles p
		WHERE NOT EXISTS (SELECT 1 FROM owner_standing o WHERE o.owner_id = p.owner_id)
		AND (p.profile <> '{}' OR EXISTS (SELECT 1 FROM billing_subscriptions s WHERE s.owner_id = p.owner_id AND s.status <> 'expired')
			OR EXISTS (SELECT 1 FROM billing_grants g WHERE g.owner_id = p.owner_id)
			OR EXISTS (SELECT 1 FROM billing_cards c WHERE c.owner_id = p.owner_id))
		AND NOT EXISTS (SELECT 1 FROM billing_invoices i WHERE i.owner_id = p.owner_id AND i.status = 'draft')
		ORDER BY p.owner_id LIMIT $1`, maxDue)
	gone, err := db.Collect(rows, err, func(s db.Scanner) (o id.Owner, err error) { return o, s.Scan(&o) })
	if err != nil {
		return fmt.Errorf("find deleted accounts: %w", err)
	}
	for _, o := range gone {
		if err := b.c.DB.Write(ctx, func(tx *db.Tx) error { return b.settleTx(ctx, tx, o) }); err != nil {
			return fmt.Errorf("settle deleted account %s: %w", o, err)
		}
	}
	return nil
}

// ForgetCustomer is the job that deletes a deleted owner's data at the provider.
type ForgetCustomer struct{ Customer string }

// Kind implements [job.Args].
func (ForgetCustomer) Kind() string { return "billing.forget" }

// settleTx ends a deleted account's subscription. Once its last invoice is final, it deletes the profile.
func (b *Billing) settleTx(ctx context.Context, tx *db.Tx, owner id.Owner) error {
	if _, err := b.EndTx(ctx, tx, owner, true); err == nil {
		return nil // a draft of the last invoice still needs the profile
	} else if !fault.Is(err, fault.NotFound) {
		return err
	}
	rows, err := tx.Query(ctx, `SELECT customer FROM billing_cards WHERE owner_id = $1 AND customer <> ''`, owner)
	customers, err := db.Collect(rows, err, func(s db.Scanner) (c string, err error) { return c, s.Scan(&c) })
	if err != nil {
		return fmt.Errorf("find customer: %w", err)
	}
	for _, c := range customers {
		if _, err := job.Enqueue(ctx, tx, ForgetCustomer{c}, job.Options{Unique: "billing.forget/" + c}); err != nil {
			return err
		}
	}
	for _, q := range []string{
		`DELETE FROM billing_cards WHERE owner_id = $1`,
		`DELETE FROM billing_setups WHERE owner_id = $1`,
		`UPDATE billing_profiles SET profile = '{}', vat_state = 'none', vat_checked_at = 0, vat_consultation = '',
			vat_by_vies = FALSE, vat_found = '{}' WHERE owner_id = $1`,
	} {
		if _, err := tx.Exec(ctx, q, owner); err != nil {
			return fmt.Errorf("forget customer: %w", err)
		}
	}
	return b.ForgetTx(ctx, tx, owner)
}
