package admin

import (
	"context"
	"fmt"
	"io"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/id"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/stripe"
)

// secretMost bounds a file that holds a key.
const secretMost = 4 << 10

func readSecret(r io.Reader) (string, error) {
	text, err := io.ReadAll(io.LimitReader(r, secretMost))
	return string(text), err
}

// StripeConnect lets an account at Stripe move money. The key never appears in what is printed.
func (o Billing) StripeConnect(ctx context.Context, file io.Reader) error {
	key, err := readSecret(file)
	if err != nil {
		return err
	}
	return o.change(ctx, func(x books, tx *db.Tx) (id.Owner, audit.Event, string, error) {
		a, err := x.stripe.ConnectTx(ctx, tx, key)
		mode := "test mode"
		if a.Live {
			mode = "live mode"
		}
		said := fmt.Sprintf("Cards are accepted from now on (%s).\nCreate a webhook at Stripe for the events payment_intent.*, "+
			"checkout.session.*, charge.* and refund.* that calls %s%s at the address of the API, and pass its signing secret "+
			"to slipway billing stripe secret.", mode, stripe.HookPath, a.ID)
		return "", audit.Event{}, said, err
	})
}

// StripeSecret takes the signing secret of the webhook. The one before stays valid.
func (o Billing) StripeSecret(ctx context.Context, file io.Reader) error {
	secret, err := readSecret(file)
	if err != nil {
		return err
	}
	return o.change(ctx, func(x books, tx *db.Tx) (id.Owner, audit.Event, string, error) {
		_, err := x.stripe.SecretTx(ctx, tx, secret)
		return "", audit.Event{}, "Events are accepted with this secret and the one before", err
	})
}

// StripeStatus prints what is connected, and what differed when it was last compared.
func (o Billing) StripeStatus(ctx context.Context) error {
	return o.with(ctx, func(x books) error {
		a, err := x.stripe.Account(ctx, x.db)
		if err != nil {
			return err
		}
		when := func(t db.Time) string {
			if t == 0 {
				return "never"
			}
			return t.String()
		}
		fmt.Fprintf(o.Out, "Webhook: %s%s\nLive mode: %t\nSigning secret: %t\nEvents read until: %s\nCompared with the ledger: %s\n",
			stripe.HookPath, a.ID, a.Live, a.Secret, when(a.ReadUntil), when(a.ComparedAt))
		for _, d := range a.Differences {
			fmt.Fprintln(o.Out, "Difference:", d)
		}
		if len(a.Differences) > 0 {
			return fmt.Errorf("the ledger and Stripe differ in %d places", len(a.Differences))
		}
		return nil
	})
}

// StripeReplay lets the server list the events of so long again.
func (o Billing) StripeReplay(ctx context.Context, since time.Duration) error {
	return o.change(ctx, func(x books, tx *db.Tx) (id.Owner, audit.Event, string, error) {
		from, err := x.stripe.ReplayTx(ctx, tx, since)
		return "", audit.Event{}, "Events since " + from.String() + " are read again within ten minutes", err
	})
}

// StripeDisconnect ends the use of the account.
func (o Billing) StripeDisconnect(ctx context.Context) error {
	return o.change(ctx, func(x books, tx *db.Tx) (id.Owner, audit.Event, string, error) {
		return "", audit.Event{}, "Cards are no longer accepted", x.stripe.DisconnectTx(ctx, tx)
	})
}
