package billing

import (
	"context"
	"encoding/json"
	"fmt"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/text"
	"slipway/internal/tenant/billing/document"
	"slipway/internal/tenant/billing/party"
	"slipway/internal/tenant/money"
)

// correction is the part of an invoice that a credit note cancels.
type correction struct {
	Invoice  InvoiceID
	Number   string
	Currency money.Currency
	Net, Tax int64
	Country  string
	Points   int64
	Reason   string
}

func (x correction) compute(c *computed) (err error) {
	c.Currency, c.Net, c.Due = x.Currency, -x.Net, -x.Tax
	c.Tax = party.Tax{Country: x.Country, BasisPoints: x.Points, Note: c.Tax.Note}
	c.Lines = []document.Line{{Kind: document.Credit, Text: "Correction of invoice " + x.Number + ": " + x.Reason, Amount: -x.Net}}
	c.Total, err = money.Add(c.Net, c.Due)
	return err
}

// CreditNoteTx cancels part of a final invoice, tax included, or all of it if amount is 0. It reduces the unpaid amount
// first; the rest becomes the owner's credit.
func (b *Billing) CreditNoteTx(ctx context.Context, tx *db.Tx, invoice InvoiceID, amount int64, reason string) (Invoice, error) {
	if reason == "" || !text.Fits(reason, 1, 200) {
		return Invoice{}, fault.InvalidField("reason", "reason must have 1 to 200 characters on one line", reason)
	}
	i, err := b.lockedTx(ctx, tx, string(invoice))
	if err != nil {
		return i, err
	}
	if i.Status != Open && i.Status != Paid || i.Corrects != "" {
		return i, fault.New(fault.Conflict, "invoice_not_open", "The invoice can't be corrected",
			"its status is "+string(i.Status)+"; credit notes are for open and paid invoices")
	}
	var done, doneNet int64
	if err := tx.QueryRow(ctx,
		`SELECT CAST(-COALESCE(SUM(total), 0) AS BIGINT), CAST(-COALESCE(SUM(net), 0) AS BIGINT) FROM billing_invoices WHERE corrects = $1`,
		i.ID).Scan(&done, &doneNet); err != nil {
		return i, fmt.Errorf("read credit notes: %w", err)
	}
	left := i.Total - done
	if amount == 0 {
		amount = left
	}
	if amount <= 0 || amount > left {
		return i, fault.New(fault.Conflict, "credit_exceeds_invoice", "The credit note exceeds the invoice",
			fmt.Sprintf("%s are left of it", i.Currency.Format(left)))
	}
	x := &correction{Invoice: i.ID, Number: i.Number, Currency: i.Currency, Reason: reason}
	t := i.basis.Frozen.tax()
	x.Country, x.Points = t.Country, t.BasisPoints
	if amount == left {
		x.Net = i.Net - doneNet // takes up rounding differences of earlier notes
	} else if x.Net, err = money.Share(amount, i.Net, i.Total); err != nil {
		return i, err
	}
	x.Tax = amount - x.Net
	now := b.now()
	note := Invoice{
		ID: db.ID[InvoiceID]("crn"), Owner: i.Owner, Subscription: i.Subscription, Corrects: i.ID, Status: Issued, Currency: i.Currency,
		CreatedAt: now, FinalizedAt: now, seller: i.seller,
	}
	note.cause = "credit:" + string(note.ID)
	f := *i.basis.Frozen
	f.FinalizedAt, f.DueAt, f.Credit = now, 0, 0
	if f.Number, err = b.numberTx(ctx, tx, i.seller, "CN-"); err != nil {
		return note, err
	}
	note.basis = basis{Credit: x, Frozen: &f}
	c, err := b.compute(ctx, tx, i.Owner, note.basis, t)
	if err != nil {
		return note, err
	}
	note.Number, note.Net, note.Tax, note.Total = f.Number, c.Net, c.Due, c.Total
	text, err := json.Marshal(note.basis)
	if err != nil {
		return note, err
	}
	if _, err := tx.Exec(ctx, `
		INSERT INTO billing_invoices (id, seller_id, owner_id, subscription_id, cause, corrects, status, number, currency, net, tax, total, paid,
			credited, basis, document, digest, held, step, next_at, created_at, finalized_at, due_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, '', $8, 0, 0, 0, 0, 0, $9, '', '', FALSE, 0, 0, $10, 0, 0)`,
		note.ID, note.seller, note.Owner, note.Subscription, note.cause, note.Corrects, note.Status, note.Currency, string(text),
		now); err != nil {
		return note, fmt.Errorf("write credit note: %w", err)
	}
	if err := b.issueTx(ctx, tx, note, c, 0); err != nil {
		return note, err
	}
	unpaid := min(i.Remaining(), amount)
	if err := b.postTx(ctx, tx, entry{
		key: string(note.ID), owner: i.Owner, currency: i.Currency, invoice: i.ID, reference: note.Number,
		amounts: map[ledgerAccount]int64{revenue: x.Net, taxes: x.Tax, receivable: -unpaid, credit: unpaid - amount},
	}); err != nil {
		return note, err
	}
	if unpaid == 0 {
		return note, nil
	}
	last := Paid
	if i.Paid == 0 {
		last = Void
	}
	return note, b.reduceTx(ctx, tx, i, 0, unpaid, last)
}

// WriteOffTx gives up the invoice's remaining amount.
func (b *Billing) WriteOffTx(ctx context.Context, tx *db.Tx, invoice string) error {
	i, err := b.lockedTx(ctx, tx, invoice)
	if err != nil {
		return err
	}
	left := i.Remaining()
	if i.Status != Open || left <= 0 {
		return fault.New(fault.Conflict, "invoice_not_open", "Nothing is left to pay of the invoice", "its status is "+string(i.Status))
	}
	if err := b.postTx(ctx, tx, entry{
		key: string(i.ID) + "/write_off", owner: i.Owner, currency: i.Currency, invoice: i.ID, reference: i.Number,
		amounts: map[ledgerAccount]int64{writeOff: left, receivable: -left},
	}); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `UPDATE billing_invoices SET status = 'uncollectible', next_at = 0 WHERE id = $1`, i.ID); err != nil {
		return fmt.Errorf("write invoice %s: %w", i.ID, err)
	}
	return b.settledTx(ctx, tx, i.Subscription)
}
