package billing

import (
	"context"

	"slipway/internal/platform/db"
	"slipway/internal/platform/id"
	"slipway/internal/tenant/billing/party"
	"slipway/internal/tenant/money"
)

// Provider moves money by card. Its methods use the network, so they must not be called within a transaction. Repeating
// a call with the same order has the effect of one call. An error says nothing about whether the call took effect.
type Provider interface {
	// Name is stored with payments.
	Name() string
	// On reports whether an account is connected.
	On(ctx context.Context, r db.Reader) (bool, error)
	// Chargeable reports whether an amount can be charged; providers have minimum amounts.
	Chargeable(c money.Currency, amount int64) bool
	// Customer registers the owner, once per currency.
	Customer(ctx context.Context, owner id.Owner, c money.Currency, p party.Party) (customer string, err error)
	// Setup returns a page that stores a card.
	Setup(ctx context.Context, o SetupOrder) (session, url string, err error)
	// Stored returns the outcome of a visit to that page.
	Stored(ctx context.Context, session string) (Stored, error)
	// Charge charges a stored card without the owner present.
	Charge(ctx context.Context, o Order) (Outcome, error)
	// Page returns a page on which the owner makes or confirms a payment.
	Page(ctx context.Context, o Order, back string) (session, url string, err error)
	// Find returns the outcome of a payment.
	Find(ctx context.Context, o Order) (Outcome, error)
	// Abandon ends a payment that waits for its owner, unless it was made meanwhile.
	Abandon(ctx context.Context, o Order) (Outcome, error)
	// Refund pays back part of a payment.
	Refund(ctx context.Context, o RefundOrder) (RefundOutcome, error)
	// Forget deletes the provider's data about a customer, except payments.
	Forget(ctx context.Context, customer string) error
}

// Order is a payment as sent to the provider. It never changes once sent.
type Order struct {
	Payment   PaymentID
	Invoice   string // number, shown on statements
	Customer  string
	Method    string // '': entered on the page
	Session   string // of the page; '' if none
	Reference string // the provider's ID of the payment; '' while unknown
	Amount    int64
	Currency  money.Currency
	CreatedAt db.Time
	SentAt    db.Time
}

// Outcome is the provider's report of a payment.
type Outcome struct {
	Payment   PaymentID // if the provider knows it
	Reference string    // the provider's ID of the payment
	Status    string    // one of the payment statuses; '' if the provider doesn't know the payment
	Amount    int64     // received
	Currency  money.Currency
	Code      string // reason of a failure
	Final     bool   // the card must not be charged again
	Card      Card   // stored along with the payment. Optional.
	At        db.Time
}

// SetupOrder is a visit to the page that stores a card.
type SetupOrder struct {
	ID        string
	Customer  string
	Currency  money.Currency
	Back      string // return URL
	CreatedAt db.Time
}

// Stored is the outcome of a visit to the page that stores a card.
type Stored struct {
	Setup   string // the order's ID
	Card    Card   // Method is empty if no card was stored
	Expired bool
}

// Card is a card stored by the provider.
type Card struct {
	Customer    string
	Method      string // '': no card
	Brand       string
	Last4       string
	ExpMonth    int64
	ExpYear     int64
	Fingerprint string // equal for the same card number
	Declined    string // why it must not be charged any more; '' if usable
	since       db.Time
}

// Usable reports whether the card may be charged.
func (c Card) Usable() bool { return c.Method != "" && c.Declined == "" }

// RefundOrder is a refund as sent to the provider.
type RefundOrder struct {
	ID        string
	Payment   PaymentID
	Reference string // of the payment
	Amount    int64
	Currency  money.Currency
}

// RefundOutcome is the provider's report of a refund.
type RefundOutcome struct {
	ID        string // the order's; '' if made in the provider's dashboard
	Reference string
	Payment   string // the payment's reference at the provider
	Status    string // pending, completed or failed
	Amount    int64
	Currency  money.Currency
}

// Dispute is a payment that a bank reversed.
type Dispute struct {
	Reference string
	Payment   string // the payment's reference at the provider
	Status    string // open, won or lost
	Amount    int64
	Currency  money.Currency
}

// Connect sets the card provider. Without one, invoices are paid by bank transfer only.
func (b *Billing) Connect(p Provider) { b.provider = p }

// Cards reports whether invoices can be paid by card.
func (b *Billing) Cards(ctx context.Context, r db.Reader) (bool, error) {
	if b.provider == nil {
		return false, nil
	}
	return b.provider.On(ctx, r)
}
