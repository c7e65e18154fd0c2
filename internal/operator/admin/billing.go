package admin

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"slipway/internal/operator/installation"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/id"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/billing"
	"slipway/internal/tenant/billing/party"
	"slipway/internal/tenant/billing/plan"
	"slipway/internal/tenant/billing/seller"
	"slipway/internal/tenant/limits"
	"slipway/internal/tenant/money"
	"slipway/internal/tenant/stripe"
	"slipway/internal/tenant/usage"
	"slipway/internal/tenant/webhook"
)

// Billing is what an operator does with plans, invoices and payments, also while the server runs. Each method prints what it did.
type Billing struct {
	Store installation.Store
	Out   io.Writer
}

// books is an open installation.
type books struct {
	*billing.Billing
	db       *db.DB
	accounts *account.Accounts
	stripe   *stripe.Stripe
}

func (o Billing) with(ctx context.Context, fn func(x books) error) error {
	d, sealer, err := o.Store.Open(ctx, nil)
	if err != nil {
		return err
	}
	defer d.Close()
	b := billing.New(billing.Config{
		DB: d, Usage: usage.New(usage.Config{DB: d}), Hooks: webhook.New(webhook.Config{DB: d, Billing: true, Log: quiet()}), Log: quiet(),
	})
	s := stripe.New(stripe.Config{DB: d, Seal: sealer, Billing: b, Log: quiet()}) // calls nothing: the server's jobs do
	b.Connect(s)
	return fault.Sentence(fn(books{b, d, account.New(account.Config{DB: d, Log: quiet()}), s}))
}

// change runs a transaction and writes it into the audit log of the owner that it concerns.
func (o Billing) change(ctx context.Context, fn func(x books, tx *db.Tx) (owner id.Owner, did audit.Event, said string, err error)) error {
	return o.with(ctx, func(x books) error {
		var said string
		err := x.db.Write(ctx, func(tx *db.Tx) (err error) {
			var owner id.Owner
			var did audit.Event
			if owner, did, said, err = fn(x, tx); err != nil || owner == "" { // what concerns nobody's account is in nobody's log
				return err
			}
			return x.accounts.AuditTx(ctx, tx, audit.Actor{Owner: owner, Via: "the command line"}, did)
		})
		if err == nil {
			fmt.Fprintln(o.Out, said)
		}
		return err
	})
}

// owner finds a user by email address, or a team by its slug.
func (x books) owner(ctx context.Context, r db.Reader, name string) (o id.Owner, err error) {
	err = r.QueryRow(ctx, `SELECT owner_id FROM owner_standing WHERE name = $1 OR id = $1 OR owner_id = $1`,
		strings.ToLower(strings.TrimSpace(name))).Scan(&o)
	if errors.Is(err, sql.ErrNoRows) {
		return o, &fault.Error{
			Kind: fault.NotFound, Message: "No such customer", Details: "name a user's email address or a team's slug",
			Received: name,
		}
	}
	return o, err
}

// Publish adds a version to a plan of the installation, or of a reseller.
func (o Billing) Publish(ctx context.Context, file io.Reader, seller string) error {
	t, err := plan.ReadTerms(file)
	if err != nil {
		return fault.Sentence(err)
	}
	return o.change(ctx, func(x books, tx *db.Tx) (id.Owner, audit.Event, string, error) {
		if seller != "" {
			if _, err := x.Series(ctx, tx, seller); errors.Is(err, sql.ErrNoRows) {
				return "", audit.Event{}, "", fault.Missing("seller")
			} else if err != nil {
				return "", audit.Event{}, "", err
			}
		}
		v, err := x.PublishTx(ctx, tx, seller, t)
		return "", audit.Event{}, fmt.Sprintf("Version %d of the plan %s: %s by the %s", v.Number, v.Plan, v.Currency.Format(v.Amount),
			v.Term), err
	})
}

// Plans prints every version of every plan.
func (o Billing) Plans(ctx context.Context) error {
	return o.with(ctx, func(x books) error {
		all, err := x.Versions(ctx, x.db, "")
		if err != nil {
			return err
		}
		return o.table("PLAN\tVERSION\tPRICE\tINTERVAL\tTRIAL DAYS\tPUBLIC\tCREATED", func(w io.Writer) {
			for _, v := range all {
				fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%d\t%t\t%s\n", v.Plan, v.Number, v.Currency.Format(v.Amount), v.Term, v.TrialDays, v.Public,
					date(v.CreatedAt))
			}
		})
	})
}

// Settings replaces the seller's settings.
func (o Billing) Settings(ctx context.Context, file io.Reader) error {
	s, err := party.ReadSettings(file)
	if err != nil {
		return fault.Sentence(err)
	}
	return o.change(ctx, func(x books, tx *db.Tx) (id.Owner, audit.Event, string, error) {
		return "", audit.Event{}, "Invoices are from " + s.Seller.Name + " from now on", x.SaveSettingsTx(ctx, tx, "", s)
	})
}

// Seller adds a reseller or replaces what is known of it. logo may be nil: the one that is there stays.
func (o Billing) Seller(ctx context.Context, name string, file, logo io.Reader) error {
	s, settings, err := seller.ReadFile(file)
	if err != nil {
		return fault.Sentence(err)
	}
	s.ID = name
	if logo != nil {
		if s.Logo, err = seller.ReadLogo(logo); err != nil {
			return fault.Sentence(err)
		}
	}
	return o.change(ctx, func(x books, tx *db.Tx) (id.Owner, audit.Event, string, error) {
		if err := seller.SaveTx(ctx, tx, s); err != nil || settings == nil {
			return "", audit.Event{}, s.Name + " is a seller; its invoices are numbered " + s.Series + "-…", err
		}
		return "", audit.Event{}, s.Name + " is a seller; its invoices are from " + settings.Seller.Name + " and numbered " + s.Series + "-…",
			x.SaveSettingsTx(ctx, tx, s.ID, *settings)
	})
}

// Receivables prints the invoices that are open, and drafts that are held.
func (o Billing) Receivables(ctx context.Context) error {
	return o.with(ctx, func(x books) error {
		all, err := x.Billing.Receivables(ctx, x.db, 10_000)
		if err != nil {
			return err
		}
		return o.table("INVOICE\tNUMBER\tSTATUS\tTOTAL\tTO PAY\tDUE\tACCOUNT", func(w io.Writer) {
			for _, i := range all {
				status, due := string(i.Status), ""
				if i.Held {
					status = "held"
				} else if due = date(i.DueAt); i.Overdue(db.Now()) {
					status = "overdue"
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", i.ID, i.Number, status, i.Currency.Format(i.Total), i.Currency.Format(i.Remaining()),
					due, i.Owner)
			}
		})
	})
}

func (o Billing) table(head string, rows func(w io.Writer)) error {
	w := tabwriter.NewWriter(o.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, head)
	rows(w)
	return w.Flush()
}

func date(t db.Time) string { return t.Time().UTC().Format(time.DateOnly) }

// Pay records a transfer. amount is a decimal number in the invoice's currency.
func (o Billing) Pay(ctx context.Context, invoice, amount, reference string) error {
	return o.change(ctx, func(x books, tx *db.Tx) (id.Owner, audit.Event, string, error) {
		i, n, err := x.amount(ctx, tx, invoice, amount)
		if err != nil {
			return "", audit.Event{}, "", err
		}
		p, err := x.RecordTx(ctx, tx, string(i.ID), billing.Received{Amount: n, Reference: reference})
		if err != nil {
			return "", audit.Event{}, "", err
		}
		if i, err = x.InvoiceOf(ctx, tx, string(i.ID)); err != nil {
			return "", audit.Event{}, "", err
		}
		said := fmt.Sprintf("Recorded %s for invoice %s", p.Currency.Format(p.Amount), i.Number)
		if left := i.Remaining(); left > 0 {
			said += "; " + p.Currency.Format(left) + " remain to be paid"
		}
		return i.Owner, audit.Event{Action: "payment.recorded", Subject: string(p.ID), Detail: said}, said, nil
	})
}

// amount reads a decimal number in an invoice's currency. Empty is 0.
func (x books) amount(ctx context.Context, r db.Reader, invoice, amount string) (i billing.Invoice, n int64, err error) {
	if i, err = x.InvoiceOf(ctx, r, invoice); err != nil || amount == "" {
		return i, 0, err
	}
	if n, err = i.Currency.ParseDecimal(amount); err != nil {
		return i, 0, &fault.Error{Kind: fault.Invalid, Message: "Invalid amount", Details: err.Error()}
	}
	return i, n, nil
}

// CreditNote takes back a part of an invoice, or all of it without an amount.
func (o Billing) CreditNote(ctx context.Context, invoice, amount, reason string) error {
	return o.change(ctx, func(x books, tx *db.Tx) (id.Owner, audit.Event, string, error) {
		i, n, err := x.amount(ctx, tx, invoice, amount)
		if err != nil {
			return "", audit.Event{}, "", err
		}
		note, err := x.CreditNoteTx(ctx, tx, i.ID, n, reason)
		said := fmt.Sprintf("Credit note %s over %s for invoice %s", note.Number, note.Currency.Format(-note.Total), i.Number)
		return i.Owner, audit.Event{Action: "invoice.credited", Subject: string(note.ID), Detail: said}, said, err
	})
}

// Finalize makes a draft final that is held.
func (o Billing) Finalize(ctx context.Context, invoice string) error {
	return o.change(ctx, func(x books, tx *db.Tx) (id.Owner, audit.Event, string, error) {
		if err := x.FinalizeTx(ctx, tx, invoice); err != nil {
			return "", audit.Event{}, "", err
		}
		i, err := x.InvoiceOf(ctx, tx, invoice)
		said := "Invoice " + i.Number + " over " + i.Currency.Format(i.Total) + " is final"
		return i.Owner, audit.Event{Action: "invoice.finalized", Subject: string(i.ID), Detail: said}, said, err
	})
}

// WriteOff gives up what is left to pay of an invoice.
func (o Billing) WriteOff(ctx context.Context, invoice string) error {
	return o.change(ctx, func(x books, tx *db.Tx) (id.Owner, audit.Event, string, error) {
		i, err := x.InvoiceOf(ctx, tx, invoice)
		if err != nil {
			return "", audit.Event{}, "", err
		}
		said := i.Currency.Format(i.Remaining()) + " of invoice " + i.Number + " are written off"
		return i.Owner, audit.Event{Action: "invoice.written_off", Subject: string(i.ID), Detail: said}, said, x.WriteOffTx(ctx, tx, invoice)
	})
}

// Credit gives a customer credit, or with refund keeps that some was paid out.
func (o Billing) Credit(ctx context.Context, customer, amount, currency, why string, refund bool) error {
	return o.change(ctx, func(x books, tx *db.Tx) (id.Owner, audit.Event, string, error) {
		owner, err := x.owner(ctx, tx, customer)
		if err != nil {
			return "", audit.Event{}, "", err
		}
		c, err := money.ParseCurrency(currency)
		if err != nil {
			return "", audit.Event{}, "", err
		}
		n, err := c.ParseDecimal(amount)
		if err != nil {
			return "", audit.Event{}, "", err
		}
		m := billing.Balance{Currency: c, Amount: n}
		if refund {
			said := "Recorded the refund of " + c.Format(n)
			return owner, audit.Event{Action: "payment.refunded", Detail: said}, said, x.RefundTx(ctx, tx, owner, m, why)
		}
		said := "Added a credit of " + c.Format(n)
		return owner, audit.Event{Action: "billing.credited", Detail: said + ": " + why}, said, x.GiveCreditTx(ctx, tx, owner, m, why)
	})
}

// Coupon makes a coupon, worth a percentage or an amount.
func (o Billing) Coupon(ctx context.Context, c plan.Coupon, percent, amount string, lasts time.Duration) error {
	return o.change(ctx, func(x books, tx *db.Tx) (id.Owner, audit.Event, string, error) {
		var err error
		if percent != "" {
			c.Currency = ""
			c.Points, err = money.Currency("").ParseDecimal(percent)
		} else if c.Currency, err = money.ParseCurrency(string(c.Currency)); err == nil {
			c.Amount, err = c.Currency.ParseDecimal(amount)
		}
		if err != nil {
			return "", audit.Event{}, "", err
		}
		if lasts != 0 {
			c.Until = db.Now().Add(lasts)
		}
		return "", audit.Event{}, "Coupon " + c.Code + " can be redeemed", x.CouponTx(ctx, tx, c)
	})
}

// Grant gives a customer a limit of their own, for some time or without an end.
func (o Billing) Grant(ctx context.Context, customer, name string, value int64, lasts time.Duration, reason string) error {
	return o.change(ctx, func(x books, tx *db.Tx) (id.Owner, audit.Event, string, error) {
		owner, err := x.owner(ctx, tx, customer)
		if err != nil {
			return "", audit.Event{}, "", err
		}
		g := plan.Grant{Name: limits.Name(name), Value: value, Reason: reason}
		if lasts != 0 {
			g.Until = db.Now().Add(lasts)
		}
		if g, err = x.GrantTx(ctx, tx, owner, g); err != nil {
			return "", audit.Event{}, "", err
		}
		said := fmt.Sprintf("Granted %s = %d", g.Name, g.Value)
		return owner, audit.Event{Action: "billing.granted", Subject: g.ID, Detail: said + ": " + reason}, said, nil
	})
}

// VAT keeps whether a customer's VAT number is valid.
func (o Billing) VAT(ctx context.Context, customer string, valid bool) error {
	return o.change(ctx, func(x books, tx *db.Tx) (id.Owner, audit.Event, string, error) {
		owner, err := x.owner(ctx, tx, customer)
		if err != nil {
			return "", audit.Event{}, "", err
		}
		p, err := x.VerifyVATTx(ctx, tx, owner, valid)
		said := "The VAT number " + p.VATID + " is " + string(p.VAT)
		return owner, audit.Event{Action: "billing.vat_checked", Detail: said}, said, err
	})
}

// ShowVAT prints what is known of a customer's VAT number.
func (o Billing) ShowVAT(ctx context.Context, customer string) error {
	return o.with(ctx, func(x books) error {
		owner, err := x.owner(ctx, x.db, customer)
		if err != nil {
			return err
		}
		p, err := x.Profile(ctx, x.db, owner)
		if err != nil {
			return err
		}
		if p.VATID == "" {
			fmt.Fprintln(o.Out, "No VAT number")
			return nil
		}
		fmt.Fprintf(o.Out, "%s is %s", p.VATID, p.VAT)
		if p.CheckedAt > 0 {
			fmt.Fprintf(o.Out, ", checked on %s", p.CheckedAt.Time().UTC().Format(time.DateOnly))
		}
		if p.Consultation != "" {
			fmt.Fprintf(o.Out, ", consultation number %s", p.Consultation)
		}
		fmt.Fprintln(o.Out)
		if p.VAT == party.VATUnconfirmed {
			fmt.Fprintf(o.Out, "VIES says:         %s\nThe customer says: %s\n", whose(p.Found.Name, p.Found.Address), whose(p.Name, p.Address))
			fmt.Fprintln(o.Out, "VAT is charged until you confirm that the number is the customer's: add valid to this command.")
		}
		return nil
	})
}

// whose writes a name and an address on one line.
func whose(name, address string) string {
	if name == "" && address == "" {
		return "nothing about its owner"
	}
	return strings.Join(strings.Split(strings.Trim(name+"\n"+address, "\n"), "\n"), ", ")
}

// Recompute computes invoices again and fails where one is not what was stored, to the byte. Without a name: all.
func (o Billing) Recompute(ctx context.Context, invoice string) error {
	return o.with(ctx, func(x books) error {
		names := []string{invoice}
		if invoice == "" {
			var err error
			if names, err = x.Numbers(ctx, x.db); err != nil {
				return err
			}
		}
		different := 0
		for _, name := range names {
			r, err := x.Billing.Recompute(ctx, x.db, name)
			if err != nil {
				return err
			}
			if !r.Same {
				different++
				fmt.Fprintf(o.Out, "%s is different\n", r.Invoice.Number)
			} else if invoice != "" {
				fmt.Fprintf(o.Out, "%s is identical\n", r.Invoice.Number)
			}
		}
		if different > 0 {
			return fmt.Errorf("%d of %d invoices are different: a plan version or sealed usage was changed", different, len(names))
		}
		if invoice == "" {
			fmt.Fprintf(o.Out, "%d invoices are identical\n", len(names))
		}
		return nil
	})
}

// Check looks for what must never be in the books.
func (o Billing) Check(ctx context.Context) error {
	return o.with(ctx, func(x books) error {
		found, err := x.Problems(ctx)
		if err != nil {
			return err
		}
		for _, p := range found {
			fmt.Fprintln(o.Out, p)
		}
		if len(found) > 0 {
			return errors.New("the books are not in order")
		}
		fmt.Fprintln(o.Out, "The books are in order")
		return nil
	})
}
