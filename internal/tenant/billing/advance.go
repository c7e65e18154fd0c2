package billing

import (
	"context"
	"fmt"
	"slices"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/id"
	"slipway/internal/platform/job"
	"slipway/internal/tenant/billing/party"
	"slipway/internal/tenant/billing/plan"
	"slipway/internal/tenant/webhook/event"
)

// holdAfter is the age of a period's start beyond which its invoice waits for the operator's approval, as after a long
// outage.
const holdAfter = 72 * time.Hour

// step is a transition that time alone causes.
type step int

const (
	stepNone step = iota
	stepRenew
	stepExpire
	stepPause
	stepGiveUp // ends after staying unpaid
)

// next returns the subscription's next transition and its time.
func (s Subscription) next(settings party.Settings) (step, db.Time) {
	switch s.Status {
	case Trialing, Active:
		return stepRenew, s.End
	case Canceled, PastDue:
		if pause := s.UnpaidSince.Add(time.Duration(settings.GraceDays) * day); s.UnpaidSince > 0 && pause <= s.End {
			return stepPause, pause
		}
		if s.Status == Canceled {
			return stepExpire, s.End
		}
		return stepRenew, s.End
	case Paused:
		end := s.UnpaidSince.Add(time.Duration(settings.GraceDays+settings.PausedDays) * day)
		if s.Reason != "" && s.End <= end { // canceled earlier
			return stepExpire, s.End
		}
		return stepGiveUp, end
	}
	return stepNone, 0
}

// Run is the job that performs everything due. There is one, and a repeated run finds nothing left to do.
type Run struct{}

// Kind implements [job.Args].
func (Run) Kind() string { return "billing.run" }

const runEvery = 30 * time.Second

// Work registers the job.
func (b *Billing) Work(j *job.Jobs) {
	job.Handle(j, job.Policy{Timeout: 30 * time.Minute, Attempts: 1 << 30}, func(ctx context.Context, _ Run, _ int64) error {
		if err := b.settleDeleted(ctx); err != nil {
			return err
		}
		if err := b.Tick(ctx); err != nil {
			return err
		}
		return job.Later(runEvery)
	})
	job.Handle(j, job.Policy{Timeout: 2 * time.Minute, Attempts: 1 << 30}, func(ctx context.Context, p Pay, _ int64) error {
		return runAgain(b.Proceed(ctx, p.Payment))
	})
	job.Handle(j, job.Policy{Timeout: 2 * time.Minute, Attempts: 1 << 30}, func(ctx context.Context, x PayBack, _ int64) error {
		return runAgain(b.ProceedRefund(ctx, x.Refund))
	})
	job.Handle(j, job.Policy{Timeout: time.Minute, Attempts: 40}, func(ctx context.Context, x ForgetCustomer, _ int64) error {
		if b.provider == nil {
			return nil
		}
		return b.provider.Forget(ctx, x.Customer)
	})
}

// runAgain ends a job so that it runs again later.
func runAgain(later time.Duration, err error) error {
	if err != nil || later == 0 {
		return err
	}
	return job.Later(later)
}

// Schedule enqueues the job unless it exists.
func (b *Billing) Schedule(ctx context.Context) error {
	return b.c.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := job.Enqueue(ctx, tx, Run{}, job.Options{Unique: "billing.run"})
		return err
	})
}

// maxDue caps the rows read per pass.
const maxDue = 200

// maxPerTx caps the steps per transaction, since each transaction blocks other writers.
const maxPerTx = 10

// due is a subscription or an invoice whose next step is due.
type due struct {
	id    string
	owner id.Owner
}

// stepsTx performs the due steps of several owners in one transaction. It takes all owners' locks first and in order,
// so that two nodes doing this can't deadlock.
func (b *Billing) stepsTx(ctx context.Context, tx *db.Tx, list []due, do func(ctx context.Context, tx *db.Tx, due string) error) error {
	owners := make([]id.Owner, 0, len(list))
	for _, d := range list {
		owners = append(owners, d.owner)
	}
	slices.Sort(owners)
	for _, o := range slices.Compact(owners) {
		if err := party.LockTx(ctx, tx, o); err != nil {
			return err
		}
	}
	for _, d := range list {
		if err := do(ctx, tx, d.id); err != nil {
			return err
		}
	}
	return nil
}

// Tick performs everything due: it renews periods, drafts and finalizes invoices, and sends reminders. It handles
// several owners per transaction; if one step fails, it retries each in a transaction of its own. A step that fails
// alone is logged and retried by the next Tick without delaying the others.
func (b *Billing) Tick(ctx context.Context) error {
	const (
		subscriptions = `SELECT id, owner_id FROM billing_subscriptions WHERE next_at > 0 AND next_at <= $1 AND id > $2 ORDER BY id LIMIT $3`
		invoices      = `SELECT id, owner_id FROM billing_invoices WHERE next_at > 0 AND next_at <= $1 AND id > $2 ORDER BY id LIMIT $3`
	)
	for _, kind := range []struct {
		name, query string
		do          func(ctx context.Context, tx *db.Tx, due string) error
	}{
		{"subscription", subscriptions, b.advanceTx},
		{"invoice", invoices, b.proceedTx},
		// An invoice that became overdue may be the reason to pause its subscription.
		{"subscription", subscriptions, b.advanceTx},
	} {
		for last := ""; ; {
			rows, err := b.c.DB.Query(ctx, kind.query, b.now(), last, maxDue)
			list, err := db.Collect(rows, err, func(s db.Scanner) (d due, err error) { return d, s.Scan(&d.id, &d.owner) })
			if err != nil {
				return fmt.Errorf("find %ss that are due: %w", kind.name, err)
			}
			for some := range slices.Chunk(list, maxPerTx) {
				err := b.c.DB.Write(ctx, func(tx *db.Tx) error { return b.stepsTx(ctx, tx, some, kind.do) })
				if err == nil {
					continue
				}
				for _, d := range some {
					err := b.c.DB.Write(ctx, func(tx *db.Tx) error { return b.stepsTx(ctx, tx, []due{d}, kind.do) })
					if err != nil && ctx.Err() == nil {
						b.c.Log.ErrorContext(ctx, "billing step failed, will be retried", kind.name, d.id, "owner", d.owner, "err", err)
					}
				}
				if ctx.Err() != nil {
					return ctx.Err()
				}
			}
			if len(list) < maxDue {
				break
			}
			last = list[len(list)-1].id
		}
	}
	return nil
}

// advanceTx takes a subscription through every due transition in order of time. After an outage, each missed period
// begins once.
func (b *Billing) advanceTx(ctx context.Context, tx *db.Tx, subscription string) error {
	s, err := scanSubscription(tx.QueryRow(ctx, `SELECT `+subscriptionColumns+` FROM billing_subscriptions WHERE id = $1`, subscription))
	if err != nil {
		return fmt.Errorf("read subscription: %w", err)
	}
	settings, err := b.SettingsFor(ctx, tx, s.Owner)
	if err != nil {
		return err
	}
	for {
		what, at := s.next(settings)
		if what == stepNone || at > b.now() {
			return nil
		}
		v, err := b.Version(ctx, tx, s.Version)
		if err != nil {
			return err
		}
		switch what {
		case stepRenew:
			s, err = b.renewTx(ctx, tx, s, v, s.End)
		case stepExpire:
			s, err = b.expireTx(ctx, tx, s, v)
		case stepPause:
			s.Status = Paused
			if err = b.writeTx(ctx, tx, s); err == nil {
				err = b.mailTx(ctx, tx, s.Owner, "Sites paused: an invoice is unpaid",
					"Sites of the account are paused because an invoice is overdue. Nothing was deleted. They are back as soon as the invoice is paid.",
					"/account/invoices")
			}
		case stepGiveUp: // the sites stay paused until every invoice is settled
			s.Reason = ReasonUnpaid
			s.End = min(s.End, floor(b.now(), hour))
			s, err = b.expireTx(ctx, tx, s, v)
		}
		if err != nil {
			return err
		}
	}
}

// renewTx begins the next period at the given time: the end of the last one, or now for a subscription that was paused.
func (b *Billing) renewTx(ctx context.Context, tx *db.Tx, s Subscription, v plan.Version, at db.Time) (Subscription, error) {
	before, was := s, v
	used, err := b.spanTx(ctx, tx, s, s.End, s.End)
	if err != nil {
		return s, err
	}
	if s.Next != "" {
		if v, err = b.Version(ctx, tx, s.Next); err != nil {
			return s, err
		}
		s.Version, s.Next = v.ID, ""
	}
	switch {
	case at != s.End: // was paused past its period's end
		s.anchor, s.period, s.Status = at, 0, Active
	case s.trial():
		s.anchor, s.period, s.Status = at, 0, Active
	case was.Term != v.Term:
		s.anchor, s.period = at, 0
	default:
		s.period++
	}
	s.Start, s.End = at, v.Term.Boundary(s.anchor, s.period+1)
	if err := b.writeTx(ctx, tx, s); err != nil {
		return s, err
	}
	x := basis{Charges: []charge{baseCharge(v.ID, s.Start, s.End)}, Usage: used}
	if used != nil && was.Currency != v.Currency { // an invoice has a single currency
		x.Usage = nil
		if err := b.draftTx(ctx, tx, before, usageCause(before.Start), basis{Usage: used}, before.End); err != nil {
			return s, err
		}
	}
	if x.Coupon, err = b.TakeTx(ctx, tx, string(s.ID), v.Currency); err != nil {
		return s, err
	}
	if err := b.draftTx(ctx, tx, s, periodCause(s.Start), x, s.Start); err != nil {
		return s, err
	}
	occurrence := fmt.Sprintf("%s:renewed:%d", s.ID, s.Start)
	return s, b.emitTx(ctx, tx, s.Owner, occurrence, event.SubscriptionRenewed(b.event(s, v)))
}

// unpaidTx records that an invoice of the subscription is overdue.
func (b *Billing) unpaidTx(ctx context.Context, tx *db.Tx, owner id.Owner, subscription SubscriptionID, since db.Time) error {
	s, err := scanSubscription(tx.QueryRow(ctx, `SELECT `+subscriptionColumns+` FROM billing_subscriptions WHERE id = $1 AND owner_id = $2`,
		subscription, owner))
	if err != nil {
		return fmt.Errorf("read subscription: %w", err)
	}
	if s.Status == Expired || s.UnpaidSince > 0 && s.UnpaidSince <= since {
		return nil
	}
	s.UnpaidSince = since
	if s.Status == Active {
		s.Status = PastDue
	}
	return b.writeTx(ctx, tx, s)
}

// settledTx reactivates a subscription once none of its invoices is overdue.
func (b *Billing) settledTx(ctx context.Context, tx *db.Tx, subscription SubscriptionID) error {
	s, err := scanSubscription(tx.QueryRow(ctx, `SELECT `+subscriptionColumns+` FROM billing_subscriptions WHERE id = $1`, subscription))
	if err != nil {
		return fmt.Errorf("read subscription: %w", err)
	}
	if s.Status == Expired {
		tx.Notify("paused") // the edge reloads the paused sites
		return nil
	}
	if s.UnpaidSince == 0 {
		return nil
	}
	var due db.Time
	if err := tx.QueryRow(ctx, `
		SELECT COALESCE(MIN(due_at), 0) FROM billing_invoices
		WHERE subscription_id = $1 AND status = 'open' AND due_at <= $2`, subscription, b.now()).Scan(&due); err != nil {
		return fmt.Errorf("look for overdue invoices: %w", err)
	}
	was := s.Status
	s.UnpaidSince = due
	if due > 0 {
		return b.writeTx(ctx, tx, s)
	}
	if was == PastDue || was == Paused {
		s.Status = Active
		if s.Reason != "" { // canceled earlier
			s.Status = Canceled
		}
	}
	if now := floor(b.now(), hour); was == Paused && s.Status == Active && now >= s.End {
		v, err := b.Version(ctx, tx, s.Version)
		if err != nil {
			return err
		}
		_, err = b.renewTx(ctx, tx, s, v, now)
		return err
	}
	return b.writeTx(ctx, tx, s)
}
