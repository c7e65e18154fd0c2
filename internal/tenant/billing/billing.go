// Package billing owns plans, subscriptions, invoices, payments and the ledger: what owners pay for, what they owe, and
// the webhook events about both.
//
// Amounts are integers, computed from plan versions that never change and from sealed usage. A provider only moves
// money. Each transition is one transaction under the owner's lock, with its ledger entries, the invoice's number, the
// webhook event, and an occurrence that prevents queuing the event twice.
//
// Times are UTC and periods begin on whole hours. Tick may run again after a crash: it finds only the steps that
// remain. The package never deletes what owners store.
package billing

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fair"
	"slipway/internal/platform/id"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/billing/party"
	"slipway/internal/tenant/billing/plan"
	"slipway/internal/tenant/limits"
	"slipway/internal/tenant/usage"
	"slipway/internal/tenant/webhook"
	"slipway/internal/tenant/webhook/event"
)

type Config struct {
	DB     *db.DB
	Usage  *usage.Usage
	Hooks  *webhook.Webhooks
	Limits *limits.Limits // Optional: without it, a preview doesn't list exceeded limits.
	Mail   account.Mailer // Optional: without it, owners get no emails.
	Log    *slog.Logger   // Optional.
	Clock  db.Clock       // Optional: defaults to the system clock.
}

// Billing is the service. It includes the plans for sale and the billing profiles, and is safe for concurrent use.
type Billing struct {
	*plan.Plans
	*party.Parties

	c    Config
	pdfs *fair.Pool
	asks *fair.Pool

	provider Provider // nil: bank transfer only
}

// New returns the service. It starts nothing: Work registers its job.
func New(c Config) *Billing {
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	if c.Clock == nil {
		c.Clock = db.Machine{}
	}
	return &Billing{
		Plans: plan.New(c.Clock), Parties: party.New(c.Clock), c: c,
		// share: total 2 documents are printed as PDF at once, 40 ms each; owner 1; edge 64 wait, 8 of one owner, others get 503
		pdfs: fair.New(fair.Config{Places: 2, Owner: 1, Waiting: 64, OwnerWaiting: 8}),
		// share: total 16 owners back from the provider's pages, for whom it is asked at once; owner 1; edge others see what is known
		asks: fair.New(fair.Config{Places: 16, Owner: 1}),
	}
}

func (b *Billing) now() db.Time { return b.c.Clock.Now() }

// Switch records whether the program runs with billing. Turning it off resumes sites paused for an unpaid invoice;
// turning it on pauses them again.
func Switch(ctx context.Context, d *db.DB, on bool) error {
	err := d.Write(ctx, func(tx *db.Tx) error {
		tx.Notify("paused") // the edge reloads the paused sites
		if _, err := tx.Exec(ctx, `DELETE FROM billing_off`); err != nil || on {
			return err
		}
		_, err := tx.Exec(ctx, `INSERT INTO billing_off (since) VALUES ($1)`, db.Now())
		return err
	})
	if err != nil {
		return fmt.Errorf("switch billing: %w", err)
	}
	return nil
}

const (
	hour = time.Hour
	day  = 24 * time.Hour
)

// floor rounds t down to a multiple of span.
func floor(t db.Time, span time.Duration) db.Time { return t - t%db.Time(span.Milliseconds()) }

// onceTx records an occurrence and reports whether it is new. Of two concurrent transactions, only one gets true.
func (b *Billing) onceTx(ctx context.Context, tx *db.Tx, occurrence string) (bool, error) {
	n, err := tx.Exec(ctx, `INSERT INTO billing_events (occurrence, at) VALUES ($1, $2) ON CONFLICT (occurrence) DO NOTHING`, occurrence,
		b.now())
	if err != nil {
		return false, fmt.Errorf("write occurrence: %w", err)
	}
	return n == 1, nil
}

// emitTx queues a webhook event once per occurrence.
func (b *Billing) emitTx(ctx context.Context, tx *db.Tx, owner id.Owner, occurrence string, e event.Event) error {
	fresh, err := b.onceTx(ctx, tx, occurrence)
	if err != nil || !fresh {
		return err
	}
	return b.c.Hooks.EmitTx(ctx, tx, owner, e)
}

// mailTx emails the owner's people.
func (b *Billing) mailTx(ctx context.Context, tx *db.Tx, owner id.Owner, subject, text, path string) error {
	if b.c.Mail == nil {
		return nil
	}
	return b.c.Mail.TellOwnerTx(ctx, tx, owner, subject, text, path)
}
