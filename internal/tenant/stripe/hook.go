package stripe

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	api "github.com/stripe/stripe-go/v85"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/lazyregexp"
	"slipway/internal/tenant/billing"
)

// MaxBody caps an event's size in bytes.
const MaxBody = 1 << 20

// tolerance limits the age of an event's signature, and its lead over this machine's clock.
const tolerance = 300 * time.Second

var errSignature = fault.New(fault.Invalid, "invalid_signature", "Invalid signature",
	"the body must be as Stripe sent it, signed within the last 300 seconds with the webhook's signing secret")

// eventHead holds the only fields of an event that are read.
type eventHead struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Livemode *bool  `json:"livemode"`
	Account  string `json:"account"`
	Data     struct {
		Object struct {
			ID string `json:"id"`
		} `json:"object"`
	} `json:"data"`
}

var (
	eventID   = lazyregexp.New(`^evt_[A-Za-z0-9_]{1,100}$`)
	eventType = lazyregexp.New(`^[a-z0-9_.]{1,100}$`)
	objectID  = lazyregexp.New(`^[A-Za-z0-9_]{0,255}$`)
)

// Take stores an event sent to an account's webhook and returns once it is durable. Concurrent events share a
// transaction. Repeated events change nothing. Events that aren't from this account are refused and not stored.
func (s *Stripe) Take(ctx context.Context, account, signature string, body []byte) error {
	a, err := s.Account(ctx, s.c.DB)
	if err == nil && a.ID != account {
		err = fault.Missing("webhook")
	}
	if err != nil {
		return err
	}
	if len(body) > MaxBody || !s.signed(a, signature, body) {
		return errSignature
	}
	var e eventHead
	if json.Unmarshal(body, &e) != nil || !eventID.MatchString(e.ID) || !eventType.MatchString(e.Type) ||
		!objectID.MatchString(e.Data.Object.ID) {
		return fault.New(fault.Invalid, "invalid_event", "Invalid event", "the body isn't an event of Stripe")
	}
	if e.Livemode == nil || *e.Livemode != a.Live || e.Account != "" {
		return fault.New(fault.Invalid, "foreign_event", "The event is from another account", "test and live events don't mix")
	}
	return s.events.Write(ctx, func(ctx context.Context, tx *db.Tx) error { return s.storeTx(ctx, tx, e) })
}

// signed reports whether a signature is recent and made with one of the account's secrets.
func (s *Stripe) signed(a Account, header string, body []byte) bool {
	if len(header) > 2000 || strings.Count(header, ",") > 20 {
		return false
	}
	at, sums := "", [][]byte(nil)
	for part := range strings.SplitSeq(header, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		switch name {
		case "t":
			at = value
		case "v1":
			if sum, err := hex.DecodeString(value); err == nil {
				sums = append(sums, sum)
			}
		}
	}
	sec, err := strconv.ParseInt(at, 10, 64)
	if err != nil || sec < 0 || sec > 1<<40 || s.now().Time().Sub(time.Unix(sec, 0)).Abs() > tolerance {
		return false
	}
	ok := false
	for _, secret := range a.secrets {
		mac := hmac.New(sha256.New, []byte(secret))
		fmt.Fprintf(mac, "%s.", at)
		mac.Write(body)
		want := mac.Sum(nil)
		for _, sum := range sums {
			ok = hmac.Equal(sum, want) || ok
		}
	}
	return ok
}

// storeTx stores a new event and enqueues its fetch.
func (s *Stripe) storeTx(ctx context.Context, tx *db.Tx, e eventHead) error {
	done := db.Time(0)
	if !about(e.Type) {
		done = s.now()
	}
	n, err := tx.Exec(ctx,
		`INSERT INTO stripe_events (id, type, object, received_at, done_at) VALUES ($1, $2, $3, $4, $5) ON CONFLICT (id) DO NOTHING`,
		e.ID, e.Type, e.Data.Object.ID, s.now(), done)
	if err != nil {
		return fmt.Errorf("write event: %w", err)
	}
	if n == 0 || done > 0 {
		return nil
	}
	return s.enqueueFetchTx(ctx, tx)
}

// kinds lists the prefixes of relevant event types.
var kinds = []string{"payment_intent.", "checkout.session.", "charge.", "refund."}

func about(kind string) bool {
	for _, k := range kinds {
		if strings.HasPrefix(kind, k) {
			return true
		}
	}
	return false
}

// follow fetches an object, whose ID contains its type, and passes it to Billing. It is idempotent.
func (s *Stripe) follow(ctx context.Context, sc *api.Client, object string) error {
	kind, _, _ := strings.Cut(object, "_")
	switch kind {
	case "pi":
		pi, err := sc.V1PaymentIntents.Retrieve(ctx, object, nil)
		if err != nil || pi.Metadata["payment"] == "" {
			return err
		}
		out, err := s.outcome(ctx, sc, pi)
		if err != nil {
			return err
		}
		return s.c.Billing.Apply(ctx, out)
	case "cs":
		got, err := sc.V1CheckoutSessions.Retrieve(ctx, object, nil)
		if err != nil {
			return err
		}
		if got.Metadata["setup"] != "" {
			stored, err := s.Stored(ctx, object)
			if err != nil {
				return err
			}
			return s.c.Billing.KeepCard(ctx, stored)
		}
		if got.Metadata["payment"] == "" {
			return nil
		}
		out, err := s.ofSession(ctx, sc, object)
		if err != nil {
			return err
		}
		return s.c.Billing.Apply(ctx, out)
	case "ch", "py":
		return s.refundsOf(ctx, sc, &api.RefundListParams{Charge: api.String(object)})
	case "re", "pyr":
		r, err := sc.V1Refunds.Retrieve(ctx, object, nil)
		if err != nil || r.PaymentIntent == nil {
			return err
		}
		return s.c.Billing.ApplyRefund(ctx, refundOutcome(r, ""))
	case "dp", "du":
		d, err := sc.V1Disputes.Retrieve(ctx, object, nil)
		if err != nil {
			return err
		}
		return s.dispute(ctx, d)
	}
	return nil
}

func (s *Stripe) refundsOf(ctx context.Context, sc *api.Client, in *api.RefundListParams) error {
	in.Limit = api.Int64(100)
	for r, err := range sc.V1Refunds.List(ctx, in).All(ctx) {
		if err != nil {
			return err
		}
		if r.PaymentIntent == nil {
			continue
		}
		if err := s.c.Billing.ApplyRefund(ctx, refundOutcome(r, "")); err != nil {
			return err
		}
	}
	return nil
}

// dispute passes a dispute to Billing. It ignores inquiries, which move no money.
func (s *Stripe) dispute(ctx context.Context, d *api.Dispute) error {
	c := ourCurrency(d.Currency)
	out := billing.Dispute{Reference: d.ID, Amount: fromStripe(c, d.Amount), Currency: c}
	if d.PaymentIntent == nil {
		return nil
	}
	out.Payment = d.PaymentIntent.ID
	switch d.Status {
	case api.DisputeStatusNeedsResponse, api.DisputeStatusUnderReview:
		out.Status = "open"
	case api.DisputeStatusWon:
		out.Status = "won"
	case api.DisputeStatusLost:
		out.Status = "lost"
	default:
		return nil
	}
	return s.c.Billing.ApplyDispute(ctx, out)
}
