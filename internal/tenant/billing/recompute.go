package billing

import (
	"bytes"
	"context"
	"fmt"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
)

// Recomputed is the result of [Billing.Recompute].
type Recomputed struct {
	Invoice Invoice
	Same    bool // the document equals the stored one byte for byte
}

// Recompute computes a final invoice again from its plan versions and usage.
func (b *Billing) Recompute(ctx context.Context, r db.Reader, name string) (Recomputed, error) {
	i, err := b.InvoiceOf(ctx, r, name)
	if err != nil {
		return Recomputed{}, err
	}
	f := i.basis.Frozen
	if f == nil {
		return Recomputed{}, fault.New(fault.Conflict, "invoice_not_final", "The invoice is a draft",
			"drafts are computed again when they become final")
	}
	c, err := b.compute(ctx, r, i.Owner, i.basis, f.tax())
	if err != nil {
		return Recomputed{}, err
	}
	says, err := i.write(c)
	if err != nil {
		return Recomputed{}, err
	}
	return Recomputed{i, bytes.Equal(says, []byte(i.document)) && digestOf(says) == i.digest}, nil
}

// Problems checks the books' invariants: entries sum to 0, numbers have no gaps, and invoices match their payments.
func (b *Billing) Problems(ctx context.Context) (found []string, err error) {
	err = b.c.DB.Snapshot(ctx, func(r db.Reader) error {
		for _, x := range []struct{ text, query string }{
			{"transactions that don't sum up to 0", `SELECT txn_key FROM billing_ledger GROUP BY txn_key, currency HAVING SUM(amount) <> 0`},
			{"series of numbers with gaps", `
				SELECT n.series || n.year FROM billing_numbers n
				WHERE n.last <> (SELECT count(*) FROM billing_invoices i
				WHERE i.seller_id = n.seller_id AND i.number LIKE n.series || n.year || '-%')`},
			{
				"invoices whose sums are wrong",
				`SELECT id FROM billing_invoices WHERE number <> '' AND (net + tax <> total OR paid + credited > total AND corrects = '')`,
			},
			{"invoices that are paid more or less than they say", `
				SELECT i.id FROM billing_invoices i WHERE i.number <> '' AND i.corrects = ''
				AND i.total - i.paid - i.credited - CASE WHEN i.status = 'uncollectible' THEN i.total - i.paid - i.credited ELSE 0 END
					<> (SELECT COALESCE(SUM(l.amount), 0) FROM billing_ledger l WHERE l.invoice_id = i.id AND l.account = 'receivable')`},
			{"payments that the ledger doesn't have", `
				SELECT p.id FROM billing_payments p WHERE p.status = 'completed'
				AND p.amount <> (SELECT COALESCE(SUM(l.amount), 0) FROM billing_ledger l WHERE l.txn_key = p.id AND l.account = 'cash')`},
		} {
			rows, err := r.Query(ctx, x.query)
			list, err := db.Collect(rows, err, func(s db.Scanner) (name string, err error) { return name, s.Scan(&name) })
			if err != nil {
				return fmt.Errorf("look for %s: %w", x.text, err)
			}
			if len(list) > 0 {
				found = append(found, fmt.Sprintf("%s: %v", x.text, list[:min(10, len(list))]))
			}
		}
		return nil
	})
	return found, err
}

// Numbers returns the numbers of all final invoices and credit notes in order.
func (b *Billing) Numbers(ctx context.Context, r db.Reader) ([]string, error) {
	rows, err := r.Query(ctx, `SELECT number FROM billing_invoices WHERE number <> '' ORDER BY number`)
	list, err := db.Collect(rows, err, func(s db.Scanner) (n string, err error) { return n, s.Scan(&n) })
	if err != nil {
		return nil, fmt.Errorf("list numbers: %w", err)
	}
	return list, nil
}
