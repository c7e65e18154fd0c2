package billing

import (
	"context"
	"fmt"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/id"
	"slipway/internal/platform/text"
	"slipway/internal/tenant/money"
	"slipway/internal/tenant/webhook/event"
)

// PaymentID names a payment: "pay_" and 26 characters.
type PaymentID string

// Manual is the provider of payments without one: the owner transfers money and the operator records it.
const Manual = "manual"

const (
	paymentCompleted = "completed"
	paymentFailed    = "failed"
)

// NotReceived is the failure code of a bank transfer that was missing on the due date.
const NotReceived = "not_received"

// Payment is one attempt to pay an invoice.
type Payment struct {
	ID            PaymentID
	Owner         id.Owner
	Invoice       InvoiceID
	Subscription  SubscriptionID
	Provider      string
	Attempt       int64
	Amount        int64
	Currency      money.Currency
	Status        string
	FailureCode   string
	Reference     string
	ReceivedAt    db.Time
	NextAttemptAt db.Time
	CreatedAt     db.Time
	Refunded      int64 // includes refunds in progress
	// Card payments only: the values sent to the provider.
	customer, method, session string
	sent                      db.Time
}

const paymentColumns = `id, owner_id, invoice_id, subscription_id, provider, attempt, amount, currency, status, failure_code, reference, received_at,
	next_attempt_at, created_at, refunded, customer, method, session, sent_at`

func scanPayment(r db.Scanner) (p Payment, err error) {
	return p, r.Scan(&p.ID, &p.Owner, &p.Invoice, &p.Subscription, &p.Provider, &p.Attempt, &p.Amount, &p.Currency, &p.Status, &p.FailureCode,
		&p.Reference, &p.ReceivedAt, &p.NextAttemptAt, &p.CreatedAt, &p.Refunded, &p.customer, &p.method, &p.session, &p.sent)
}

// Payments returns up to limit of the owner's payments, newest first. An empty invoice selects those of all invoices.
func (b *Billing) Payments(ctx context.Context, r db.Reader, owner id.Owner, invoice InvoiceID, limit int) ([]Payment, error) {
	rows, err := r.Query(ctx, `
		SELECT `+paymentColumns+` FROM billing_payments WHERE owner_id = $1 AND ($2 = '' OR invoice_id = $2)
		ORDER BY created_at DESC, id DESC LIMIT $3`, owner, string(invoice), limit)
	list, err := db.Collect(rows, err, scanPayment)
	if err != nil {
		return nil, fmt.Errorf("list payments: %w", err)
	}
	return list, nil
}

// Received is money received outside the provider, such as a bank transfer.
type Received struct {
	Amount    int64
	Reference string  // the bank's unique reference
	At        db.Time // Optional: defaults to now
}

var errRecorded = fault.New(fault.Conflict, "already_recorded", "This transfer is recorded already",
	"each transfer has a reference of its own")

func checkReference(s string) error {
	if s == "" || !text.Fits(s, 1, 140) {
		return fault.InvalidField("reference", "reference must have 1 to 140 characters on one line: the bank's reference of the transfer", s)
	}
	return nil
}

// RecordTx records money received for an invoice. An excess becomes the owner's credit; a shortfall stays due.
func (b *Billing) RecordTx(ctx context.Context, tx *db.Tx, invoice string, m Received) (Payment, error) {
	if m.Amount <= 0 || m.Amount > money.Most {
		return Payment{}, fault.InvalidField("amount", fmt.Sprintf("amount must be 1 to %d, in the currency's smallest unit", int64(money.Most)),
			m.Amount)
	}
	if err := checkReference(m.Reference); err != nil {
		return Payment{}, err
	}
	if m.At > b.now().Add(day) || m.At < 0 {
		return Payment{}, fault.InvalidField("receivedAt", "receivedAt must not be in the future", m.At.String())
	}
	i, err := b.lockedTx(ctx, tx, invoice)
	if err != nil {
		return Payment{}, err
	}
	if i.Status != Open && i.Status != Paid {
		return Payment{}, fault.New(fault.Conflict, "invoice_not_open", "The invoice can't be paid",
			"its status is "+string(i.Status)+"; payments are for open invoices")
	}
	if m.At == 0 {
		m.At = b.now()
	}
	if open, _, err := b.attempts(ctx, tx, i.ID); err != nil {
		return Payment{}, err
	} else if open { // the open payment could pay it a second time
		return Payment{}, errPaymentOpen
	}
	p := Payment{Provider: Manual, Amount: m.Amount, Status: paymentCompleted, Reference: m.Reference, ReceivedAt: m.At}
	if p, err = b.attemptTx(ctx, tx, i, p); err != nil {
		return p, err
	}
	return p, b.receivedTx(ctx, tx, i, p)
}

// reduceTx adds paid or credited amounts to an invoice and sets the status last once nothing remains.
func (b *Billing) reduceTx(ctx context.Context, tx *db.Tx, i Invoice, paid, credited int64, last InvoiceStatus) error {
	i.Paid, i.Credited = i.Paid+paid, i.Credited+credited
	if i.Remaining() > 0 {
		last = Open
	}
	if _, err := tx.Exec(ctx, `
		UPDATE billing_invoices SET paid = $2, credited = $3, status = $4, next_at = CASE WHEN $4 = 'open' THEN next_at ELSE 0 END WHERE id = $1`,
		i.ID, i.Paid, i.Credited, last); err != nil {
		return fmt.Errorf("write invoice %s: %w", i.ID, err)
	}
	tx.Notify(i.Owner.Topic())
	if last == Open {
		return nil
	}
	return b.settledTx(ctx, tx, i.Subscription)
}

// attemptTx inserts a payment of an invoice.
func (b *Billing) attemptTx(ctx context.Context, tx *db.Tx, i Invoice, p Payment) (Payment, error) {
	p.ID, p.Owner, p.Invoice, p.Subscription = db.ID[PaymentID]("pay"), i.Owner, i.ID, i.Subscription
	p.Currency, p.CreatedAt = i.Currency, b.now()
	if err := tx.QueryRow(ctx, `SELECT COALESCE(MAX(attempt), 0) + 1 FROM billing_payments WHERE invoice_id = $1`, i.ID).
		Scan(&p.Attempt); err != nil {
		return p, fmt.Errorf("count attempts: %w", err)
	}
	n, err := tx.Exec(ctx, `
		INSERT INTO billing_payments (`+paymentColumns+`)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)
		ON CONFLICT (provider, reference) WHERE reference <> '' DO NOTHING`,
		p.ID, p.Owner, p.Invoice, p.Subscription, p.Provider, p.Attempt, p.Amount, p.Currency, p.Status, p.FailureCode, p.Reference, p.ReceivedAt,
		p.NextAttemptAt, p.CreatedAt, p.Refunded, p.customer, p.method, p.session, p.sent)
	if err != nil {
		return p, fmt.Errorf("write payment: %w", err)
	}
	if n == 0 {
		return p, errRecorded
	}
	return p, nil
}

// event returns the payment as webhooks show it.
func (p Payment) event(i Invoice) event.Payment {
	return event.Payment{
		ID: string(p.ID), Amount: p.Amount, Currency: string(p.Currency), Status: p.Status, Invoice: string(i.ID), InvoiceNumber: i.Number,
		Subscription: string(p.Subscription), Provider: p.Provider, Attempt: p.Attempt, FailureCode: p.FailureCode,
		NextAttemptAt: p.NextAttemptAt,
	}
}

// remindAfter lists the days after the due date on which the owner is reminded.
var remindAfter = []int64{0, 3, 7}

// remindTx performs the due step of dunning. On the due date the payment fails for now and the subscription becomes
// past due. At the end of the grace period the payment fails for good and the subscription is paused. If charged is
// true, the card payments already failed and no failure is recorded.
func (b *Billing) remindTx(ctx context.Context, tx *db.Tx, i Invoice, charged bool) error {
	settings, err := b.Settings(ctx, tx, i.seller)
	if err != nil {
		return err
	}
	grace := i.DueAt.Add(time.Duration(settings.GraceDays) * day)
	last := int64(len(remindAfter)) // the end of the grace period
	at := func(step int64) db.Time {
		if step < last {
			if t := i.DueAt.Add(time.Duration(remindAfter[step]) * day); t < grace || step == 0 {
				return t
			}
		}
		return grace
	}
	fail := func(next db.Time) error {
		if charged {
			return nil
		}
		p, err := b.attemptTx(ctx, tx, i,
			Payment{Provider: Manual, Amount: i.Remaining(), Status: paymentFailed, FailureCode: NotReceived, NextAttemptAt: next})
		if err != nil {
			return err
		}
		return b.emitTx(ctx, tx, i.Owner, string(p.ID)+":failed", event.PaymentFailed(p.event(i)))
	}
	for ; i.step <= last && at(i.step) <= b.now(); i.step++ {
		fresh, err := b.onceTx(ctx, tx, fmt.Sprintf("%s:step:%d", i.ID, i.step))
		if err != nil {
			return err
		}
		if !fresh {
			continue
		}
		if i.step == 0 {
			if err := b.unpaidTx(ctx, tx, i.Owner, i.Subscription, i.DueAt); err != nil {
				return err
			}
			err = fail(grace)
		} else if i.step == last {
			err = fail(0)
		}
		if err != nil {
			return err
		}
		if at(i.step) == grace && i.step > 0 && i.step < last {
			continue // the last step covers it
		}
		if err := b.mailTx(ctx, tx, i.Owner, "Reminder: invoice "+i.Number+" is overdue",
			fmt.Sprintf("%s of invoice %s were due on %s and have not arrived. Sites are paused on %s if the invoice is still open; nothing is "+
				"deleted.",
				i.Currency.Format(i.Remaining()), i.Number, i.DueAt.Time().UTC().Format(time.DateOnly), grace.Time().UTC().Format(time.DateOnly)),
			"/account/invoices/"+string(i.ID)); err != nil {
			return err
		}
	}
	next := db.Time(0)
	if i.step <= last {
		next = at(i.step)
	}
	if _, err := tx.Exec(ctx, `UPDATE billing_invoices SET step = $2, next_at = $3 WHERE id = $1`, i.ID, i.step, next); err != nil {
		return fmt.Errorf("write invoice %s: %w", i.ID, err)
	}
	return nil
}
