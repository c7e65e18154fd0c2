package billing

import (
	"context"

	"slipway/internal/platform/db"
	"slipway/internal/platform/id"
	"slipway/internal/tenant/billing/party"
	"slipway/internal/tenant/money"
)

// Provider moves money by card. Its methods use the network: none is called within a transaction. Each may be repeated
// with the same order and has the effect of one call; an error says nothing about what happened.
type Provider interface {
	// Name is what payments are kept under.
	Name() string
	// On reports whether there is an account that moves money.
	On(ctx context.Context, r db.Reader) (bool, error)
	// Chargeable reports whether an amount can be charged: providers have a least amount, and other digits.
	Chargeable(c money.Currency, amount int64) bool
	// Customer makes the owner known to the provider, once for a currency.
	Customer(ctx context.Context, owner id.Owner, c money.Currency, p party.Party) (customer string, err error)
	// Setup returns the page that stores a card.
	Setup(ctx context.Context, o SetupOrder) (session, url string, err error)
	// Stored returns what came of a visit of that page.
	Stored(ctx context.Context, session string) (Stored, error)
	// Charge takes a payment from a stored card while its owner is away.
	Charge(ctx context.Context, o Order) (Outcome, error)
	// Page returns where the owner makes a payment, or confirms one that the bank wants confirmed.
	Page(ctx context.Context, o Order, back string) (session, url string, err error)
	// Find returns what became of a payment.
	Find(ctx context.Context, o Order) (Outcome, error)
	// Abandon ends a payment that waits for its owner, unless it was made meanwhile.
	Abandon(ctx context.Context, o Order) (Outcome, error)
	// Refund pays a part of a payment back.
	Refund(ctx context.Context, o RefundOrder) (RefundOutcome, error)
	// Forget deletes what the provider stores about a customer. Payments are kept.
	Forget(ctx context.Context, customer string) error
}

// Order is a payment as the provider gets it. It never changes once it was sent.
type Order struct {
	Payment   PaymentID
	Invoice   string // number, for statements
	Customer  string
	Method    string // '' is entered on the page
	Session   string // of the page; '' where there was none
	Reference string // as the provider names the payment; '' while it is unknown
	Amount    int64
	Currency  money.Currency
	CreatedAt db.Time
	SentAt    db.Time
}

// Outcome is what became of a payment.
type Outcome struct {
	Payment   PaymentID // where the provider tells of it
	Reference string    // as the provider names it
	Status    string    // one of the statuses of payments; '' where the provider doesn't know the payment
	Amount    int64     // that was received
	Currency  money.Currency
	Code      string // why it failed
	Final     bool   // the card must not be charged again
	Card      Card   // that was stored with it. Optional.
	At        db.Time
}

// SetupOrder is a visit of the page that stores a card.
type SetupOrder struct {
	ID        string
	Customer  string
	Currency  money.Currency
	Back      string // URL
	CreatedAt db.Time
}

// Stored is what came of a visit of the page that stores a card.
type Stored struct {
	Setup   string // the order's ID
	Card    Card   // Method is empty while there is none
	Expired bool
}

// Card is a card that the provider stores.
type Card struct {
	Customer    string
	Method      string // '' is none
	Brand       string
	Last4       string
	ExpMonth    int64
	ExpYear     int64
	Fingerprint string // equal for equal numbers
	Declined    string // why it must not be charged any more; '' is fine
	since       db.Time
}

// Usable reports whether it may be charged.
func (c Card) Usable() bool { return c.Method != "" && c.Declined == "" }

// RefundOrder is a refund as the provider gets it.
type RefundOrder struct {
	ID        string
	Payment   PaymentID
	Reference string // of the payment
	Amount    int64
	Currency  money.Currency
}

// RefundOutcome is what became of a refund.
type RefundOutcome struct {
	ID        string // the order's; '' where it was made at the provider
	Reference string
	Payment   string // the payment's reference
	Status    string // pending, completed or failed
	Amount    int64
	Currency  money.Currency
}

// Dispute is a payment that a bank took back.
type Dispute struct {
	Reference string
	Payment   string // the payment's reference
	Status    string // open, won or lost
	Amount    int64
	Currency  money.Currency
}

// Connect sets what moves money by card. Without it, invoices are paid by bank transfer alone.
func (b *Billing) Connect(p Provider) { b.provider = p }

// Cards reports whether invoices can be paid by card.
func (b *Billing) Cards(ctx context.Context, r db.Reader) (bool, error) {
	if b.provider == nil {
		return false, nil
	}
	return b.provider.On(ctx, r)
}
