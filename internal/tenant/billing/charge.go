package billing

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fair"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/id"
	"slipway/internal/platform/job"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/billing/party"
	"slipway/internal/tenant/money"
	"slipway/internal/tenant/webhook/event"
)

// The statuses of payments in progress. An invoice has at most one such payment.
const (
	PaymentPending        = "pending"         // to be sent
	PaymentProcessing     = "processing"      // accepted, not settled yet
	PaymentRequiresAction = "requires_action" // waits for the owner on the provider's page
	PaymentUnknown        = "unknown"         // sent, but no answer came
)

// chargeDays lists the days after finalization on which a failing card is charged.
var chargeDays = []int64{0, 3, 5, 7, 14}

const (
	repeatWithin = 23 * hour        // a repeated idempotency key has one effect for this long; Stripe keeps keys for 24 hours
	pageOpen     = 35 * time.Minute // how long a payment page stays open; Stripe's minimum is 30 minutes
	lookAfter    = 10 * time.Minute
)

// Pay is the job of one card payment: it sends the payment and polls until it has ended. It may run again at any point,
// since the payment's ID is the provider's idempotency key.
type Pay struct{ Payment PaymentID }

// Kind implements [job.Args].
func (Pay) Kind() string { return "billing.pay" }

// dunTx performs what is due for an open invoice: it charges the card or reminds the owner.
func (b *Billing) dunTx(ctx context.Context, tx *db.Tx, i Invoice) error {
	on, err := b.Cards(ctx, tx)
	if err != nil {
		return err
	}
	open, last, err := b.attempts(ctx, tx, i.ID)
	if err != nil {
		return err
	}
	if open { // its outcome decides
		return b.laterTx(ctx, tx, i.ID, b.now().Add(day))
	}
	var k Card
	if on {
		if k, err = b.Card(ctx, tx, i.Owner, i.Currency); err != nil {
			return err
		}
	}
	if !k.Usable() {
		return b.remindTx(ctx, tx, i, last > 0)
	}
	if !b.provider.Chargeable(i.Currency, i.Remaining()) {
		return b.carryTx(ctx, tx, i)
	}
	due := chargeAt(i, last)
	if k.since > last {
		due = b.now() // try a new card at once
	}
	if due == 0 || due > b.now() {
		return b.laterTx(ctx, tx, i.ID, due)
	}
	if err := b.laterTx(ctx, tx, i.ID, b.now().Add(day)); err != nil {
		return err
	}
	_, err = b.sendTx(ctx, tx, i, Payment{Status: PaymentPending, customer: k.Customer, method: k.Method}, b.now())
	return err
}

// charged reports whether an amount is charged to the owner's card, or carried over to the next invoice because it is
// below the provider's minimum. Both are false without a usable card.
func (b *Billing) charged(
	ctx context.Context, r db.Reader, owner id.Owner, c money.Currency, amount int64,
) (charged, carried bool, err error) {
	on, err := b.Cards(ctx, r)
	if err != nil || !on || amount == 0 {
		return false, false, err
	}
	k, err := b.Card(ctx, r, owner, c)
	if err != nil || !k.Usable() {
		return false, false, err
	}
	charged = b.provider.Chargeable(c, amount)
	return charged, !charged, nil
}

// carryTx moves an invoice's remaining amount, too small to charge, to the next invoice by taking it from the owner's
// credit, which becomes negative.
func (b *Billing) carryTx(ctx context.Context, tx *db.Tx, i Invoice) error {
	left := i.Remaining()
	if err := b.postTx(ctx, tx, entry{
		key: db.NewID("crd"), owner: i.Owner, currency: i.Currency, invoice: i.ID, reference: i.Number,
		amounts: map[ledgerAccount]int64{credit: left, receivable: -left},
	}); err != nil {
		return err
	}
	return b.reduceTx(ctx, tx, i, left, 0, Paid)
}

// chargeAt returns the next charge after one at last, or 0 after the final attempt.
func chargeAt(i Invoice, last db.Time) db.Time {
	for _, d := range chargeDays {
		if at := i.FinalizedAt.Add(time.Duration(d) * day); at > last {
			return at
		}
	}
	return 0
}

// attempts reports whether a payment of the invoice is in progress, and when its card was last charged.
func (b *Billing) attempts(ctx context.Context, r db.Reader, inv InvoiceID) (open bool, last db.Time, err error) {
	var n int
	if err = r.QueryRow(ctx, `
		SELECT COALESCE(SUM(CASE WHEN status IN ('pending', 'processing', 'requires_action', 'unknown') THEN 1 ELSE 0 END), 0),
			COALESCE(MAX(CASE WHEN method <> '' THEN created_at ELSE 0 END), 0) FROM billing_payments WHERE invoice_id = $1`, inv).
		Scan(&n, &last); err != nil {
		return false, 0, fmt.Errorf("count payments: %w", err)
	}
	return n > 0, last, nil
}

// sendTx creates a payment of the invoice's remaining amount and enqueues its job.
func (b *Billing) sendTx(ctx context.Context, tx *db.Tx, i Invoice, p Payment, at db.Time) (Payment, error) {
	p.Provider, p.Amount = b.provider.Name(), i.Remaining()
	p, err := b.attemptTx(ctx, tx, i, p)
	if err != nil {
		return p, err
	}
	_, err = job.Enqueue(ctx, tx, Pay{p.ID}, job.Options{Unique: "billing.pay/" + string(p.ID), Share: string(p.Owner), At: at})
	return p, err
}

func (b *Billing) payment(ctx context.Context, r db.Reader, pay PaymentID) (Payment, error) {
	p, err := scanPayment(r.QueryRow(ctx, `SELECT `+paymentColumns+` FROM billing_payments WHERE id = $1`, pay))
	if errors.Is(err, sql.ErrNoRows) {
		return p, fault.Missing("payment")
	}
	if err != nil {
		return p, fmt.Errorf("read payment: %w", err)
	}
	return p, nil
}

// Open reports whether the payment is still in progress.
func (p Payment) Open() bool {
	return p.Status == PaymentPending || p.Status == PaymentProcessing || p.Status == PaymentRequiresAction || p.Status == PaymentUnknown
}

func (p Payment) order(number string) Order {
	return Order{
		Payment: p.ID, Invoice: number, Customer: p.customer, Method: p.method, Session: p.session, Reference: p.Reference, Amount: p.Amount,
		Currency: p.Currency, CreatedAt: p.CreatedAt, SentAt: p.sent,
	}
}

// Proceed sends a payment or polls its outcome. It returns the delay before the next poll, or 0 once the payment has
// ended.
func (b *Billing) Proceed(ctx context.Context, pay PaymentID) (again time.Duration, err error) {
	p, err := b.payment(ctx, b.c.DB, pay)
	if err != nil || !p.Open() || b.provider == nil {
		return 0, err
	}
	i, err := b.InvoiceOf(ctx, b.c.DB, string(p.Invoice))
	if err != nil {
		return 0, err
	}
	o, out := p.order(i.Number), Outcome{}
	switch {
	case p.method == "" && b.now() > p.CreatedAt.Add(pageOpen):
		out, err = b.provider.Abandon(ctx, o)
	case p.Status == PaymentRequiresAction && p.method != "" && b.now() > i.FinalizedAt.Add(time.Duration(chargeDays[len(chargeDays)-1])*day):
		out, err = b.provider.Abandon(ctx, o)
	case p.Status == PaymentPending || p.Status == PaymentUnknown && b.now() < p.sent.Add(repeatWithin):
		if p.sent == 0 {
			if err := b.sentTx(ctx, pay); err != nil {
				return 0, err
			}
		}
		if out, err = b.provider.Charge(ctx, o); err != nil { // the payment may exist even if the answer was lost
			if found, e := b.provider.Find(ctx, o); e == nil && found.Status != "" {
				out, err = found, nil
			}
		}
	default:
		if out, err = b.provider.Find(ctx, o); err == nil && out.Status == "" {
			out = Outcome{Status: paymentFailed, Code: "not_sent"}
			if p.method == "" { // no card entered yet
				out = Outcome{Status: PaymentRequiresAction}
			}
		}
	}
	if err != nil {
		if ctx.Err() == nil {
			b.c.Log.WarnContext(ctx, "outcome of payment unknown, will be looked for", "payment", pay, "err", err)
		}
		out = Outcome{Status: PaymentUnknown}
		if p.Status != PaymentPending {
			out.Status = p.Status
		}
	}
	out.Payment = pay
	if err := b.Apply(ctx, out); err != nil {
		return 0, err
	}
	if p, err = b.payment(ctx, b.c.DB, pay); err != nil || !p.Open() {
		return 0, err
	}
	if p.Status == PaymentUnknown && b.now() < p.sent.Add(lookAfter) {
		return 15 * time.Second, nil
	}
	if p.method == "" {
		return max(time.Minute, p.CreatedAt.Add(pageOpen).Sub(b.now())), nil
	}
	return lookAfter, nil
}

// sentTx records that a payment is being sent. After that, a missing answer may mean that it was made.
func (b *Billing) sentTx(ctx context.Context, pay PaymentID) error {
	return b.c.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE billing_payments SET sent_at = $2, status = 'unknown' WHERE id = $1 AND status = 'pending'`, pay, b.now())
		return err
	})
}

// Apply records the provider's report of a payment. Repeated, late and reordered reports are harmless: received money
// always counts, and an ended payment is never reopened.
func (b *Billing) Apply(ctx context.Context, o Outcome) error {
	return b.c.DB.Write(ctx, func(tx *db.Tx) error {
		p, err := b.payment(ctx, tx, o.Payment)
		if fault.Is(err, fault.NotFound) {
			return nil // another installation that shares the provider's account
		}
		if err != nil {
			return err
		}
		if err := party.LockTx(ctx, tx, p.Owner); err != nil {
			return err
		}
		if p, err = b.payment(ctx, tx, p.ID); err != nil {
			return err
		}
		return b.applyTx(ctx, tx, p, o)
	})
}

func (b *Billing) applyTx(ctx context.Context, tx *db.Tx, p Payment, o Outcome) error {
	ended := p.Status == paymentCompleted || !p.Open() && o.Status != paymentCompleted
	if ended || p.Provider == Manual || o.Status == PaymentUnknown && p.Status != PaymentPending {
		return nil
	}
	i, err := b.InvoiceOf(ctx, tx, string(p.Invoice))
	if err != nil {
		return err
	}
	was := p.Status
	p.Status, p.FailureCode, p.NextAttemptAt = o.Status, "", 0
	if o.Reference != "" {
		p.Reference = o.Reference
	}
	switch o.Status {
	case paymentCompleted:
		if o.Amount != p.Amount || o.Currency != p.Currency {
			return fmt.Errorf("payment %s: %s were received and %s asked for", p.ID, o.Currency.Format(o.Amount), p.Currency.Format(p.Amount))
		}
		p.ReceivedAt = o.At
	case paymentFailed:
		p.FailureCode = o.Code
		if o.Code == "" {
			p.FailureCode = "declined"
		}
		if p.NextAttemptAt, err = b.nextCharge(ctx, tx, i, p, o); err != nil {
			return err
		}
	}
	if _, err := tx.Exec(ctx, `
		UPDATE billing_payments SET status = $2, failure_code = $3, reference = $4, received_at = $5, next_attempt_at = $6 WHERE id = $1`,
		p.ID, p.Status, p.FailureCode, p.Reference, p.ReceivedAt, p.NextAttemptAt); err != nil {
		return fmt.Errorf("write payment %s: %w", p.ID, err)
	}
	if was != p.Status {
		tx.Notify(p.Owner.Topic())
	}
	switch {
	case p.Status == paymentCompleted:
		if o.Card.Method != "" { // entered on the page; charged from now on
			if err := b.writeCardTx(ctx, tx, p.Owner, p.Currency, o.Card); err != nil {
				return err
			}
		}
		return b.receivedTx(ctx, tx, i, p)
	case p.Status == paymentFailed:
		return b.failedTx(ctx, tx, i, p, o)
	case p.Status == PaymentRequiresAction && was != p.Status && p.method != "":
		return b.mailTx(ctx, tx, p.Owner, "Confirm the payment of invoice "+i.Number,
			fmt.Sprintf("Your bank wants you to confirm the payment of %s for invoice %s. Open the invoice and choose Pay by card.",
				p.Currency.Format(p.Amount), i.Number), "/account/invoices/"+string(i.ID))
	}
	return nil
}

// nextCharge returns when to charge the card again after a failure. It also records that a card must not be charged any
// more.
func (b *Billing) nextCharge(ctx context.Context, tx *db.Tx, i Invoice, p Payment, o Outcome) (db.Time, error) {
	if p.method == "" {
		return 0, nil
	}
	if o.Final {
		k, err := b.Card(ctx, tx, p.Owner, p.Currency)
		if err != nil || k.Method != p.method {
			return 0, err // the owner has stored another card since
		}
		k.Declined = p.FailureCode
		return 0, b.writeCardTx(ctx, tx, p.Owner, p.Currency, k)
	}
	return chargeAt(i, b.now()), nil
}

// failedTx records that a card payment failed. The subscription is past due until the invoice is paid.
func (b *Billing) failedTx(ctx context.Context, tx *db.Tx, i Invoice, p Payment, o Outcome) error {
	if err := b.emitTx(ctx, tx, p.Owner, string(p.ID)+":failed", event.PaymentFailed(p.event(i))); err != nil || i.Status != Open {
		return err
	}
	if p.method == "" { // an abandoned page: no charge was attempted
		return b.laterTx(ctx, tx, i.ID, b.now())
	}
	if err := b.laterTx(ctx, tx, i.ID, p.NextAttemptAt); err != nil {
		return err
	}
	if o.Final { // reminders take over
		if err := b.laterTx(ctx, tx, i.ID, b.now()); err != nil {
			return err
		}
	}
	if err := b.unpaidTx(ctx, tx, p.Owner, i.Subscription, i.DueAt); err != nil {
		return err
	}
	text := fmt.Sprintf("The payment of %s for invoice %s failed: %s.", p.Currency.Format(p.Amount), i.Number, Declined(p.FailureCode))
	if p.NextAttemptAt > 0 {
		text += fmt.Sprintf(" Your card is charged again on %s.", p.NextAttemptAt.Time().UTC().Format(time.DateOnly))
	}
	return b.mailTx(ctx, tx, p.Owner, "Payment failed: invoice "+i.Number, text+" To pay now or change the card, open the invoice.",
		"/account/invoices/"+string(i.ID))
}

// Declined explains in words why a payment failed.
func Declined(code string) string {
	switch code {
	case NotReceived:
		return "it was not received"
	case "expired":
		return "the payment page was not completed"
	case "not_sent":
		return "it could not be sent"
	case "insufficient_funds":
		return "insufficient funds"
	case "expired_card":
		return "the card has expired"
	case "authentication_required":
		return "the payment was not confirmed"
	}
	return "the card was declined"
}

// receivedTx posts money received for an invoice. Any excess becomes the owner's credit.
func (b *Billing) receivedTx(ctx context.Context, tx *db.Tx, i Invoice, p Payment) error {
	used := min(i.Remaining(), p.Amount)
	if err := b.postTx(ctx, tx, entry{
		key: string(p.ID), owner: i.Owner, currency: i.Currency, invoice: i.ID, reference: p.Reference,
		amounts: map[ledgerAccount]int64{cash: p.Amount, receivable: -used, credit: used - p.Amount},
	}); err != nil {
		return err
	}
	if err := b.emitTx(ctx, tx, i.Owner, string(p.ID)+":completed", event.PaymentCompleted(p.event(i))); err != nil {
		return err
	}
	if used > 0 {
		if err := b.reduceTx(ctx, tx, i, used, 0, Paid); err != nil {
			return err
		}
	}
	return b.useCreditTx(ctx, tx, i.Owner, i.Currency)
}

// PayNow returns the URL at which the owner pays an invoice by card or confirms a pending payment. back is the URL of
// the invoice's page; the provider sends the owner there with ?payment=ID added.
func (b *Billing) PayNow(ctx context.Context, owner id.Owner, inv InvoiceID, back string) (url string, err error) {
	if on, err := b.Cards(ctx, b.c.DB); err != nil {
		return "", err
	} else if !on {
		return "", errNoCards
	}
	i, err := b.Invoice(ctx, b.c.DB, owner, inv)
	if err != nil {
		return "", err
	}
	if i.Remaining() <= 0 {
		return "", fault.New(fault.Conflict, "invoice_not_open", "Nothing is left to pay of the invoice", "its status is "+string(i.Status))
	}
	if !b.provider.Chargeable(i.Currency, i.Remaining()) {
		return "", fault.New(fault.Conflict, "amount_not_chargeable", "The amount can't be paid by card",
			"it is below what the payment provider accepts; pay it by bank transfer")
	}
	k, err := b.Card(ctx, b.c.DB, owner, i.Currency)
	if err != nil {
		return "", err
	}
	profile, err := b.Profile(ctx, b.c.DB, owner)
	if err != nil {
		return "", err
	}
	if k.Customer, err = b.customer(ctx, owner, i.Currency, k, profile.Party); err != nil {
		return "", err
	}
	var p Payment
	err = b.c.DB.Write(ctx, func(tx *db.Tx) error {
		if i, err = b.lockedTx(ctx, tx, string(inv)); err != nil {
			return err
		}
		if i.Remaining() <= 0 {
			return fault.New(fault.Conflict, "invoice_not_open", "Nothing is left to pay of the invoice", "its status is "+string(i.Status))
		}
		list, err := b.Payments(ctx, tx, owner, inv, 1000)
		if err != nil {
			return err
		}
		for _, p = range list {
			if !p.Open() {
				continue
			}
			if p.Status != PaymentRequiresAction {
				return errPaymentOpen
			}
			return nil
		}
		p, err = b.sendTx(ctx, tx, i, Payment{Status: PaymentRequiresAction, customer: k.Customer, sent: b.now()}, b.now().Add(pageOpen))
		return err
	})
	if err != nil {
		return "", err
	}
	session, url, err := b.provider.Page(ctx, p.order(i.Number), account.AddParam(back, "payment", string(p.ID)))
	if err != nil {
		return "", b.providerFault(ctx, "open a payment page", err)
	}
	if session == "" || session == p.session {
		return url, nil
	}
	return url, b.c.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE billing_payments SET session = $2 WHERE id = $1`, p.ID, session)
		return err
	})
}

var errPaymentOpen = fault.New(fault.Conflict, "payment_open", "A payment of this invoice is under way", "wait for its outcome")

// LookAtPayment asks the provider for the outcome of an open payment, stores it, and returns the payment.
func (b *Billing) LookAtPayment(ctx context.Context, owner id.Owner, pay PaymentID) (Payment, error) {
	p, err := b.payment(ctx, b.c.DB, pay)
	if err == nil && p.Owner != owner {
		return Payment{}, fault.Missing("payment")
	}
	if err != nil || !p.Open() || p.Status == PaymentPending {
		return p, err
	}
	release, ok := b.asks.Try(fair.Who{Owner: string(owner)})
	if !ok {
		return p, nil
	}
	defer release()
	if _, err := b.Proceed(ctx, pay); err != nil {
		return p, err
	}
	return b.payment(ctx, b.c.DB, pay)
}

// Underway returns up to limit payments in progress, oldest first.
func (b *Billing) Underway(ctx context.Context, r db.Reader, limit int) ([]Payment, error) {
	rows, err := r.Query(ctx, `
		SELECT `+paymentColumns+` FROM billing_payments WHERE status IN ('pending', 'processing', 'requires_action', 'unknown')
		ORDER BY id LIMIT $1`, limit)
	list, err := db.Collect(rows, err, scanPayment)
	if err != nil {
		return nil, fmt.Errorf("list payments under way: %w", err)
	}
	return list, nil
}

// Captured returns the ledger's amounts of the provider's payments begun since from, by the provider's reference.
func (b *Billing) Captured(ctx context.Context, r db.Reader, from db.Time) (map[string]int64, error) {
	rows, err := r.Query(ctx, `
		SELECT p.reference, l.amount FROM billing_payments p JOIN billing_ledger l ON l.txn_key = p.id AND l.account = 'cash'
		WHERE p.provider = $1 AND p.created_at >= $2 AND p.status = 'completed'`, b.provider.Name(), from)
	type row struct {
		reference string
		amount    int64
	}
	list, err := db.Collect(rows, err, func(s db.Scanner) (x row, err error) { return x, s.Scan(&x.reference, &x.amount) })
	if err != nil {
		return nil, fmt.Errorf("read captured payments: %w", err)
	}
	out := map[string]int64{}
	for _, x := range list {
		out[x.reference] = x.amount
	}
	return out, nil
}
