package stripe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	api "github.com/stripe/stripe-go/v85"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/id"
	"slipway/internal/tenant/billing"
	"slipway/internal/tenant/billing/party"
	"slipway/internal/tenant/money"
)

// Name is stored with payments.
func (*Stripe) Name() string { return "stripe" }

// On reports whether an account is connected.
func (s *Stripe) On(ctx context.Context, r db.Reader) (bool, error) {
	var n int
	if err := r.QueryRow(ctx, `SELECT count(*) FROM stripe_accounts WHERE ended_at = 0`).Scan(&n); err != nil {
		return false, fmt.Errorf("look for a Stripe account: %w", err)
	}
	return n > 0, nil
}

// hundredths lists zero-decimal currencies for which Stripe requires two decimals of zeros.
var hundredths = []money.Currency{"ISK", "UGX"}

// least holds Stripe's minimum amounts in Stripe's units. The default is 50.
var least = map[money.Currency]int64{
	"GBP": 30, "CZK": 1500, "DKK": 250, "HUF": 17500, "MXN": 1000, "MYR": 200, "NOK": 300, "PLN": 200, "RON": 200, "SEK": 300, "THB": 1000,
	"HKD": 400, "AED": 200,
	"KWD": 500, "BHD": 500, "JOD": 500, "OMR": 500, "TND": 500,
}

// toStripe converts an amount to Stripe's units. It returns false for amounts that Stripe can't represent: thousandths,
// and fifths of an ariary.
func toStripe(c money.Currency, n int64) (int64, bool) {
	switch {
	case slices.Contains(hundredths, c):
		return n * 100, n < 1<<40
	case c == "MGA":
		return n / 100, n%100 == 0
	case c.Digits() == 3:
		return n, n%10 == 0
	}
	return n, true
}

func fromStripe(c money.Currency, n int64) int64 {
	switch {
	case slices.Contains(hundredths, c):
		return n / 100
	case c == "MGA":
		return n * 100
	}
	return n
}

func ourCurrency(c api.Currency) money.Currency { return money.Currency(strings.ToUpper(string(c))) }

func theirs(c money.Currency) *string { return api.String(strings.ToLower(string(c))) }

// Chargeable reports whether Stripe charges an amount.
func (*Stripe) Chargeable(c money.Currency, amount int64) bool {
	n, exact := toStripe(c, amount)
	min, has := least[c]
	if !has {
		min = 50
	}
	return exact && n >= min && n <= 99_999_999
}

// Customer creates the owner's customer at Stripe.
func (s *Stripe) Customer(ctx context.Context, owner id.Owner, c money.Currency, p party.Party) (string, error) {
	sc, err := s.client(ctx)
	if err != nil {
		return "", err
	}
	in := &api.CustomerCreateParams{Metadata: map[string]string{"owner": string(owner), "currency": string(c)}}
	if p.Name != "" {
		in.Name = api.String(p.Name)
	}
	if p.Email != "" {
		in.Email = api.String(p.Email)
	}
	got, err := sc.V1Customers.Create(ctx, in)
	if err != nil {
		return "", safeError(err)
	}
	return got.ID, nil
}

// Setup returns Stripe's page for storing a card.
func (s *Stripe) Setup(ctx context.Context, o billing.SetupOrder) (session, url string, err error) {
	sc, err := s.client(ctx)
	if err != nil {
		return "", "", err
	}
	got, err := sc.V1CheckoutSessions.Create(ctx, &api.CheckoutSessionCreateParams{
		Params: api.Params{IdempotencyKey: api.String(o.ID)}, Mode: api.String("setup"), Customer: api.String(o.Customer),
		Currency:           theirs(o.Currency),
		PaymentMethodTypes: []*string{api.String("card")}, SuccessURL: api.String(o.Back), CancelURL: api.String(o.Back),
		ExpiresAt: api.Int64(expiry(o.CreatedAt)), Metadata: map[string]string{"setup": o.ID},
		SetupIntentData: &api.CheckoutSessionCreateSetupIntentDataParams{Metadata: map[string]string{"setup": o.ID}},
	})
	if err != nil {
		return "", "", safeError(err)
	}
	return got.ID, got.URL, nil
}

// pageOpen is how long a page stays open. Stripe's minimum is 30 minutes.
const pageOpen = 34 * time.Minute

func expiry(from db.Time) int64 { return from.Add(pageOpen).Time().Unix() }

// Stored returns the outcome of a visit to the page for storing a card.
func (s *Stripe) Stored(ctx context.Context, session string) (out billing.Stored, err error) {
	sc, err := s.client(ctx)
	if err != nil {
		return out, err
	}
	got, err := sc.V1CheckoutSessions.Retrieve(ctx, session,
		&api.CheckoutSessionRetrieveParams{Expand: []*string{api.String("setup_intent.payment_method")}})
	if err != nil {
		return out, safeError(err)
	}
	out.Setup, out.Expired = got.Metadata["setup"], got.Status == api.CheckoutSessionStatusExpired
	if si := got.SetupIntent; si != nil && si.Status == api.SetupIntentStatusSucceeded && si.PaymentMethod != nil && got.Customer != nil {
		out.Card, err = s.card(ctx, sc, got.Customer.ID, si.PaymentMethod)
	}
	return out, err
}

// card returns a stored card, and fetches it if only its ID is known.
func (s *Stripe) card(ctx context.Context, sc *api.Client, customer string, m *api.PaymentMethod) (billing.Card, error) {
	if m.Card == nil {
		got, err := sc.V1PaymentMethods.Retrieve(ctx, m.ID, nil)
		if err != nil {
			return billing.Card{}, safeError(err)
		}
		m = got
		if m.Card == nil {
			return billing.Card{Customer: customer, Method: m.ID, Brand: string(m.Type)}, nil
		}
	}
	return billing.Card{
		Customer: customer, Method: m.ID, Brand: string(m.Card.Brand), Last4: m.Card.Last4, ExpMonth: m.Card.ExpMonth, ExpYear: m.Card.ExpYear,
		Fingerprint: m.Card.Fingerprint,
	}, nil
}

// Charge charges a stored card. Repeating it within a day has one effect, since the payment's ID is the idempotency
// key.
func (s *Stripe) Charge(ctx context.Context, o billing.Order) (billing.Outcome, error) {
	sc, err := s.client(ctx)
	if err != nil {
		return billing.Outcome{}, err
	}
	amount, _ := toStripe(o.Currency, o.Amount)
	got, err := sc.V1PaymentIntents.Create(ctx, &api.PaymentIntentCreateParams{
		Params: api.Params{IdempotencyKey: api.String(string(o.Payment))}, Amount: api.Int64(amount), Currency: theirs(o.Currency),
		Customer: api.String(o.Customer), PaymentMethod: api.String(o.Method), PaymentMethodTypes: []*string{api.String("card")},
		Confirm: api.Bool(true), OffSession: api.Bool(true), Description: api.String("Invoice " + o.Invoice),
		Metadata: map[string]string{"payment": string(o.Payment), "invoice": o.Invoice},
	})
	if err == nil {
		return s.outcome(ctx, sc, got)
	}
	var e *api.Error
	if !errors.As(err, &e) {
		return billing.Outcome{}, safeError(err)
	}
	switch {
	case e.Type == api.ErrorTypeCard && e.PaymentIntent != nil:
		out := refused(e)
		out.Reference = e.PaymentIntent.ID
		return out, nil
	case e.Type == api.ErrorTypeCard, e.Type == api.ErrorTypeInvalidRequest && (e.HTTPStatusCode == 400 || e.HTTPStatusCode == 404):
		return refused(e), nil
	}
	return billing.Outcome{}, safeError(err)
}

// hard lists the decline codes after which the card must not be retried; card schemes fine such retries.
var hard = []string{
	"lost_card", "stolen_card", "pickup_card", "restricted_card", "fraudulent", "merchant_blacklist", "invalid_account", "card_not_supported",
	"currency_not_supported", "expired_card", "incorrect_number", "invalid_number", "revocation_of_all_authorizations",
	"revocation_of_authorization",
	"stop_payment_order", "security_violation", "transaction_not_allowed", "resource_missing", "payment_method_unactivated",
}

// refused returns the outcome of a payment refused by Stripe or a bank.
func refused(e *api.Error) billing.Outcome {
	code := string(e.DeclineCode)
	if code == "" || code == "generic_decline" {
		code = string(e.Code)
	}
	if e.Code == api.ErrorCodeAuthenticationRequired || code == "authentication_required" {
		return billing.Outcome{Status: billing.PaymentRequiresAction}
	}
	if code == "" {
		code = "refused"
	}
	return billing.Outcome{Status: "failed", Code: code, Final: slices.Contains(hard, code) || slices.Contains(hard, string(e.Code))}
}

// outcome converts a payment intent.
func (s *Stripe) outcome(ctx context.Context, sc *api.Client, pi *api.PaymentIntent) (out billing.Outcome, err error) {
	c := ourCurrency(pi.Currency)
	out = billing.Outcome{
		Payment: billing.PaymentID(pi.Metadata["payment"]), Reference: pi.ID, Currency: c, Amount: fromStripe(c, pi.AmountReceived), At: s.now(),
	}
	switch pi.Status {
	case api.PaymentIntentStatusSucceeded:
		out.Status = "completed"
		if pi.SetupFutureUsage == "off_session" && pi.PaymentMethod != nil && pi.Customer != nil { // entered on the page
			out.Card, err = s.card(ctx, sc, pi.Customer.ID, pi.PaymentMethod)
		}
	case api.PaymentIntentStatusProcessing:
		out.Status = billing.PaymentProcessing
	case api.PaymentIntentStatusCanceled:
		out.Status, out.Code = "failed", "canceled"
		if pi.LastPaymentError != nil {
			out.Code = refused(pi.LastPaymentError).Code
			if out.Code == "" {
				out.Code = "authentication_required"
			}
		}
	case api.PaymentIntentStatusRequiresPaymentMethod:
		if e := pi.LastPaymentError; e != nil && pi.SetupFutureUsage == "" { // on the page, another card can be entered
			last := refused(e)
			out.Status, out.Code, out.Final = last.Status, last.Code, last.Final
			break
		}
		out.Status = billing.PaymentRequiresAction
	default:
		out.Status = billing.PaymentRequiresAction
	}
	return out, err
}

// Page returns Stripe's page that pays an invoice, or the bank's page that confirms a payment.
func (s *Stripe) Page(ctx context.Context, o billing.Order, back string) (session, url string, err error) {
	sc, err := s.client(ctx)
	if err != nil {
		return "", "", err
	}
	if o.Method != "" {
		url, err := s.confirm(ctx, sc, o, back)
		return "", url, err
	}
	if o.Session != "" {
		got, err := sc.V1CheckoutSessions.Retrieve(ctx, o.Session, nil)
		if err != nil {
			return "", "", safeError(err)
		}
		if got.URL == "" {
			return "", "", errPageOver
		}
		return got.ID, got.URL, nil
	}
	amount, _ := toStripe(o.Currency, o.Amount)
	metadata := map[string]string{"payment": string(o.Payment), "invoice": o.Invoice}
	got, err := sc.V1CheckoutSessions.Create(ctx, &api.CheckoutSessionCreateParams{
		Params: api.Params{IdempotencyKey: api.String(string(o.Payment))}, Mode: api.String("payment"), Customer: api.String(o.Customer),
		PaymentMethodTypes: []*string{api.String("card")}, SuccessURL: api.String(back), CancelURL: api.String(back),
		ExpiresAt: api.Int64(expiry(o.CreatedAt)), Metadata: metadata,
		LineItems: []*api.CheckoutSessionCreateLineItemParams{{
			Quantity: api.Int64(1),
			PriceData: &api.CheckoutSessionCreateLineItemPriceDataParams{
				Currency: theirs(o.Currency), UnitAmount: api.Int64(amount),
				ProductData: &api.CheckoutSessionCreateLineItemPriceDataProductDataParams{Name: api.String("Invoice " + o.Invoice)},
			},
		}},
		PaymentIntentData: &api.CheckoutSessionCreatePaymentIntentDataParams{
			Metadata: metadata, SetupFutureUsage: api.String("off_session"), Description: api.String("Invoice " + o.Invoice),
		},
	})
	if err != nil {
		return "", "", safeError(err)
	}
	return got.ID, got.URL, nil
}

var errPageOver = fault.New(fault.Conflict, "payment_open", "The payment page has ended",
	"reload the page to see what came of the payment, then try again")

// confirm returns the bank's page that confirms a payment.
func (s *Stripe) confirm(ctx context.Context, sc *api.Client, o billing.Order, back string) (string, error) {
	pi, err := sc.V1PaymentIntents.Retrieve(ctx, o.Reference, nil)
	if err != nil {
		return "", safeError(err)
	}
	if pi.Status == api.PaymentIntentStatusRequiresPaymentMethod || pi.Status == api.PaymentIntentStatusRequiresConfirmation {
		pi, err = sc.V1PaymentIntents.Confirm(ctx, o.Reference,
			&api.PaymentIntentConfirmParams{PaymentMethod: api.String(o.Method), ReturnURL: api.String(back)})
		if err != nil {
			return "", safeError(err)
		}
	}
	if pi.NextAction != nil && pi.NextAction.RedirectToURL != nil && pi.NextAction.RedirectToURL.URL != "" {
		return pi.NextAction.RedirectToURL.URL, nil
	}
	return back, nil // already confirmed
}

// maxPages caps the pages of a list, with 100 items each.
const maxPages = 200

// Find returns the outcome of a payment.
func (s *Stripe) Find(ctx context.Context, o billing.Order) (out billing.Outcome, err error) {
	sc, err := s.client(ctx)
	if err != nil {
		return out, err
	}
	if o.Reference != "" {
		pi, err := sc.V1PaymentIntents.Retrieve(ctx, o.Reference, nil)
		if err != nil {
			return out, safeError(err)
		}
		return s.outcome(ctx, sc, pi)
	}
	if o.Session != "" {
		return s.ofSession(ctx, sc, o.Session)
	}
	from := o.SentAt.Add(-time.Hour).Time().Unix()
	n := 0
	for pi, err := range sc.V1PaymentIntents.List(ctx, &api.PaymentIntentListParams{
		ListParams: api.ListParams{Limit: api.Int64(100)}, Customer: api.String(o.Customer),
		CreatedRange: &api.RangeQueryParams{GreaterThanOrEqual: from},
	}).All(ctx) {
		if err != nil {
			return out, safeError(err)
		}
		if pi.Metadata["payment"] == string(o.Payment) {
			return s.outcome(ctx, sc, pi)
		}
		n++
		if n > maxPages*100 {
			return out, errors.New("find payment: the customer has too many")
		}
	}
	return out, nil
}

// ofSession returns the outcome of a payment made on a page.
func (s *Stripe) ofSession(ctx context.Context, sc *api.Client, session string) (out billing.Outcome, err error) {
	got, err := sc.V1CheckoutSessions.Retrieve(ctx, session,
		&api.CheckoutSessionRetrieveParams{Expand: []*string{api.String("payment_intent")}})
	if err != nil {
		return out, safeError(err)
	}
	out = billing.Outcome{Payment: billing.PaymentID(got.Metadata["payment"]), Status: billing.PaymentRequiresAction}
	if pi := got.PaymentIntent; pi != nil && pi.Status != "" &&
		(got.Status == api.CheckoutSessionStatusComplete || pi.Status == api.PaymentIntentStatusSucceeded) {
		if pi.Metadata["payment"] == "" {
			pi.Metadata = got.Metadata
		}
		return s.outcome(ctx, sc, pi)
	}
	if got.Status == api.CheckoutSessionStatusExpired {
		out.Status, out.Code = "failed", "expired"
	}
	return out, nil
}

// Abandon cancels a payment that waits for its owner. If it was paid meanwhile, it returns that outcome.
func (s *Stripe) Abandon(ctx context.Context, o billing.Order) (out billing.Outcome, err error) {
	sc, err := s.client(ctx)
	if err != nil {
		return out, err
	}
	if o.Method != "" {
		pi, err := sc.V1PaymentIntents.Cancel(ctx, o.Reference, nil)
		if err != nil {
			return s.Find(ctx, o) // a paid one can't be canceled
		}
		return s.outcome(ctx, sc, pi)
	}
	if o.Session == "" { // the process crashed after opening the page: nothing more can be paid there, but it may already have been
		if out, err = s.Find(ctx, o); err != nil || out.Status == "completed" || out.Status == billing.PaymentProcessing {
			return out, err
		}
		return billing.Outcome{Status: "failed", Code: "expired"}, nil
	}
	if out, err = s.ofSession(ctx, sc, o.Session); err != nil || out.Status != billing.PaymentRequiresAction {
		return out, err
	}
	if _, err := sc.V1CheckoutSessions.Expire(ctx, o.Session, nil); err != nil {
		return out, safeError(err)
	}
	return s.ofSession(ctx, sc, o.Session)
}

// Refund refunds part of a payment.
func (s *Stripe) Refund(ctx context.Context, o billing.RefundOrder) (out billing.RefundOutcome, err error) {
	sc, err := s.client(ctx)
	if err != nil {
		return out, err
	}
	for r, err := range sc.V1Refunds.List(ctx,
		&api.RefundListParams{ListParams: api.ListParams{Limit: api.Int64(100)}, PaymentIntent: api.String(o.Reference)}).All(ctx) {
		if err != nil {
			return out, safeError(err)
		}
		if r.Metadata["refund"] == o.ID { // sent before, maybe over a day ago
			return refundOutcome(r, o.Reference), nil
		}
	}
	amount, _ := toStripe(o.Currency, o.Amount)
	got, err := sc.V1Refunds.Create(ctx, &api.RefundCreateParams{
		Params: api.Params{IdempotencyKey: api.String(o.ID)}, PaymentIntent: api.String(o.Reference), Amount: api.Int64(amount),
		Metadata: map[string]string{"refund": o.ID, "payment": string(o.Payment)},
	})
	if err == nil {
		return refundOutcome(got, o.Reference), nil
	}
	var e *api.Error
	if errors.As(err, &e) && e.Type == api.ErrorTypeInvalidRequest && e.HTTPStatusCode == 400 {
		return billing.RefundOutcome{ID: o.ID, Payment: o.Reference, Status: "failed", Amount: o.Amount, Currency: o.Currency}, nil
	}
	return out, safeError(err)
}

func refundOutcome(r *api.Refund, payment string) billing.RefundOutcome {
	c := ourCurrency(r.Currency)
	out := billing.RefundOutcome{
		ID: r.Metadata["refund"], Reference: r.ID, Payment: payment, Status: "pending",
		Amount: fromStripe(c, r.Amount), Currency: c,
	}
	if out.Payment == "" && r.PaymentIntent != nil {
		out.Payment = r.PaymentIntent.ID
	}
	switch r.Status {
	case api.RefundStatusSucceeded:
		out.Status = "completed"
	case api.RefundStatusFailed, api.RefundStatusCanceled:
		out.Status = "failed"
	}
	return out
}

// Forget deletes the customer at Stripe.
func (s *Stripe) Forget(ctx context.Context, customer string) error {
	sc, err := s.client(ctx)
	if err != nil {
		return err
	}
	_, err = sc.V1Customers.Delete(ctx, customer, nil)
	var e *api.Error
	if errors.As(err, &e) && e.HTTPStatusCode == 404 {
		return nil
	}
	return safeError(err)
}

// safeError returns a Stripe error for logs: its kind and request ID, without the request's content.
func safeError(err error) error {
	var e *api.Error
	if errors.As(err, &e) {
		return fmt.Errorf("stripe: status %d, %s, code %s, request %s", e.HTTPStatusCode, e.Type, e.Code, e.RequestID)
	}
	if err == nil {
		return nil
	}
	return fmt.Errorf("stripe: %w", err)
}
