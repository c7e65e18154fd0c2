package billing

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/id"
	"slipway/internal/platform/text"
	"slipway/internal/tenant/billing/party"
	"slipway/internal/tenant/money"
)

// ledgerAccount is an account of the double-entry ledger. Debits are positive, credits are negative.
type ledgerAccount string

const (
	receivable ledgerAccount = "receivable" // owed by owners
	revenue    ledgerAccount = "revenue"    // sales without tax
	taxes      ledgerAccount = "tax"        // owed to tax offices
	cash       ledgerAccount = "cash"       // money received
	credit     ledgerAccount = "credit"     // owners' credit balances
	granted    ledgerAccount = "granted"    // credit given for free
	writeOff   ledgerAccount = "write_off"  // uncollectible amounts
	refunding  ledgerAccount = "refund"     // refunds in progress
)

// entry is a transaction of the ledger.
type entry struct {
	key       string // unique, so that an entry is posted once
	owner     id.Owner
	currency  money.Currency
	invoice   InvoiceID
	reference string
	amounts   map[ledgerAccount]int64
}

// postTx writes an entry. It refuses a known key and amounts that don't sum to 0.
func (b *Billing) postTx(ctx context.Context, tx *db.Tx, e entry) error {
	sum, err := money.Add(slices.Collect(maps.Values(e.amounts))...)
	if err != nil || sum != 0 {
		return fmt.Errorf("post %s: the amounts %v sum up to %d", e.key, e.amounts, sum)
	}
	now := b.now()
	for _, a := range slices.Sorted(maps.Keys(e.amounts)) {
		if e.amounts[a] == 0 {
			continue
		}
		if _, err := tx.Exec(ctx, `
			INSERT INTO billing_ledger (txn_key, account, owner_id, currency, amount, invoice_id, reference, at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`, e.key, a, e.owner, e.currency, e.amounts[a], e.invoice, e.reference, now); err != nil {
			return fmt.Errorf("post %s: %w", e.key, err)
		}
	}
	return nil
}

// Balance is an owner's credit in a currency.
type Balance struct {
	Currency money.Currency
	Amount   int64
}

// Credits returns an owner's credit balances.
func (b *Billing) Credits(ctx context.Context, r db.Reader, owner id.Owner) ([]Balance, error) {
	rows, err := r.Query(ctx, `
		SELECT currency, CAST(-SUM(amount) AS BIGINT) FROM billing_ledger WHERE owner_id = $1 AND account = 'credit'
		GROUP BY currency HAVING SUM(amount) <> 0 ORDER BY currency`, owner)
	list, err := db.Collect(rows, err, func(s db.Scanner) (x Balance, err error) { return x, s.Scan(&x.Currency, &x.Amount) })
	if err != nil {
		return nil, fmt.Errorf("read credit: %w", err)
	}
	return list, nil
}

func (b *Billing) creditOf(ctx context.Context, r db.Reader, owner id.Owner, c money.Currency) (int64, error) {
	list, err := b.Credits(ctx, r, owner)
	for _, x := range list {
		if x.Currency == c {
			return x.Amount, err
		}
	}
	return 0, err
}

// GiveCreditTx gives an owner credit, which pays open invoices first and later ones before any other means.
func (b *Billing) GiveCreditTx(ctx context.Context, tx *db.Tx, owner id.Owner, m Balance, reason string) error {
	if err := checkMoney(m); err != nil {
		return err
	}
	if !text.Fits(reason, 1, 200) || reason == "" {
		return fault.InvalidField("reason", "reason must have 1 to 200 characters on one line", reason)
	}
	if err := party.LockTx(ctx, tx, owner); err != nil {
		return err
	}
	if err := b.postTx(ctx, tx, entry{
		key: db.NewID("crd"), owner: owner, currency: m.Currency, reference: reason,
		amounts: map[ledgerAccount]int64{granted: m.Amount, credit: -m.Amount},
	}); err != nil {
		return err
	}
	return b.useCreditTx(ctx, tx, owner, m.Currency)
}

// useCreditTx pays open invoices from an owner's credit, by due date. It skips invoices with a payment in progress,
// which would be paid twice. Using credit emits no payment event.
func (b *Billing) useCreditTx(ctx context.Context, tx *db.Tx, owner id.Owner, c money.Currency) error {
	has, err := b.creditOf(ctx, tx, owner, c)
	if err != nil || has <= 0 {
		return err
	}
	rows, err := tx.Query(ctx, `SELECT `+invoiceColumns+` FROM billing_invoices WHERE owner_id = $1 AND status = 'open' AND currency = $2
		ORDER BY due_at, id`, owner, c)
	list, err := db.Collect(rows, err, scanInvoice)
	if err != nil {
		return fmt.Errorf("find open invoices: %w", err)
	}
	for _, i := range list {
		used := min(has, i.Remaining())
		open, _, err := b.attempts(ctx, tx, i.ID)
		if err != nil {
			return err
		}
		if open || used <= 0 {
			continue
		}
		has -= used
		if err := b.postTx(ctx, tx, entry{
			key: db.NewID("crd"), owner: owner, currency: c, invoice: i.ID, reference: i.Number,
			amounts: map[ledgerAccount]int64{credit: used, receivable: -used},
		}); err != nil {
			return err
		}
		if err := b.reduceTx(ctx, tx, i, used, 0, Paid); err != nil {
			return err
		}
	}
	return nil
}

// RefundTx records that credit was paid out, for example by bank transfer. It can't exceed the balance, and a reference
// counts once.
func (b *Billing) RefundTx(ctx context.Context, tx *db.Tx, owner id.Owner, m Balance, reference string) error {
	if err := checkMoney(m); err != nil {
		return err
	}
	if err := checkReference(reference); err != nil {
		return err
	}
	if err := party.LockTx(ctx, tx, owner); err != nil {
		return err
	}
	has, err := b.creditOf(ctx, tx, owner, m.Currency)
	if err != nil {
		return err
	}
	if has < m.Amount {
		return fault.New(fault.Conflict, "refund_exceeds_credit", "The refund exceeds the credit",
			fmt.Sprintf("the owner's credit is %s; a credit note on a paid invoice adds to it", m.Currency.Format(has)))
	}
	fresh, err := b.onceTx(ctx, tx, "refund:"+reference)
	if err != nil {
		return err
	}
	if !fresh {
		return errRecorded
	}
	return b.postTx(ctx, tx, entry{
		key: db.NewID("rfd"), owner: owner, currency: m.Currency, reference: reference,
		amounts: map[ledgerAccount]int64{credit: m.Amount, cash: -m.Amount},
	})
}

func checkMoney(m Balance) error {
	if _, err := money.ParseCurrency(string(m.Currency)); err != nil {
		return fault.InvalidField("currency", err.Error(), string(m.Currency))
	}
	if m.Amount <= 0 || m.Amount > money.Most {
		return fault.InvalidField("amount", fmt.Sprintf("amount must be 1 to %d, in the currency's smallest unit", int64(money.Most)), m.Amount)
	}
	return nil
}
