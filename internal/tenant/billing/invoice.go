package billing

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fair"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/id"
	"slipway/internal/tenant/billing/document"
	"slipway/internal/tenant/billing/party"
	"slipway/internal/tenant/money"
	"slipway/internal/tenant/webhook/event"
)

// InvoiceID names an invoice, "inv_" and 26 characters, or a credit note, "crn_" and 26 characters.
type InvoiceID string

// InvoiceStatus is the state of an invoice.
type InvoiceStatus string

const (
	Draft         InvoiceStatus = "draft"
	Open          InvoiceStatus = "open"
	Paid          InvoiceStatus = "paid"
	Void          InvoiceStatus = "void"          // canceled by a credit note before it was paid
	Uncollectible InvoiceStatus = "uncollectible" // written off
	Issued        InvoiceStatus = "issued"        // the only status of a credit note
)

// Invoice is an invoice or a credit note.
type Invoice struct {
	ID            InvoiceID
	Owner         id.Owner
	Subscription  SubscriptionID
	Corrects      InvoiceID // set on credit notes
	Status        InvoiceStatus
	Number        string // empty while it is a draft
	Currency      money.Currency
	Net, Tax      int64
	Total         int64
	Paid          int64 // includes credit used
	Credited      int64 // by credit notes, before payment
	Held          bool  // waits for the operator's approval
	CreatedAt     db.Time
	FinalizedAt   db.Time
	DueAt         db.Time
	cause, seller string
	basis         basis
	document      string
	digest        string
	step          int64
}

// Remaining returns the unpaid amount.
func (i Invoice) Remaining() int64 {
	if i.Status != Open {
		return 0
	}
	return i.Total - i.Paid - i.Credited
}

// Overdue reports whether the due date has passed without payment.
func (i Invoice) Overdue(now db.Time) bool { return i.Status == Open && i.DueAt <= now }

// Document returns a final invoice's content. It is empty for drafts.
func (i Invoice) Document() (d document.Document) {
	if i.document == "" || json.Unmarshal([]byte(i.document), &d) != nil {
		return document.Document{}
	}
	return d
}

// Lines returns the lines of a final invoice.
func (i Invoice) Lines() []document.Line { return i.Document().Lines }

// JSON returns a final invoice's document exactly as stored.
func (i Invoice) JSON() []byte { return []byte(i.document) }

const invoiceColumns = `id, seller_id, owner_id, subscription_id, cause, corrects, status, number, currency, net, tax, total, paid, credited, basis, document,
	digest, held, step, created_at, finalized_at, due_at`

func scanInvoice(r db.Scanner) (i Invoice, err error) {
	var text string
	if err := r.Scan(&i.ID, &i.seller, &i.Owner, &i.Subscription, &i.cause, &i.Corrects, &i.Status, &i.Number, &i.Currency, &i.Net, &i.Tax,
		&i.Total, &i.Paid, &i.Credited, &text, &i.document, &i.digest, &i.Held, &i.step, &i.CreatedAt, &i.FinalizedAt, &i.DueAt); err != nil {
		return i, err
	}
	return i, json.Unmarshal([]byte(text), &i.basis)
}

// Invoice returns one of the owner's invoices, or a NotFound fault.
func (b *Billing) Invoice(ctx context.Context, r db.Reader, owner id.Owner, inv InvoiceID) (Invoice, error) {
	return foundInvoice(r.QueryRow(ctx, `SELECT `+invoiceColumns+` FROM billing_invoices WHERE id = $1 AND owner_id = $2`, inv, owner))
}

// InvoiceOf returns any owner's invoice by ID or number. Only operators may use it.
func (b *Billing) InvoiceOf(ctx context.Context, r db.Reader, name string) (Invoice, error) {
	return foundInvoice(r.QueryRow(ctx, `SELECT `+invoiceColumns+` FROM billing_invoices WHERE id = $1 OR number = $1 AND number <> ''`, name))
}

func foundInvoice(row *sql.Row) (Invoice, error) {
	i, err := scanInvoice(row)
	if errors.Is(err, sql.ErrNoRows) {
		return i, fault.Missing("invoice")
	}
	if err != nil {
		return i, fmt.Errorf("read invoice: %w", err)
	}
	return i, nil
}

// Invoices returns up to limit of the owner's invoices and credit notes older than before, newest first. An empty before
// starts at the newest.
func (b *Billing) Invoices(ctx context.Context, r db.Reader, owner id.Owner, before InvoiceID, limit int) ([]Invoice, error) {
	rows, err := r.Query(ctx, `
		SELECT `+invoiceColumns+` FROM billing_invoices
		WHERE owner_id = $1 AND ($2 = '' OR (created_at, id) < (SELECT created_at, id FROM billing_invoices WHERE id = $2 AND owner_id = $1))
		ORDER BY created_at DESC, id DESC LIMIT $3`, owner, string(before), limit)
	list, err := db.Collect(rows, err, scanInvoice)
	if err != nil {
		return nil, fmt.Errorf("list invoices: %w", err)
	}
	return list, nil
}

// Receivables returns all owners' open or held invoices, oldest first.
func (b *Billing) Receivables(ctx context.Context, r db.Reader, limit int) ([]Invoice, error) {
	rows, err := r.Query(ctx, `
		SELECT `+invoiceColumns+` FROM billing_invoices WHERE status = 'open' OR status = 'draft' AND held
		ORDER BY created_at, id LIMIT $1`, limit)
	list, err := db.Collect(rows, err, scanInvoice)
	if err != nil {
		return nil, fmt.Errorf("list receivables: %w", err)
	}
	return list, nil
}

func periodCause(start db.Time) string { return fmt.Sprintf("period:%d", start) }

// usageCause identifies the invoice that only charges the usage of the period beginning at start.
func usageCause(start db.Time) string { return fmt.Sprintf("usage:%d", start) }

// draftAfter is the delay between a period's end and its invoice's draft. All of the period's hours are sealed by then.
const draftAfter = 3 * hour

// draftTx creates an invoice whose draft follows once all usage before the time at is sealed. It does nothing if an
// invoice with this cause exists.
func (b *Billing) draftTx(ctx context.Context, tx *db.Tx, s Subscription, cause string, x basis, at db.Time) error {
	_, err := b.insertTx(ctx, tx, s, cause, x, at.Add(draftAfter), b.now().Sub(at) > holdAfter)
	return err
}

// invoiceNowTx creates an invoice and finalizes it in the same transaction.
func (b *Billing) invoiceNowTx(ctx context.Context, tx *db.Tx, s Subscription, cause string, x basis) error {
	inv, err := b.insertTx(ctx, tx, s, cause, x, 0, false)
	if err != nil {
		return err
	}
	return b.finalizeTx(ctx, tx, inv)
}

func (b *Billing) insertTx(
	ctx context.Context, tx *db.Tx, s Subscription, cause string, x basis, next db.Time, held bool,
) (inv InvoiceID, err error) {
	text, err := json.Marshal(x)
	if err != nil {
		return "", err
	}
	v, err := b.Version(ctx, tx, s.Version)
	if err != nil {
		return "", err
	}
	seller, err := party.SellerOf(ctx, tx, s.Owner)
	if err != nil {
		return "", err
	}
	inv = db.ID[InvoiceID]("inv")
	_, err = tx.Exec(ctx, `
		INSERT INTO billing_invoices (id, seller_id, owner_id, subscription_id, cause, corrects, status, number, currency, net, tax, total, paid,
			credited, basis, document, digest, held, step, next_at, created_at, finalized_at, due_at)
		VALUES ($1, $10, $2, $3, $4, '', 'draft', '', $5, 0, 0, 0, 0, 0, $6, '', '', $7, 0, $8, $9, 0, 0)
		ON CONFLICT (subscription_id, cause) DO NOTHING`,
		inv, s.Owner, s.ID, cause, v.Currency, string(text), held, next, b.now(), seller)
	if err != nil {
		return "", fmt.Errorf("write invoice: %w", err)
	}
	return inv, nil
}

// proceedTx performs the invoice's due step: drafting, finalizing or dunning.
func (b *Billing) proceedTx(ctx context.Context, tx *db.Tx, invoice string) error {
	i, err := b.InvoiceOf(ctx, tx, invoice)
	if err != nil {
		return err
	}
	switch i.Status {
	case Draft:
		if u := i.basis.Usage; u != nil && !u.Drafted {
			sealed, err := b.c.Usage.Sealed(ctx, tx)
			if err != nil {
				return err
			}
			if sealed < u.To {
				return b.laterTx(ctx, tx, i.ID, b.now().Add(10*time.Minute))
			}
		}
		if i.Total == 0 && i.digest == "" {
			return b.fillTx(ctx, tx, i)
		}
		return b.finalizeTx(ctx, tx, i.ID)
	case Open:
		return b.dunTx(ctx, tx, i)
	}
	return b.laterTx(ctx, tx, i.ID, 0)
}

func (b *Billing) laterTx(ctx context.Context, tx *db.Tx, inv InvoiceID, at db.Time) error {
	if _, err := tx.Exec(ctx, `UPDATE billing_invoices SET next_at = $2 WHERE id = $1`, inv, at); err != nil {
		return fmt.Errorf("write invoice %s: %w", inv, err)
	}
	return nil
}

// fillTx computes a draft, which can be viewed until it is final.
func (b *Billing) fillTx(ctx context.Context, tx *db.Tx, i Invoice) error {
	if err := b.sealTx(ctx, tx, i.Owner, &i.basis); err != nil {
		return err
	}
	settings, err := b.Settings(ctx, tx, i.seller)
	if err != nil {
		return err
	}
	buyer, err := b.Profile(ctx, tx, i.Owner)
	if err != nil {
		return err
	}
	c, err := b.compute(ctx, tx, i.Owner, i.basis, party.TaxFor(settings, buyer))
	if err != nil {
		return err
	}
	text, err := json.Marshal(i.basis)
	if err != nil {
		return err
	}
	next := b.now().Add(time.Duration(settings.FinalizeHours) * hour)
	if i.Held {
		next = 0
	}
	if _, err := tx.Exec(ctx, `UPDATE billing_invoices SET net = $2, tax = $3, total = $4, basis = $5, digest = 'draft', next_at = $6
		WHERE id = $1 AND status = 'draft'`, i.ID, c.Net, c.Due, c.Total, string(text), next); err != nil {
		return fmt.Errorf("write draft of %s: %w", i.ID, err)
	}
	return nil
}

// FinalizeTx finalizes a draft now, even a held one. The usage it charges must be sealed.
func (b *Billing) FinalizeTx(ctx context.Context, tx *db.Tx, name string) error {
	i, err := b.lockedTx(ctx, tx, name)
	if err != nil {
		return err
	}
	if i.Status != Draft {
		return fault.New(fault.Conflict, "invoice_not_draft", "The invoice is final already", "")
	}
	if u := i.basis.Usage; u != nil && !u.Drafted {
		sealed, err := b.c.Usage.Sealed(ctx, tx)
		if err != nil {
			return err
		}
		if sealed < u.To {
			return fault.New(fault.Conflict, "usage_not_sealed", "The usage of the period is not final yet",
				"hours are sealed two hours after they end")
		}
	}
	return b.finalizeTx(ctx, tx, i.ID)
}

func (b *Billing) lockedTx(ctx context.Context, tx *db.Tx, name string) (Invoice, error) {
	i, err := b.InvoiceOf(ctx, tx, name)
	if err != nil {
		return i, err
	}
	if err := party.LockTx(ctx, tx, i.Owner); err != nil {
		return i, err
	}
	return b.InvoiceOf(ctx, tx, string(i.ID))
}

// finalizeTx numbers a draft and posts it. The number is taken in this transaction, so a rollback leaves no gap.
func (b *Billing) finalizeTx(ctx context.Context, tx *db.Tx, inv InvoiceID) error {
	i, err := b.InvoiceOf(ctx, tx, string(inv))
	if err != nil {
		return err
	}
	if err := b.sealTx(ctx, tx, i.Owner, &i.basis); err != nil {
		return err
	}
	f := &frozenBasis{FinalizedAt: b.now()}
	if f.Seller, err = b.Settings(ctx, tx, i.seller); err != nil {
		return err
	}
	if f.Buyer, err = b.Profile(ctx, tx, i.Owner); err != nil {
		return err
	}
	tax := party.TaxFor(f.Seller, f.Buyer)
	f.Tax = &tax
	c, err := b.compute(ctx, tx, i.Owner, i.basis, tax)
	if err != nil {
		return err
	}
	if c.Total < 0 {
		return fmt.Errorf("finalize %s: the total is %d", inv, c.Total)
	}
	has, err := b.creditOf(ctx, tx, i.Owner, i.Currency)
	if err != nil {
		return err
	}
	f.Credit = min(has, c.Total)
	charged, carried, err := b.charged(ctx, tx, i.Owner, i.Currency, c.Total-f.Credit)
	if err != nil {
		return err
	}
	if carried {
		f.Carried = c.Total - f.Credit
	}
	f.DueAt = f.FinalizedAt
	if !charged {
		f.DueAt = f.FinalizedAt.Add(time.Duration(f.Seller.DueDays) * day)
	}
	if f.Number, err = b.numberTx(ctx, tx, i.seller, ""); err != nil {
		return err
	}
	i.basis.Frozen = f
	i.Number, i.Net, i.Tax, i.Total, i.Paid, i.FinalizedAt, i.DueAt = f.Number, c.Net, c.Due, c.Total, f.Credit+f.Carried, f.FinalizedAt,
		f.DueAt
	next := i.DueAt
	i.Status = Open
	if i.Paid == i.Total {
		i.Status, next = Paid, 0
	}
	if err := b.issueTx(ctx, tx, i, c, next); err != nil {
		return err
	}
	if c.Total != 0 {
		if err := b.postTx(ctx, tx, entry{
			key: string(i.ID), owner: i.Owner, currency: i.Currency, invoice: i.ID, reference: i.Number,
			amounts: map[ledgerAccount]int64{receivable: i.Total, revenue: -i.Net, taxes: -i.Tax},
		}); err != nil {
			return err
		}
	}
	if used := f.Credit + f.Carried; used != 0 {
		if err := b.postTx(ctx, tx, entry{
			key: string(i.ID) + "/credit", owner: i.Owner, currency: i.Currency, invoice: i.ID, reference: i.Number,
			amounts: map[ledgerAccount]int64{credit: used, receivable: -used},
		}); err != nil {
			return err
		}
	}
	if err := b.emitTx(ctx, tx, i.Owner, string(i.ID)+":finalized", event.InvoiceFinalized(event.Invoice{
		ID: string(i.ID), Number: i.Number, Status: string(i.Status), Net: i.Net, Tax: i.Tax, Total: i.Total, Currency: string(i.Currency),
		Subscription: string(i.Subscription), DueAt: i.DueAt,
	})); err != nil {
		return err
	}
	text := fmt.Sprintf("Invoice %s over %s is ready.", i.Number, i.Currency.Format(i.Total))
	if carried {
		text += fmt.Sprintf("\n\n%s are too little to be charged to your card. They are added to your next invoice.",
			i.Currency.Format(f.Carried))
	}
	if left := i.Remaining(); left > 0 && charged {
		text += fmt.Sprintf("\n\n%s are charged to your card.", i.Currency.Format(left))
		if err := b.dunTx(ctx, tx, i); err != nil {
			return err
		}
	} else if left > 0 {
		text += fmt.Sprintf("\n\nPlease pay %s by %s with the reference %s.", i.Currency.Format(left), i.DueAt.Time().UTC().Format(time.DateOnly),
			i.Number)
		if f.Seller.Payment != "" {
			text += "\n\n" + f.Seller.Payment
		}
	}
	return b.mailTx(ctx, tx, i.Owner, "Invoice "+i.Number, text, "/account/invoices/"+string(i.ID))
}

// write renders the final document, which depends on the basis alone.
func (i Invoice) write(c computed) ([]byte, error) {
	f := i.basis.Frozen
	d := document.Document{
		Layout: document.Layout, ID: string(i.ID), Kind: "invoice", Number: f.Number, IssuedAt: f.FinalizedAt.String(), Seller: f.Seller.Seller,
		Buyer:    f.Buyer.Party,
		Currency: i.Currency, Lines: c.Lines, Net: c.Net,
		TaxRate: document.Tax{Country: c.Tax.Country, BasisPoints: c.Tax.BasisPoints, Amount: c.Due, Note: c.Tax.Note}, Total: c.Total,
		Credit: f.Credit, Carried: f.Carried, Due: c.Total - f.Credit - f.Carried, Payment: f.Seller.Payment, Note: f.Seller.Note,
	}
	if x := i.basis.Credit; x != nil {
		d.Kind, d.Corrects, d.Due, d.Payment = "credit_note", x.Number, 0, ""
	} else {
		d.DueAt = f.DueAt.String()
	}
	return d.Bytes()
}

// PDF renders a final invoice.
func (b *Billing) PDF(ctx context.Context, i Invoice) ([]byte, error) {
	if i.Number == "" {
		return nil, fault.New(fault.Conflict, "invoice_not_final", "The invoice is a draft", "it has a PDF once it has a number")
	}
	release, err := b.pdfs.Take(ctx, fair.Who{Owner: string(i.Owner)})
	if errors.Is(err, fair.ErrFull) {
		return nil, &fault.Error{Kind: fault.Unavailable, Message: "Too many invoices are being printed", Code: "busy", RetryAfter: time.Second}
	}
	if err != nil {
		return nil, err
	}
	defer release()
	return document.PDF(i.JSON())
}

func (b *Billing) issueTx(ctx context.Context, tx *db.Tx, i Invoice, c computed, next db.Time) error {
	says, err := i.write(c)
	if err != nil {
		return err
	}
	text, err := json.Marshal(i.basis)
	if err != nil {
		return err
	}
	n, err := tx.Exec(ctx, `
		UPDATE billing_invoices
			SET status = $2, number = $3, net = $4, tax = $5, total = $6, paid = $7, basis = $8, document = $9, digest = $10, held = FALSE,
			step = 0, next_at = $11, finalized_at = $12, due_at = $13
		WHERE id = $1 AND number = ''`,
		i.ID, i.Status, i.Number, i.Net, i.Tax, i.Total, i.Paid, string(text), string(says), digestOf(says), next, i.FinalizedAt, i.DueAt)
	if err == nil && n != 1 {
		err = errors.New("it is final already")
	}
	if err != nil {
		return fmt.Errorf("finalize %s: %w", i.ID, err)
	}
	tx.Notify(i.Owner.Topic())
	return nil
}

// digestOf returns the hex SHA-256 of a document.
func digestOf(document []byte) string {
	sum := sha256.Sum256(document)
	return hex.EncodeToString(sum[:])
}

// numberTx takes the next number of a seller's series for the current year (UTC). Concurrent callers wait for the
// commit.
func (b *Billing) numberTx(ctx context.Context, tx *db.Tx, seller, series string) (string, error) {
	year := int64(b.now().Time().UTC().Year())
	begins, err := b.Series(ctx, tx, seller)
	if err != nil {
		return "", err
	}
	series = begins + series
	var n int64
	err = tx.QueryRow(ctx, `
		INSERT INTO billing_numbers (seller_id, series, year, last) VALUES ($1, $2, $3, 1)
		ON CONFLICT (seller_id, series, year) DO UPDATE SET last = billing_numbers.last + 1 RETURNING last`, seller, series, year).Scan(&n)
	if err != nil {
		return "", fmt.Errorf("take number: %w", err)
	}
	return fmt.Sprintf("%s%d-%06d", series, year, n), nil
}
