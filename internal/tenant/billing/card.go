package billing

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fair"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/id"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/billing/party"
	"slipway/internal/tenant/billing/plan"
	"slipway/internal/tenant/money"
)

// Card returns the card that pays an owner's invoices in a currency. Its Method is empty if none is stored.
func (b *Billing) Card(ctx context.Context, r db.Reader, owner id.Owner, c money.Currency) (k Card, err error) {
	err = r.QueryRow(ctx, `
		SELECT customer, method, brand, last4, exp_month, exp_year, declined, updated_at FROM billing_cards
		WHERE owner_id = $1 AND currency = $2`,
		owner, c).Scan(&k.Customer, &k.Method, &k.Brand, &k.Last4, &k.ExpMonth, &k.ExpYear, &k.Declined, &k.since)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return k, fmt.Errorf("read card: %w", err)
	}
	return k, nil
}

func (b *Billing) writeCardTx(ctx context.Context, tx *db.Tx, owner id.Owner, c money.Currency, k Card) error {
	if _, err := tx.Exec(ctx, `
		INSERT INTO billing_cards (owner_id, currency, provider, customer, method, brand, last4, exp_month, exp_year, declined, updated_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
		ON CONFLICT (owner_id, currency) DO UPDATE SET provider = excluded.provider, customer = excluded.customer, method = excluded.method,
			brand = excluded.brand, last4 = excluded.last4, exp_month = excluded.exp_month, exp_year = excluded.exp_year,
			declined = excluded.declined, updated_at = excluded.updated_at`,
		owner, c, b.provider.Name(), k.Customer, k.Method, k.Brand, k.Last4, k.ExpMonth, k.ExpYear, k.Declined, b.now()); err != nil {
		return fmt.Errorf("write card: %w", err)
	}
	tx.Notify(owner.Topic())
	return nil
}

// RemoveCardTx forgets the owner's card in a currency. Later invoices are paid by bank transfer.
func (b *Billing) RemoveCardTx(ctx context.Context, tx *db.Tx, owner id.Owner, c money.Currency) error {
	if err := party.LockTx(ctx, tx, owner); err != nil {
		return err
	}
	k, err := b.Card(ctx, tx, owner, c)
	if err != nil {
		return err
	}
	if k.Method == "" {
		return fault.Missing("card")
	}
	return b.writeCardTx(ctx, tx, owner, c, Card{Customer: k.Customer})
}

// Setup is a visit to the provider's page that stores a card.
type Setup struct {
	ID       string // "set_" and 26 characters
	Owner    id.Owner
	Currency money.Currency
	Status   string // open, completed, failed or expired
	Problem  string // why the chosen subscription couldn't begin
	session  string
	action   string
	digest   string
	created  db.Time
}

const setupColumns = `id, owner_id, currency, session, action, digest, status, problem, created_at`

func scanSetup(r db.Scanner) (s Setup, err error) {
	return s, r.Scan(&s.ID, &s.Owner, &s.Currency, &s.session, &s.action, &s.digest, &s.Status, &s.Problem, &s.created)
}

// maxSetups caps the visits that one owner starts per hour.
const maxSetups = 20

// BeginSetup returns the URL of the page on which the owner stores a card for a currency. With an action, storing the
// card also begins that subscription, but only at the price identified by digest. The provider sends the owner back to
// the URL back with ?setup=ID added.
func (b *Billing) BeginSetup(
	ctx context.Context, owner id.Owner, c money.Currency, a *Action, digest, back string,
) (url string, err error) {
	if on, err := b.Cards(ctx, b.c.DB); err != nil {
		return "", err
	} else if !on {
		return "", errNoCards
	}
	if _, err := money.ParseCurrency(string(c)); err != nil {
		return "", fault.InvalidField("currency", err.Error(), string(c))
	}
	s := Setup{ID: db.NewID("set"), Owner: owner, Currency: c, digest: digest, created: b.now()}
	if a != nil {
		text, err := json.Marshal(a)
		if err != nil {
			return "", err
		}
		s.action = string(text)
	}
	var k Card
	var p party.Profile
	err = b.c.DB.Write(ctx, func(tx *db.Tx) (err error) {
		if err := party.LockTx(ctx, tx, owner); err != nil {
			return err
		}
		if a != nil { // refuse an impossible action before asking for a card
			q, err := b.decide(ctx, tx, owner, *a)
			if err != nil {
				return err
			}
			if digest != "" && digest != q.Digest() {
				return errPriceChanged
			}
			s.Currency = q.Currency
		}
		var n int
		if err := tx.QueryRow(ctx, `SELECT count(*) FROM billing_setups WHERE owner_id = $1 AND created_at > $2`, owner, b.now().Add(-hour)).
			Scan(&n); err != nil {
			return fmt.Errorf("count visits: %w", err)
		}
		if n >= maxSetups {
			return &fault.Error{Kind: fault.Limited, Message: "Too many attempts to add a card", Details: "try again in an hour", RetryAfter: hour}
		}
		if k, err = b.Card(ctx, tx, owner, s.Currency); err != nil {
			return err
		}
		if p, err = b.Profile(ctx, tx, owner); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `INSERT INTO billing_setups (`+setupColumns+`) VALUES ($1, $2, $3, '', $4, $5, 'open', '', $6)`,
			s.ID, s.Owner, s.Currency, s.action, s.digest, s.created)
		return err
	})
	if err != nil {
		return "", err
	}
	if k.Customer, err = b.customer(ctx, owner, s.Currency, k, p.Party); err != nil {
		return "", err
	}
	session, url, err := b.provider.Setup(ctx,
		SetupOrder{ID: s.ID, Customer: k.Customer, Currency: s.Currency, Back: account.AddParam(back, "setup", s.ID), CreatedAt: s.created})
	if err != nil {
		return "", b.providerFault(ctx, "begin to store a card", err)
	}
	err = b.c.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE billing_setups SET session = $2 WHERE id = $1`, s.ID, session)
		return err
	})
	return url, err
}

// NeedsCard reports whether the owner must store a card before the action.
func (b *Billing) NeedsCard(ctx context.Context, r db.Reader, owner id.Owner, a Action, v plan.Version) (bool, error) {
	on, err := b.Cards(ctx, r)
	if err != nil || !on || a.Kind != Subscribe || a.Invoiced || v.Amount == 0 && len(v.Rates) == 0 {
		return false, err
	}
	settings, err := b.SettingsFor(ctx, r, owner)
	if err != nil || settings.Cards == party.CardsOptional {
		return false, err
	}
	k, err := b.Card(ctx, r, owner, v.Currency)
	return !k.Usable(), err
}

var (
	errNeedsCard = fault.New(fault.Conflict, "payment_method_required", "A card is required",
		"add one with the plan to subscribe to; the subscription begins once it is stored")
	errNoCards      = fault.New(fault.Conflict, "no_cards", "Cards aren't accepted here", "invoices are paid by bank transfer")
	errPriceChanged = fault.New(fault.Conflict, "price_changed", "The price has changed since the preview", "preview the action again")
)

// providerFault logs a provider's error and returns a fault without its details.
func (b *Billing) providerFault(ctx context.Context, what string, err error) error {
	if fault.As(err) != nil || ctx.Err() != nil {
		return err
	}
	b.c.Log.ErrorContext(ctx, "payment provider failed", "at", what, "err", err)
	return &fault.Error{
		Kind: fault.Unavailable, Message: "The payment provider can't be reached", Details: "try again in a minute; nothing was charged",
		Code: "provider_unavailable", RetryAfter: time.Minute,
	}
}

// customer registers the owner with the provider.
func (b *Billing) customer(ctx context.Context, owner id.Owner, c money.Currency, k Card, p party.Party) (string, error) {
	if k.Customer != "" {
		return k.Customer, nil
	}
	customer, err := b.provider.Customer(ctx, owner, c, p)
	if err != nil {
		return "", b.providerFault(ctx, "create a customer", err)
	}
	err = b.c.DB.Write(ctx, func(tx *db.Tx) error {
		if err := party.LockTx(ctx, tx, owner); err != nil {
			return err
		}
		now, err := b.Card(ctx, tx, owner, c)
		if err != nil {
			return err
		}
		if now.Customer != "" { // another request was faster
			customer = now.Customer
			return nil
		}
		return b.writeCardTx(ctx, tx, owner, c, Card{Customer: customer})
	})
	return customer, err
}

// Setup returns one of the owner's visits, or a NotFound fault.
func (b *Billing) Setup(ctx context.Context, r db.Reader, owner id.Owner, setup string) (Setup, error) {
	s, err := scanSetup(r.QueryRow(ctx, `SELECT `+setupColumns+` FROM billing_setups WHERE id = $1 AND owner_id = $2`, setup, owner))
	if errors.Is(err, sql.ErrNoRows) {
		return s, fault.Missing("visit")
	}
	if err != nil {
		return s, fmt.Errorf("read visit: %w", err)
	}
	return s, nil
}

// LookAtSetup asks the provider for a visit's outcome, stores it, and returns the visit.
func (b *Billing) LookAtSetup(ctx context.Context, owner id.Owner, setup string) (Setup, error) {
	s, err := b.Setup(ctx, b.c.DB, owner, setup)
	if err != nil || s.Status != "open" || s.session == "" || b.provider == nil {
		return s, err
	}
	release, ok := b.asks.Try(fair.Who{Owner: string(owner)})
	if !ok {
		return s, nil
	}
	defer release()
	got, err := b.provider.Stored(ctx, s.session)
	if err != nil {
		return s, b.providerFault(ctx, "look at a stored card", err)
	}
	if err := b.KeepCard(ctx, got); err != nil {
		return s, err
	}
	list, err := b.Payments(ctx, b.c.DB, owner, "", 10) // the owner waits, so send the first payment now
	if err != nil {
		return s, err
	}
	for _, p := range list {
		if p.Status == PaymentPending {
			if _, err := b.Proceed(ctx, p.ID); err != nil {
				return s, err
			}
		}
	}
	return b.Setup(ctx, b.c.DB, owner, setup)
}

// KeepCard records the outcome of a visit and begins the subscription chosen before it. It is idempotent.
func (b *Billing) KeepCard(ctx context.Context, got Stored) error {
	return b.c.DB.Write(ctx, func(tx *db.Tx) error {
		s, err := scanSetup(tx.QueryRow(ctx, `SELECT `+setupColumns+` FROM billing_setups WHERE id = $1`, got.Setup))
		if errors.Is(err, sql.ErrNoRows) {
			return nil // another installation's
		}
		if err != nil {
			return fmt.Errorf("read visit: %w", err)
		}
		if err := party.LockTx(ctx, tx, s.Owner); err != nil {
			return err
		}
		if s, err = b.Setup(ctx, tx, s.Owner, s.ID); err != nil || s.Status != "open" {
			return err
		}
		switch {
		case got.Card.Method != "":
			s.Status = "completed"
			if err := b.storeCardTx(ctx, tx, s.Owner, s.Currency, got.Card); err != nil {
				return err
			}
			if s.Problem, err = b.beginTx(ctx, tx, s, got.Card); err != nil {
				return err
			}
		case got.Expired:
			s.Status = "expired"
		default:
			return nil
		}
		_, err = tx.Exec(ctx, `UPDATE billing_setups SET status = $2, problem = $3 WHERE id = $1`, s.ID, s.Status, s.Problem)
		return err
	})
}

// storeCardTx stores a card and charges open invoices to it.
func (b *Billing) storeCardTx(ctx context.Context, tx *db.Tx, owner id.Owner, c money.Currency, k Card) error {
	if err := b.writeCardTx(ctx, tx, owner, c, k); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `UPDATE billing_invoices SET next_at = $3 WHERE owner_id = $1 AND currency = $2 AND status = 'open'`, owner, c,
		b.now()); err != nil {
		return fmt.Errorf("retry open invoices: %w", err)
	}
	return nil
}

// beginTx begins the subscription chosen before the card was stored, or returns why it can't.
func (b *Billing) beginTx(ctx context.Context, tx *db.Tx, s Setup, k Card) (problem string, err error) {
	if s.action == "" {
		return "", nil
	}
	var a Action
	if err := json.Unmarshal([]byte(s.action), &a); err != nil {
		return "", err
	}
	p, err := b.decide(ctx, tx, s.Owner, a)
	if err == nil && p.trial > 0 && k.Fingerprint != "" {
		if err = b.trialCardTx(ctx, tx, s.Owner, k); err == nil {
			p, err = b.decide(ctx, tx, s.Owner, a)
		}
	}
	if err == nil && s.digest != "" && s.digest != p.Digest() {
		err = errPriceChanged
	}
	if f := fault.As(err); f != nil { // the subscription was not written
		return f.Message, nil
	}
	if err != nil {
		return "", err
	}
	_, _, err = b.DoTx(ctx, tx, s.Owner, a, s.digest)
	return "", err
}

// trialCardTx allows one trial per card: an owner whose card already started another owner's trial gets none.
func (b *Billing) trialCardTx(ctx context.Context, tx *db.Tx, owner id.Owner, k Card) error {
	if _, err := tx.Exec(ctx,
		`INSERT INTO billing_trial_cards (fingerprint, owner_id, at) VALUES ($1, $2, $3) ON CONFLICT (fingerprint) DO NOTHING`,
		k.Fingerprint, owner, b.now()); err != nil {
		return fmt.Errorf("write card of trial: %w", err)
	}
	if _, err := tx.Exec(ctx, `
		UPDATE billing_profiles SET trial_at = $2 WHERE owner_id = $1 AND trial_at = 0
		AND EXISTS (SELECT 1 FROM billing_trial_cards WHERE fingerprint = $3 AND owner_id <> $1)`, owner, b.now(), k.Fingerprint); err != nil {
		return fmt.Errorf("write trial: %w", err)
	}
	return nil
}
