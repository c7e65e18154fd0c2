package plans

import (
	"context"
	"database/sql"
	"errors"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/billing"
	"slipway/internal/web/dashboard/shell"
)

// mostReceivables caps the invoices listed, oldest first.
const mostReceivables = 200

type receivable struct {
	invoiceRow
	Customer, Page string // name and page of the account
	Held           bool
}

// receivablesPage lists open invoices. An invoice number in the URL fills the form with its remaining amount.
func (d *Pages) receivablesPage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	list, err := d.billing.Receivables(ctx, d.DB, mostReceivables)
	if err != nil {
		return shell.Answer{}, err
	}
	var data struct {
		Invoices        []receivable
		Invoice, Amount string // for recording a transfer
	}
	for _, i := range list {
		r := receivable{invoiceRow: rowOf(i), Customer: string(i.Owner), Held: i.Held}
		if number := q.URL.Query().Get("invoice"); number != "" && number == i.Number && i.Remaining() > 0 {
			data.Invoice, data.Amount = number, i.Currency.Decimal(i.Remaining())
		}
		var name string
		err := d.DB.QueryRow(ctx, `SELECT name FROM owner_standing WHERE owner_id = $1`, i.Owner).Scan(&name)
		if err == nil {
			r.Customer, r.Page = name, "/operator/customers/"+string(i.Owner)
		} else if !errors.Is(err, sql.ErrNoRows) {
			return shell.Answer{}, err
		}
		data.Invoices = append(data.Invoices, r)
	}
	return shell.Page("operator_receivables", "Receivables", data), nil
}

// record stores a received transfer. The amount is in the invoice's currency.
func (d *Pages) record(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	said := ""
	err := d.ActOn(ctx, q, func(tx *db.Tx) (audit.Event, error) {
		i, err := d.billing.InvoiceOf(ctx, tx, q.Value("invoice"))
		if err != nil {
			return audit.Event{}, shell.At("invoice", err)
		}
		n, err := i.Currency.ParseDecimal(q.Value("amount"))
		if err != nil {
			return audit.Event{}, shell.At("amount", &fault.Error{Kind: fault.Invalid, Message: "Invalid amount", Details: err.Error()})
		}
		p, err := d.billing.RecordTx(ctx, tx, string(i.ID), billing.Received{Amount: n, Reference: q.Value("reference")})
		said = "Recorded " + i.Currency.Format(n) + " for invoice " + i.Number
		return audit.Event{Action: "payment.recorded", Subject: string(p.ID), Detail: said}, err
	})
	return shell.GoTo("/operator/receivables", said), err
}

// release finalizes a held draft.
func (d *Pages) release(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	err := d.Act(ctx, q, "invoice.finalized", func(tx *db.Tx) (string, error) {
		id := q.PathValue("invoice")
		return id, d.billing.FinalizeTx(ctx, tx, id)
	})
	return shell.GoTo("/operator/receivables", "Invoice finalized"), err
}
