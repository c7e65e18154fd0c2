package billing

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/id"
	"slipway/internal/tenant/billing/document"
	"slipway/internal/tenant/billing/plan"
	"slipway/internal/tenant/webhook/event"
)

// SubscriptionID names a subscription: "sub_" and 26 characters.
type SubscriptionID string

// Status is the state of a subscription.
type Status string

const (
	Trialing Status = "trialing" // before its first period
	Active   Status = "active"
	PastDue  Status = "past_due" // an invoice is overdue; service continues
	Paused   Status = "paused"   // an invoice stayed overdue; sites are paused, nothing is deleted
	Canceled Status = "canceled" // until its period ends
	Expired  Status = "expired"
)

const (
	ReasonRequested = "requested"
	ReasonUnpaid    = "unpaid"
	ReasonOperator  = "operator"
)

// Subscription is an owner's plan.
type Subscription struct {
	ID               SubscriptionID
	Owner            id.Owner
	Version          plan.VersionID
	Next             plan.VersionID // version from the next period on; empty: unchanged
	Status           Status
	Start, End       db.Time // of the current period or trial
	TrialEnd         db.Time // 0: no trial
	Reason           string
	UnpaidSince      db.Time // due date of the oldest unpaid invoice
	CreatedAt        db.Time
	EndedAt          db.Time
	anchor           db.Time
	period           int64
	cancels, changes int64
}

// CancelAt returns when access ends, or 0.
func (s Subscription) CancelAt() db.Time {
	if s.Status == Canceled || s.Status == Expired {
		return s.End
	}
	return 0
}

// trial reports whether the subscription is in its trial, even a canceled one.
func (s Subscription) trial() bool { return s.period < 0 }

const subscriptionColumns = `id, owner_id, version_id, next_version, status, anchor, period, period_start, period_end, trial_end, cancels, reason,
	unpaid_since, changes, created_at, ended_at`

func scanSubscription(r db.Scanner) (s Subscription, err error) {
	return s, r.Scan(&s.ID, &s.Owner, &s.Version, &s.Next, &s.Status, &s.anchor, &s.period, &s.Start, &s.End, &s.TrialEnd, &s.cancels,
		&s.Reason, &s.UnpaidSince, &s.changes, &s.CreatedAt, &s.EndedAt)
}

// Subscription returns an owner's current subscription, or a NotFound fault.
func (b *Billing) Subscription(ctx context.Context, r db.Reader, owner id.Owner) (Subscription, error) {
	s, err := scanSubscription(r.QueryRow(ctx,
		`SELECT `+subscriptionColumns+` FROM billing_subscriptions WHERE owner_id = $1 AND status <> 'expired'`, owner))
	if errors.Is(err, sql.ErrNoRows) {
		return s, fault.Missing("subscription")
	}
	if err != nil {
		return s, fmt.Errorf("read subscription: %w", err)
	}
	return s, nil
}

// writeTx stores a subscription and the time of its next transition.
func (b *Billing) writeTx(ctx context.Context, tx *db.Tx, s Subscription) error {
	settings, err := b.SettingsFor(ctx, tx, s.Owner)
	if err != nil {
		return err
	}
	_, next := s.next(settings)
	counts, err := b.c.Usage.CountsFrom(ctx, tx, s.Owner, s.anchor)
	if err != nil {
		return err
	}
	n, err := tx.Exec(ctx, `
		UPDATE billing_subscriptions
			SET version_id = $2, next_version = $3, status = $4, anchor = $5, period = $6, period_start = $7, period_end = $8,
			trial_end = $9, cancels = $10, reason = $11, unpaid_since = $12, changes = $13, ended_at = $14, next_at = $15,
			counts_from = CASE WHEN anchor = $5 THEN counts_from ELSE $16 END WHERE id = $1`,
		s.ID, s.Version, s.Next, s.Status, s.anchor, s.period, s.Start, s.End, s.TrialEnd, s.cancels, s.Reason, s.UnpaidSince, s.changes,
		s.EndedAt, next, counts)
	if err == nil && n != 1 {
		err = sql.ErrNoRows
	}
	if err != nil {
		return fmt.Errorf("write subscription %s: %w", s.ID, err)
	}
	if err := b.c.Usage.DivideTx(ctx, tx, s.Owner, s.Start, s.End); err != nil {
		return err
	}
	tx.Notify("paused") // the edge reloads the paused sites
	tx.Notify(s.Owner.Topic())
	return b.c.Usage.ReconsiderTx(ctx, tx, s.Owner)
}

// event returns the subscription as webhooks show it.
func (b *Billing) event(s Subscription, v plan.Version) event.Subscription {
	return event.Subscription{
		ID: string(s.ID), Plan: v.Plan, Status: string(s.Status), CurrentPeriodStart: s.Start, CurrentPeriodEnd: s.End,
		TrialEnd: s.TrialEnd, CancelAt: s.CancelAt(), Reason: s.Reason,
	}
}

// Ended returns an ended subscription as webhooks show it.
func (b *Billing) Ended(ctx context.Context, r db.Reader, id SubscriptionID) (out event.Subscription, err error) {
	s, err := scanSubscription(r.QueryRow(ctx, `SELECT `+subscriptionColumns+` FROM billing_subscriptions WHERE id = $1`, id))
	if err != nil {
		return out, fmt.Errorf("read subscription: %w", err)
	}
	v, err := b.Version(ctx, r, s.Version)
	return b.event(s, v), err
}

// subscribeTx begins a subscription, with a trial if the plan has one and the owner never had one, otherwise with its
// first period and that period's invoice.
func (b *Billing) subscribeTx(ctx context.Context, tx *db.Tx, owner id.Owner, v plan.Version, coupon *plan.Coupon) (Subscription, error) {
	start := floor(b.now(), hour)
	trial, err := b.trialOf(ctx, tx, owner, v)
	if err != nil {
		return Subscription{}, err
	}
	s := Subscription{
		ID: db.ID[SubscriptionID]("sub"), Owner: owner, Version: v.ID, Status: Active, Start: start, End: v.Term.Boundary(start, 1),
		CreatedAt: b.now(), anchor: start,
	}
	if trial > 0 {
		s.Status, s.period, s.End = Trialing, -1, start.Add(trial)
		s.TrialEnd = s.End
		if _, err := tx.Exec(ctx, `UPDATE billing_profiles SET trial_at = $2 WHERE owner_id = $1`, owner, s.CreatedAt); err != nil {
			return s, fmt.Errorf("write trial: %w", err)
		}
	}
	if _, err := tx.Exec(ctx, `
		INSERT INTO billing_subscriptions (id, owner_id, version_id, next_version, status, anchor, period, period_start, period_end, trial_end,
			cancels, reason, unpaid_since, changes, next_at, created_at, ended_at)
		VALUES ($1, $2, $3, '', $4, 0, $5, $6, $7, $8, 0, '', 0, 0, 0, $9, 0)`,
		s.ID, owner, s.Version, s.Status, s.period, s.Start, s.End, s.TrialEnd, s.CreatedAt); err != nil {
		return s, fmt.Errorf("write subscription: %w", err)
	}
	if err := b.writeTx(ctx, tx, s); err != nil {
		return s, err
	}
	if err := b.emitTx(ctx, tx, owner, string(s.ID)+":created", event.SubscriptionCreated(b.event(s, v))); err != nil {
		return s, err
	}
	if coupon != nil {
		if err := b.RedeemTx(ctx, tx, owner, string(s.ID), *coupon); err != nil {
			return s, err
		}
	}
	if trial > 0 {
		return s, nil
	}
	x := basis{Charges: []charge{baseCharge(v.ID, s.Start, s.End)}}
	if x.Coupon, err = b.TakeTx(ctx, tx, string(s.ID), v.Currency); err != nil {
		return s, err
	}
	return s, b.invoiceNowTx(ctx, tx, s, periodCause(s.Start), x)
}

// upgradeTx changes the plan at once: it credits the rest of the period at the old price and charges it at the new one.
// A different term begins a new period; the old period's usage is invoiced once sealed.
func (b *Billing) upgradeTx(ctx context.Context, tx *db.Tx, s Subscription, old, v plan.Version) (Subscription, error) {
	if s.trial() {
		s.Version, s.Next = v.ID, ""
		return s, b.writeTx(ctx, tx, s)
	}
	at := max(floor(b.now(), hour), s.Start)
	charges, end := s.proration(old, v, at)
	if old.Term != v.Term {
		used, err := b.spanTx(ctx, tx, s, at, s.End)
		if err != nil {
			return s, err
		}
		if used != nil {
			if err := b.draftTx(ctx, tx, s, usageCause(s.Start), basis{Usage: used}, at); err != nil {
				return s, err
			}
		}
		s.anchor, s.period, s.Start, s.End = at, 0, at, end
	}
	if err := b.c.Usage.DivideTx(ctx, tx, s.Owner, at); err != nil {
		return s, err
	}
	s.Version, s.Next, s.changes = v.ID, "", s.changes+1
	if err := b.writeTx(ctx, tx, s); err != nil {
		return s, err
	}
	return s, b.invoiceNowTx(ctx, tx, s, fmt.Sprintf("change:%d", s.changes), basis{Charges: charges})
}

// proration returns the charges of a plan change at a time, and the end of the resulting period. A different term
// begins a new period.
func (s Subscription) proration(old, v plan.Version, at db.Time) (charges []charge, end db.Time) {
	left, whole := hours(at, s.End), hours(s.Start, s.End)
	charges = []charge{{Kind: document.Unused, Version: old.ID, From: at, To: s.End, Part: left, Whole: whole}}
	if old.Term == v.Term {
		return append(charges, charge{Kind: document.Rest, Version: v.ID, From: at, To: s.End, Part: left, Whole: whole}), s.End
	}
	end = v.Term.Boundary(at, 1)
	return append(charges, baseCharge(v.ID, at, end)), end
}

// cancelTx ends a subscription at its period's end, or now. A paused one ends now. Payments are not refunded.
func (b *Billing) cancelTx(ctx context.Context, tx *db.Tx, s Subscription, now bool, reason string) (Subscription, error) {
	v, err := b.Version(ctx, tx, s.Version)
	if err != nil {
		return s, err
	}
	now = now || s.Status == Paused
	if now {
		s.End = min(max(floor(b.now(), hour), s.Start), s.End) // a paused subscription's period may be over
	}
	if s.Status != Canceled {
		s.Status, s.Reason, s.Next = Canceled, reason, ""
		s.cancels++
		occurrence := fmt.Sprintf("%s:canceled:%d", s.ID, s.cancels)
		if err := b.emitTx(ctx, tx, s.Owner, occurrence, event.SubscriptionCanceled(b.event(s, v))); err != nil {
			return s, err
		}
	}
	if now {
		return b.expireTx(ctx, tx, s, v)
	}
	return s, b.writeTx(ctx, tx, s)
}

// expireTx ends a subscription after its last period and invoices the period's usage. If the owner owes money, the
// reason is nonpayment and sites stay paused until every invoice is settled.
func (b *Billing) expireTx(ctx context.Context, tx *db.Tx, s Subscription, v plan.Version) (Subscription, error) {
	s.Status, s.EndedAt = Expired, b.now()
	if s.UnpaidSince > 0 && s.Reason == ReasonRequested {
		s.Reason = ReasonUnpaid
	}
	if err := b.writeTx(ctx, tx, s); err != nil {
		return s, err
	}
	used, err := b.spanTx(ctx, tx, s, s.End, v.Term.Boundary(s.anchor, s.period+1))
	if err != nil {
		return s, err
	}
	if used != nil {
		if err := b.draftTx(ctx, tx, s, fmt.Sprintf("final:%d", s.End), basis{Usage: used}, s.End); err != nil {
			return s, err
		}
	}
	return s, b.emitTx(ctx, tx, s.Owner, string(s.ID)+":expired", event.SubscriptionExpired(b.event(s, v)))
}

// resumeTx revokes a cancellation.
func (b *Billing) resumeTx(ctx context.Context, tx *db.Tx, s Subscription) (Subscription, error) {
	if s.Status != Canceled {
		return s, fault.New(fault.Conflict, "subscription_not_canceled", "The subscription is not canceled",
			"only a canceled subscription can be resumed before it ends")
	}
	switch s.Reason = ""; {
	case s.trial():
		s.Status = Trialing
	case s.UnpaidSince > 0:
		s.Status = PastDue
	default:
		s.Status = Active
	}
	return s, b.writeTx(ctx, tx, s)
}
