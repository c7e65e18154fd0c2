package billing

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/id"
	"slipway/internal/platform/job"
	"slipway/internal/tenant/billing/party"
	"slipway/internal/tenant/money"
	"slipway/internal/tenant/webhook/event"
)

// Refund is a part of a card payment that is returned to the card.
type Refund struct {
	ID        string // "rfd_" and 26 characters
	Payment   PaymentID
	Owner     id.Owner
	Amount    int64
	Currency  money.Currency
	Status    string // pending, completed or failed
	Reference string
	Reason    string
	CreatedAt db.Time
}

const refundColumns = `id, payment_id, owner_id, amount, currency, status, reference, reason, created_at`

func scanRefund(r db.Scanner) (x Refund, err error) {
	return x, r.Scan(&x.ID, &x.Payment, &x.Owner, &x.Amount, &x.Currency, &x.Status, &x.Reference, &x.Reason, &x.CreatedAt)
}

func (b *Billing) refund(ctx context.Context, r db.Reader, name string) (Refund, error) {
	x, err := scanRefund(r.QueryRow(ctx, `SELECT `+refundColumns+` FROM billing_refunds WHERE id = $1 OR reference = $1 AND reference <> ''`,
		name))
	if errors.Is(err, sql.ErrNoRows) {
		return x, fault.Missing("refund")
	}
	if err != nil {
		return x, fmt.Errorf("read refund: %w", err)
	}
	return x, nil
}

// Refunds returns a payment's refunds, oldest first.
func (b *Billing) Refunds(ctx context.Context, r db.Reader, pay PaymentID) ([]Refund, error) {
	rows, err := r.Query(ctx, `SELECT `+refundColumns+` FROM billing_refunds WHERE payment_id = $1 ORDER BY id`, pay)
	list, err := db.Collect(rows, err, scanRefund)
	if err != nil {
		return nil, fmt.Errorf("list refunds: %w", err)
	}
	return list, nil
}

// PayBack is the job of one refund. It may run again at any point, since the refund's ID is the provider's idempotency
// key.
type PayBack struct{ Refund string }

// Kind implements [job.Args].
func (PayBack) Kind() string { return "billing.refund" }

// RefundInvoiceTx credits part of a paid invoice and returns it to the card that paid. An amount of 0 means the whole
// remaining payment. The refund is pending until the provider reports its outcome.
func (b *Billing) RefundInvoiceTx(ctx context.Context, tx *db.Tx, invoice string, amount int64, reason string) (Refund, error) {
	i, err := b.lockedTx(ctx, tx, invoice)
	if err != nil {
		return Refund{}, err
	}
	if amount < 0 || amount > money.Most {
		return Refund{}, fault.InvalidField("amount", "amount must be positive, in the currency's smallest unit", amount)
	}
	list, err := b.Payments(ctx, tx, i.Owner, i.ID, 1000)
	if err != nil {
		return Refund{}, err
	}
	for _, p := range list {
		left := p.Amount - p.Refunded
		if p.Status != paymentCompleted || p.Provider == Manual || left == 0 || b.provider == nil {
			continue
		}
		if amount == 0 {
			amount = left
		}
		if amount > left {
			return Refund{}, fault.New(fault.Conflict, "refund_exceeds_payment", "The refund exceeds the payment",
				p.Currency.Format(left)+" are left of it")
		}
		if _, err := b.CreditNoteTx(ctx, tx, InvoiceID(string(i.ID)), amount, reason); err != nil {
			return Refund{}, err
		}
		x := Refund{
			ID: db.NewID("rfd"), Payment: p.ID, Owner: p.Owner, Amount: amount, Currency: p.Currency, Status: "pending", Reason: reason,
			CreatedAt: b.now(),
		}
		if err := b.reserveTx(ctx, tx, x, p); err != nil {
			return x, err
		}
		_, err = job.Enqueue(ctx, tx, PayBack{x.ID}, job.Options{Unique: "billing.refund/" + x.ID, Share: string(x.Owner)})
		return x, err
	}
	return Refund{}, fault.New(fault.Conflict, "no_card_payment", "No payment by card is left to refund",
		"record a refund by bank transfer with its reference instead")
}

// reserveTx records a pending refund and takes it from the owner's credit.
func (b *Billing) reserveTx(ctx context.Context, tx *db.Tx, x Refund, p Payment) error {
	if _, err := tx.Exec(ctx, `INSERT INTO billing_refunds (`+refundColumns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
		x.ID, x.Payment, x.Owner, x.Amount, x.Currency, x.Status, x.Reference, x.Reason, x.CreatedAt); err != nil {
		return fmt.Errorf("write refund: %w", err)
	}
	if _, err := tx.Exec(ctx, `UPDATE billing_payments SET refunded = refunded + $2 WHERE id = $1`, p.ID, x.Amount); err != nil {
		return fmt.Errorf("write payment %s: %w", p.ID, err)
	}
	return b.postTx(ctx, tx, entry{
		key: x.ID, owner: x.Owner, currency: x.Currency, invoice: p.Invoice, reference: p.Reference,
		amounts: map[ledgerAccount]int64{credit: x.Amount, refunding: -x.Amount},
	})
}

// ProceedRefund sends a refund or polls its outcome. It returns the delay before the next poll, or 0 once the refund
// has ended.
func (b *Billing) ProceedRefund(ctx context.Context, refund string) (again time.Duration, err error) {
	x, err := b.refund(ctx, b.c.DB, refund)
	if err != nil || x.Status != "pending" || b.provider == nil {
		return 0, err
	}
	p, err := b.payment(ctx, b.c.DB, x.Payment)
	if err != nil {
		return 0, err
	}
	o, err := b.provider.Refund(ctx, RefundOrder{ID: x.ID, Payment: p.ID, Reference: p.Reference, Amount: x.Amount, Currency: x.Currency})
	if err != nil {
		b.c.Log.WarnContext(ctx, "outcome of refund unknown, will be retried", "refund", x.ID, "err", err)
		return time.Minute, nil
	}
	if err := b.ApplyRefund(ctx, o); err != nil {
		return 0, err
	}
	if x, err = b.refund(ctx, b.c.DB, refund); err != nil || x.Status != "pending" {
		return 0, err
	}
	return lookAfter, nil
}

// ApplyRefund records the provider's report of a refund, including one made in its dashboard. Repeated reports are
// harmless.
func (b *Billing) ApplyRefund(ctx context.Context, o RefundOutcome) error {
	return b.c.DB.Write(ctx, func(tx *db.Tx) error {
		p, err := b.paidWith(ctx, tx, o.Payment)
		if err != nil || p.ID == "" {
			return err
		}
		if err := party.LockTx(ctx, tx, p.Owner); err != nil {
			return err
		}
		if p, err = b.payment(ctx, tx, p.ID); err != nil {
			return err
		}
		name := o.ID
		if name == "" {
			name = o.Reference
		}
		x, err := b.refund(ctx, tx, name)
		if fault.Is(err, fault.NotFound) {
			x, err = b.madeElsewhereTx(ctx, tx, p, o)
		}
		if err != nil || x.Status == o.Status && x.Reference == o.Reference {
			return err
		}
		return b.settleRefundTx(ctx, tx, x, p, o)
	})
}

// madeElsewhereTx records a refund made in the provider's dashboard. It is taken from the owner's credit, which may
// become negative.
func (b *Billing) madeElsewhereTx(ctx context.Context, tx *db.Tx, p Payment, o RefundOutcome) (Refund, error) {
	x := Refund{
		ID: db.NewID("rfd"), Payment: p.ID, Owner: p.Owner, Amount: o.Amount, Currency: p.Currency, Status: "pending", Reference: o.Reference,
		Reason: "made at the payment provider", CreatedAt: b.now(),
	}
	if o.Amount <= 0 || o.Currency != p.Currency || p.Refunded+o.Amount > p.Amount {
		return x, fmt.Errorf("refund %s of %s exceeds the payment %s", o.Reference, o.Currency.Format(o.Amount), p.ID)
	}
	return x, b.reserveTx(ctx, tx, x, p)
}

func (b *Billing) settleRefundTx(ctx context.Context, tx *db.Tx, x Refund, p Payment, o RefundOutcome) error {
	if _, err := tx.Exec(ctx, `UPDATE billing_refunds SET status = $2, reference = $3 WHERE id = $1`, x.ID, o.Status,
		o.Reference); err != nil {
		return fmt.Errorf("write refund %s: %w", x.ID, err)
	}
	if x.Status == o.Status {
		return nil
	}
	e := entry{owner: x.Owner, currency: x.Currency, invoice: p.Invoice, reference: o.Reference}
	switch {
	case o.Status == "completed" && x.Status == "pending":
		e.key, e.amounts = x.ID+"/paid", map[ledgerAccount]int64{refunding: x.Amount, cash: -x.Amount}
	case o.Status == "failed" && x.Status == "pending":
		e.key, e.amounts = x.ID+"/failed", map[ledgerAccount]int64{refunding: x.Amount, credit: -x.Amount}
	case o.Status == "failed" && x.Status == "completed": // the bank returned it
		e.key, e.amounts = x.ID+"/returned", map[ledgerAccount]int64{cash: x.Amount, credit: -x.Amount}
	default:
		return nil
	}
	if err := b.postTx(ctx, tx, e); err != nil {
		return err
	}
	if o.Status == "failed" {
		_, err := tx.Exec(ctx, `UPDATE billing_payments SET refunded = refunded - $2 WHERE id = $1`, p.ID, x.Amount)
		return err
	}
	i, err := b.InvoiceOf(ctx, tx, string(p.Invoice))
	if err != nil {
		return err
	}
	paid := p.event(i)
	paid.Status, paid.Moved = "refunded", x.Amount
	tx.Notify(x.Owner.Topic())
	return b.emitTx(ctx, tx, p.Owner, x.ID+":refunded", event.PaymentRefunded(paid))
}

// paidWith returns the payment with the provider's reference, or an empty one.
func (b *Billing) paidWith(ctx context.Context, r db.Reader, reference string) (Payment, error) {
	p, err := scanPayment(r.QueryRow(ctx, `
		SELECT `+paymentColumns+` FROM billing_payments WHERE provider = $1 AND reference = $2 AND reference <> '' AND status = 'completed'`,
		b.provider.Name(), reference))
	if errors.Is(err, sql.ErrNoRows) {
		return Payment{}, nil
	}
	if err != nil {
		return p, fmt.Errorf("find payment: %w", err)
	}
	return p, nil
}

// ApplyDispute records that a bank reversed a payment, or the dispute's result. The invoice is open again until the
// dispute is won or the invoice is paid otherwise, and its card isn't charged any more. Repeated and reordered reports
// are harmless.
func (b *Billing) ApplyDispute(ctx context.Context, d Dispute) error {
	return b.c.DB.Write(ctx, func(tx *db.Tx) error {
		p, err := b.paidWith(ctx, tx, d.Payment)
		if err != nil || p.ID == "" {
			return err
		}
		if err := party.LockTx(ctx, tx, p.Owner); err != nil {
			return err
		}
		i, err := b.InvoiceOf(ctx, tx, string(p.Invoice))
		if err != nil {
			return err
		}
		var was string
		err = tx.QueryRow(ctx, `SELECT status FROM billing_disputes WHERE reference = $1`, d.Reference).Scan(&was)
		if errors.Is(err, sql.ErrNoRows) {
			was, err = "open", b.openDisputeTx(ctx, tx, i, p, d)
		}
		if err != nil || was == d.Status || was != "open" {
			return err
		}
		if _, err := tx.Exec(ctx, `UPDATE billing_disputes SET status = $2 WHERE reference = $1`, d.Reference, d.Status); err != nil {
			return fmt.Errorf("write dispute: %w", err)
		}
		if d.Status == "won" {
			if i, err = b.InvoiceOf(ctx, tx, string(p.Invoice)); err != nil {
				return err
			}
			used := min(i.Remaining(), d.Amount)
			if err := b.postTx(ctx, tx, entry{
				key: d.Reference + "/won", owner: i.Owner, currency: i.Currency, invoice: i.ID, reference: d.Reference,
				amounts: map[ledgerAccount]int64{cash: d.Amount, receivable: -used, credit: used - d.Amount},
			}); err != nil {
				return err
			}
			if used > 0 {
				if err := b.reduceTx(ctx, tx, i, used, 0, Paid); err != nil {
					return err
				}
			}
		}
		return b.disputedTx(ctx, tx, i, p, d)
	})
}

// openDisputeTx reverses the payment in the ledger and reopens the invoice.
func (b *Billing) openDisputeTx(ctx context.Context, tx *db.Tx, i Invoice, p Payment, d Dispute) error {
	if d.Amount <= 0 || d.Amount > p.Amount || d.Currency != p.Currency {
		return fmt.Errorf("dispute %s of %s exceeds the payment %s", d.Reference, d.Currency.Format(d.Amount), p.ID)
	}
	if _, err := tx.Exec(ctx, `INSERT INTO billing_disputes (reference, payment_id, owner_id, amount, currency, status, created_at)
		VALUES ($1, $2, $3, $4, $5, 'open', $6)`, d.Reference, p.ID, p.Owner, d.Amount, d.Currency, b.now()); err != nil {
		return fmt.Errorf("write dispute: %w", err)
	}
	back := min(d.Amount, i.Paid) // the rest had become the owner's credit
	if i.Status != Paid && i.Status != Open {
		back = 0
	}
	if err := b.postTx(ctx, tx, entry{
		key: d.Reference, owner: i.Owner, currency: i.Currency, invoice: i.ID, reference: d.Reference,
		amounts: map[ledgerAccount]int64{cash: -d.Amount, receivable: back, credit: d.Amount - back},
	}); err != nil {
		return err
	}
	if back > 0 {
		settings, err := b.Settings(ctx, tx, i.seller)
		if err != nil {
			return err
		}
		due := b.now().Add(time.Duration(settings.DueDays) * day)
		if _, err := tx.Exec(ctx, `UPDATE billing_invoices SET paid = paid - $2, status = 'open', step = 0, due_at = $3, next_at = $3
			WHERE id = $1`, i.ID, back, due); err != nil {
			return fmt.Errorf("write invoice %s: %w", i.ID, err)
		}
	}
	k, err := b.Card(ctx, tx, p.Owner, p.Currency)
	if err != nil {
		return err
	}
	if k.Method != "" && k.Declined == "" {
		k.Declined = "disputed"
		if err := b.writeCardTx(ctx, tx, p.Owner, p.Currency, k); err != nil {
			return err
		}
	}
	if err := b.mailTx(ctx, tx, p.Owner, "Payment disputed: invoice "+i.Number,
		fmt.Sprintf("Your bank reversed the payment of %s for invoice %s, so the invoice is open again.", d.Currency.Format(d.Amount), i.Number),
		"/account/invoices/"+string(i.ID)); err != nil {
		return err
	}
	first := d
	first.Status = "open"
	return b.disputedTx(ctx, tx, i, p, first)
}

func (b *Billing) disputedTx(ctx context.Context, tx *db.Tx, i Invoice, p Payment, d Dispute) error {
	paid := p.event(i)
	paid.Status, paid.Moved, paid.Dispute = "disputed", d.Amount, d.Status
	return b.emitTx(ctx, tx, p.Owner, d.Reference+":"+d.Status, event.PaymentDisputed(paid))
}
