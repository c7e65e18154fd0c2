package stripe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	api "github.com/stripe/stripe-go/v85"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/job"
)

// Reconcile is the job that compares Stripe's records with the ledger. There is one.
type Reconcile struct{}

// Kind implements [job.Args].
func (Reconcile) Kind() string { return "stripe.reconcile" }

const (
	reconcileEvery = 10 * time.Minute
	overlap        = time.Hour           // how far before the last run events are listed again
	window         = 6 * time.Hour       // per listing
	compareEvery   = 24 * time.Hour      // interval of comparing payments with the ledger
	compareDays    = 35                  // days that a comparison covers
	keepEvents     = 40 * 24 * time.Hour // Stripe lists the events of 30 days
	maxListed      = 20                  // stored differences
)

// Work registers the jobs.
func (s *Stripe) Work(j *job.Jobs) {
	fetches := job.Policy{Timeout: 30 * time.Minute, Attempts: 1 << 30, Formerly: "stripe.fetch"}
	job.Handle(j, fetches, func(ctx context.Context, _ Fetch, _ int64) error { return s.FetchAll(ctx) })
	job.Handle(j, job.Policy{Timeout: 30 * time.Minute, Attempts: 1 << 30}, func(ctx context.Context, _ Reconcile, _ int64) error {
		if err := s.Reconcile(ctx); err != nil {
			s.c.Log.ErrorContext(ctx, "reconciliation with Stripe failed, will be retried", "err", err)
		}
		return job.Later(reconcileEvery)
	})
}

// Schedule enqueues the job unless it exists.
func (s *Stripe) Schedule(ctx context.Context) error {
	return s.c.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := job.Enqueue(ctx, tx, Reconcile{}, job.Options{Unique: "stripe.reconcile"})
		return err
	})
}

// Reconcile lists the events since the last run and stores missing ones. Once a day it compares the payments, refunds
// and disputes of five weeks with the ledger.
func (s *Stripe) Reconcile(ctx context.Context) error {
	a, err := s.Account(ctx, s.c.DB)
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := s.c.DB.Write(ctx, func(tx *db.Tx) error { return s.enqueueFetchTx(ctx, tx) }); err != nil {
		return err
	}
	if err := s.Replay(ctx, a.ReadUntil.Add(-overlap)); err != nil {
		return err
	}
	if s.now().Sub(a.ComparedAt) >= compareEvery {
		if err := s.compare(ctx, a); err != nil {
			return err
		}
	}
	return s.c.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `DELETE FROM stripe_events WHERE received_at < $1 AND done_at > 0`, s.now().Add(-keepEvents))
		return err
	})
}

// Replay lists the events since a time and handles them like delivered ones.
func (s *Stripe) Replay(ctx context.Context, since db.Time) error {
	sc, err := s.client(ctx)
	if err != nil {
		return err
	}
	for now := s.now(); since < now; since = since.Add(window) {
		until := min(since.Add(window), now)
		var heads []eventHead
		for e, err := range sc.V1Events.List(ctx, &api.EventListParams{
			ListParams:   api.ListParams{Limit: api.Int64(100)},
			CreatedRange: &api.RangeQueryParams{GreaterThanOrEqual: since.Time().Unix(), LesserThanOrEqual: until.Time().Unix() + 1},
		}).All(ctx) {
			if err != nil {
				return safeError(err)
			}
			h := eventHead{ID: e.ID, Type: string(e.Type)}
			if e.Data != nil {
				h.Data.Object.ID, _ = e.Data.Object["id"].(string)
			}
			heads = append(heads, h)
			if len(heads) > maxPages*100 {
				return errors.New("list events: too many within six hours")
			}
		}
		for len(heads) > 0 {
			part := heads[:min(200, len(heads))]
			heads = heads[len(part):]
			if err := s.c.DB.Write(ctx, func(tx *db.Tx) error {
				for _, h := range part {
					if err := s.storeTx(ctx, tx, h); err != nil {
						return err
					}
				}
				return nil
			}); err != nil {
				return err
			}
		}
		if err := s.c.DB.Write(ctx, func(tx *db.Tx) error {
			_, err := tx.Exec(ctx, `UPDATE stripe_accounts SET read_until = $1 WHERE ended_at = 0 AND read_until < $1`, until)
			return err
		}); err != nil {
			return fmt.Errorf("write Stripe account: %w", err)
		}
	}
	return nil
}

// maxReplay is how far back Stripe lists events.
const maxReplay = 30 * 24 * time.Hour

// ReplayTx makes the next reconciliation list the events of the last since again, and returns the time from which it
// does.
func (s *Stripe) ReplayTx(ctx context.Context, tx *db.Tx, since time.Duration) (from db.Time, err error) {
	if since <= 0 || since > maxReplay {
		return 0, fault.New(fault.Invalid, "invalid_since", "Invalid duration", "Stripe lists the events of the last 30 days")
	}
	a, err := s.Account(ctx, tx)
	if err != nil {
		return 0, err
	}
	from = min(a.ReadUntil, s.now().Add(-since))
	_, err = tx.Exec(ctx, `UPDATE stripe_accounts SET read_until = $2 WHERE id = $1`, a.ID, from.Add(overlap))
	return from, err
}

// compare finds payments that differ between Stripe and the ledger. It first applies Stripe's version as an event
// would; remaining differences raise an alarm.
func (s *Stripe) compare(ctx context.Context, a Account) error {
	sc := s.clientOf(a)
	from := s.now().Add(-compareDays * 24 * time.Hour)
	made := &api.RangeQueryParams{GreaterThanOrEqual: from.Time().Unix()}
	differences := []string{}
	differs := func(format string, args ...any) {
		if len(differences) < maxListed {
			differences = append(differences, fmt.Sprintf(format, args...))
		}
	}
	captured := map[string]int64{}
	for pi, err := range sc.V1PaymentIntents.List(ctx,
		&api.PaymentIntentListParams{ListParams: api.ListParams{Limit: api.Int64(100)}, CreatedRange: made}).All(ctx) {
		if err != nil {
			return safeError(err)
		}
		if pi.Metadata["payment"] == "" {
			continue
		}
		out, err := s.outcome(ctx, sc, pi)
		if err == nil {
			err = s.c.Billing.Apply(ctx, out)
		}
		if err != nil {
			differs("%s: %v", pi.ID, err)
		}
		if out.Status == "completed" {
			captured[pi.ID] = out.Amount
		}
	}
	if err := s.refundsOf(ctx, sc, &api.RefundListParams{CreatedRange: made}); err != nil {
		return safeError(err)
	}
	for d, err := range sc.V1Disputes.List(ctx,
		&api.DisputeListParams{ListParams: api.ListParams{Limit: api.Int64(100)}, CreatedRange: made}).All(ctx) {
		if err != nil {
			return safeError(err)
		}
		if err := s.dispute(ctx, d); err != nil {
			differs("%s: %v", d.ID, err)
		}
	}
	here, err := s.c.Billing.Captured(ctx, s.c.DB, from.Add(-24*time.Hour)) // a payment begins before Stripe knows it
	if err != nil {
		return err
	}
	surely, err := s.c.Billing.Captured(ctx, s.c.DB, from.Add(time.Hour))
	if err != nil {
		return err
	}
	for reference, amount := range captured {
		if here[reference] != amount {
			differs("%s: Stripe has %d, the ledger %d", reference, amount, here[reference])
		}
	}
	for reference, amount := range surely {
		if captured[reference] == 0 {
			differs("%s: the ledger has %d, Stripe nothing", reference, amount)
		}
	}
	for _, d := range differences {
		s.c.Log.ErrorContext(ctx, "Stripe and the ledger differ", "account", a.ID, "difference", d)
	}
	text, err := json.Marshal(differences)
	if err != nil {
		return err
	}
	return s.c.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE stripe_accounts SET compared_at = $2, differences = $3 WHERE id = $1`, a.ID, s.now(), string(text))
		return err
	})
}
