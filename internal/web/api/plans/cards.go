package plans

import (
	"context"
	"net/http"
	"reflect"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/lazyregexp"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/billing"
	"slipway/internal/tenant/money"
	"slipway/internal/tenant/stripe"
	"slipway/internal/web/api/contract"
)

// CardBody is a stored card.
type CardBody struct {
	Brand    string  `json:"brand" example:"visa"`
	Last4    string  `json:"last4" example:"4242"`
	ExpMonth int64   `json:"expMonth" example:"12"`
	ExpYear  int64   `json:"expYear" example:"2030"`
	Currency string  `json:"currency" example:"EUR" doc:"Currency of the invoices that it pays."`
	Declined *string `json:"declined" doc:"Why it is no longer charged. Null: it is."`
}

// PageBody is a page of the payment provider.
type PageBody struct {
	URL string `json:"url" doc:"Page of the payment provider. It can be used for about half an hour." example:"https://checkout.stripe.com/c/pay/cs_…"`
}

type currencyIn struct {
	Currency string `query:"currency" doc:"Default: the plan's, or EUR."`
}

type setupIn struct {
	Body struct {
		Currency  string      `json:"currency,omitempty" maxLength:"3" doc:"Default: the plan's, or EUR." example:"EUR"`
		Subscribe *setupFirst `json:"subscribe,omitempty" doc:"Subscription that begins once the card is stored."`
	}
}

type setupFirst struct {
	ChoiceFields
	Coupon string `json:"coupon,omitempty" maxLength:"40" doc:"Code of a coupon."`
}

type payIn struct {
	ID string `path:"id" doc:"The invoice's id."`
}

type takenBody struct {
	Message string `json:"message" example:"Event received"`
}

type stripeIn struct {
	Account string `path:"account" doc:"Id from the webhook's URL."`
}

// registerCards registers the operations of cards. r and w make routes that read and write.
func (a *API) registerCards(r, w func(path, id, summary, doc, noun string) contract.Route) {
	contract.Get(a.API, r("/billing/payment-method", "getPaymentMethod", "Get the payment method",
		"The card that invoices are charged to. 404 if none is stored.", "card"), a.getCard)
	contract.Ask(a.API, w("/billing/payment-method", "setPaymentMethod", "Add or replace the payment method",
		"Returns a page of the payment provider on which a card is stored, in place of the one before. Slipway never sees card numbers. "+
			"With `subscribe` that subscription begins once the card is stored, at the price of the `digest` or not at all.", "card"), a.setCard)
	contract.Change(a.API, "DELETE", w("/billing/payment-method", "deletePaymentMethod", "Delete the payment method",
		"Invoices are to be paid in another way from then on.", "card"), a.deleteCard)
	contract.Ask(a.API, w("/invoices/{id}/pay", "payInvoice", "Pay an invoice by card",
		"Returns a page on which the invoice is paid, or on which a payment is confirmed that the bank wants confirmed. Asked "+
			"again, it is the same page while that can be used. "+
			"409 `payment_open` while a payment is under way.", "invoice"), a.payInvoice)
	if a.Stripe == nil {
		return
	}
	a.AddHook(stripeCalls{a})
	contract.PostHook(a.API, contract.Route{
		Path: stripe.HookPath + "{account}", ID: "callStripeHook", Tag: "Billing", Summary: "Report an event of Stripe",
		Noun: "webhook", Hook: true,
		Doc: "Called by Stripe. The body is at most 1 MiB and signed with the webhook's secret, at most 300 seconds ago. What the " +
			"event is about is fetched from Stripe; the event itself is not trusted. Repeated events are processed once.",
	}, reflect.TypeFor[takenBody](), a.callStripeHook)
}

// cardCurrency returns the request's currency, or the account's.
func (a *API) cardCurrency(ctx context.Context, c account.Caller, name string) (money.Currency, error) {
	if name == "" {
		return a.billingCurrency(ctx, c), nil
	}
	cur, err := money.ParseCurrency(name)
	if err != nil {
		return "", fault.New(fault.Invalid, "invalid_currency", "Invalid currency", err.Error()).Got(name)
	}
	return cur, nil
}

func (a *API) getCard(ctx context.Context, c account.Caller, in *currencyIn) (CardBody, error) {
	cur, err := a.cardCurrency(ctx, c, in.Currency)
	if err != nil {
		return CardBody{}, err
	}
	k, err := a.Billing.Card(ctx, a.DB, c.Owner, cur)
	if err == nil && k.Method == "" {
		err = fault.Missing("card")
	}
	return CardBody{k.Brand, k.Last4, k.ExpMonth, k.ExpYear, string(cur), contract.Some(k.Declined)}, err
}

func (a *API) setCard(ctx context.Context, c account.Caller, in *setupIn) (PageBody, error) {
	cur, err := a.cardCurrency(ctx, c, in.Body.Currency)
	if err != nil {
		return PageBody{}, err
	}
	var do *billing.Action
	digest := ""
	if f := in.Body.Subscribe; f != nil {
		x := f.action(billing.Subscribe)
		x.Coupon, digest, do = f.Coupon, f.Digest, &x
	}
	url, err := a.Billing.BeginSetup(ctx, c.Owner, cur, do, digest, a.BaseURL+account.PageOf(c.Slug, "/account/plan"))
	return PageBody{url}, err
}

func (a *API) deleteCard(
	ctx context.Context, tx *db.Tx, c account.Caller, in *currencyIn,
) (out contract.Message, did audit.Event, err error) {
	cur, err := a.cardCurrency(ctx, c, in.Currency)
	if err != nil {
		return out, did, err
	}
	out.Message = "Card deleted"
	return out, audit.Event{Action: "billing.card_deleted"}, a.Billing.RemoveCardTx(ctx, tx, c.Owner, cur)
}

func (a *API) payInvoice(ctx context.Context, c account.Caller, in *payIn) (PageBody, error) {
	url, err := a.Billing.PayNow(ctx, c.Owner, billing.InvoiceID(in.ID), a.BaseURL+account.PageOf(c.Slug, "/account/invoices/"+in.ID))
	return PageBody{url}, err
}

func (a *API) callStripeHook(ctx context.Context, r contract.Route, in *stripeIn) (*contract.Reply, error) {
	req := contract.From(ctx)
	if len(req.Body) > contract.MaxBody {
		return nil, contract.ErrTooLarge
	}
	ctx, cancel := context.WithTimeout(db.WithShare(ctx, "stripe"), contract.HandlerTimeout)
	defer cancel()
	if err := a.Stripe.Take(ctx, in.Account, req.HTTP.Header.Get("Stripe-Signature"), req.Body); err != nil {
		return nil, err
	}
	kept, err := r.Keep(takenBody{"Event received"})
	return contract.Unkeep(kept, false, err)
}

var stripeForm = lazyregexp.New(`^` + stripe.HookPath + `(sta_[a-z2-7]{26})$`)

// stripeCalls handles calls of Stripe.
type stripeCalls struct{ a *API }

func (stripeCalls) Most() int { return contract.MaxBody }

func (stripeCalls) Is(path string) bool { return stripeForm.MatchString(path) }

func (c stripeCalls) Key(ctx context.Context, r *http.Request) (string, bool) {
	m := stripeForm.FindStringSubmatch(r.URL.Path)
	if m == nil {
		return "", false
	}
	got, err := c.a.Stripe.Account(ctx, c.a.DB)
	return contract.AppPrefix + m[1], err == nil && got.ID == m[1]
}
