package stripe

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	api "github.com/stripe/stripe-go/v85"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/job"
	"slipway/internal/platform/panics"
)

// Fetch is the job that fetches the objects of pending events.
type Fetch struct{}

// Kind implements [job.Args].
func (Fetch) Kind() string { return "stripe.events" }

// MostCalls caps concurrent calls to Stripe, which allows 100 per second.
const MostCalls = 16

const (
	fetchAtOnce  = MostCalls / 2
	fetchList    = 200 // events read per pass
	fetchPause   = 500 * time.Millisecond
	fetchRetries = 40 // per event, over three hours
)

// enqueueFetchTx enqueues the fetch job unless one is pending. A running job may already have read the events; it has
// incremented the round, so that it doesn't count as pending. The row's lock makes it wait for uncommitted events.
func (s *Stripe) enqueueFetchTx(ctx context.Context, tx *db.Tx) error {
	var account string
	var round int64
	err := tx.QueryRow(ctx, `UPDATE stripe_accounts SET round = round WHERE ended_at = 0 RETURNING id, round`).Scan(&account, &round)
	if errors.Is(err, sql.ErrNoRows) { // disconnected meanwhile
		return fault.Missing("webhook")
	}
	if err != nil {
		return fmt.Errorf("read round: %w", err)
	}
	_, err = job.Enqueue(ctx, tx, Fetch{}, job.Options{Unique: fmt.Sprintf("stripe.events/%s/%d", account, round)})
	return err
}

// FetchAll fetches the objects of all pending events, in parts, until none is due. If this process is already fetching,
// it returns [job.Later]. An event that fails waits for its retry without delaying others.
func (s *Stripe) FetchAll(ctx context.Context) error {
	if !s.fetching.TryLock() {
		return job.Later(fetchPause)
	}
	defer s.fetching.Unlock()
	if err := s.c.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE stripe_accounts SET round = round + 1 WHERE ended_at = 0`)
		return err
	}); err != nil {
		return fmt.Errorf("begin round: %w", err)
	}
	for {
		rows, err := s.c.DB.Query(ctx, `
			SELECT id, object FROM stripe_events WHERE done_at = 0 AND retry_at <= $1 ORDER BY received_at, id LIMIT $2`, s.now(), fetchList)
		list, err := db.Collect(rows, err, func(s db.Scanner) (e waiting, err error) { return e, s.Scan(&e.id, &e.object) })
		if err != nil {
			return fmt.Errorf("find events: %w", err)
		}
		if len(list) == 0 {
			return s.fetchAgain(ctx)
		}
		if err := s.fetchSome(ctx, list); err != nil {
			return err
		}
	}
}

// waiting is a pending event and its object's ID.
type waiting struct{ id, object string }

// fetchSome fetches the events' objects and records the finished ones in one transaction. After a crash they are
// fetched again, which is harmless. It returns an error if an outcome couldn't be stored.
func (s *Stripe) fetchSome(ctx context.Context, list []waiting) error {
	sc, err := s.client(ctx)
	if errors.Is(err, errOff) { // disconnected meanwhile
		return s.done(ctx, list)
	}
	if err != nil {
		return err
	}
	failed := make([]error, len(list))
	var group sync.WaitGroup
	// share: total 8 calls to Stripe at once, of which all owners' events make use; owner no bound, what Stripe sends comes in its order; edge the others wait
	places := make(chan struct{}, fetchAtOnce)
	for i, e := range list {
		places <- struct{}{}
		group.Go(func() {
			defer func() { <-places }()
			err := panics.Call(func() error { return s.follow(ctx, sc, e.object) })
			var a *api.Error
			if errors.As(err, &a) && a.HTTPStatusCode == http.StatusNotFound || errors.Is(err, errOff) {
				err = nil // not of this account, or the account was disconnected
			}
			failed[i] = err
		})
	}
	group.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var fetched []waiting
	for i, e := range list {
		if failed[i] == nil {
			fetched = append(fetched, e)
		} else if err := s.postpone(ctx, e.id, safeError(failed[i])); err != nil {
			return err
		}
	}
	return s.done(ctx, fetched)
}

// done marks events as fetched.
func (s *Stripe) done(ctx context.Context, list []waiting) error {
	if len(list) == 0 {
		return nil
	}
	ids := make([]string, 0, len(list))
	for _, e := range list {
		ids = append(ids, e.id)
	}
	args := db.Args{s.now()}
	some := db.AddList(&args, ids)
	err := s.c.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE stripe_events SET done_at = $1 WHERE done_at = 0 AND id IN (`+some+`)`, args...)
		return err
	})
	if err != nil {
		return fmt.Errorf("end events: %w", err)
	}
	return nil
}

// postpone schedules the retry of a failed event after a second, doubling up to five minutes. After the last retry it
// is left to the daily comparison with the ledger.
func (s *Stripe) postpone(ctx context.Context, event string, why error) error {
	err := s.c.DB.Write(ctx, func(tx *db.Tx) error {
		var failures int
		row := tx.QueryRow(ctx, `UPDATE stripe_events SET failures = failures + 1 WHERE id = $1 RETURNING failures`, event)
		if err := row.Scan(&failures); err != nil {
			return err
		}
		now, done := s.now(), db.Time(0)
		if failures >= fetchRetries {
			done = now
		}
		_, err := tx.Exec(ctx, `UPDATE stripe_events SET retry_at = $2, done_at = $3 WHERE id = $1`,
			event, now.Add(min(time.Second<<min(failures-1, 20), 5*time.Minute)), done)
		return err
	})
	if err != nil {
		return fmt.Errorf("postpone event: %w", err)
	}
	s.c.Log.WarnContext(ctx, "event of Stripe not fetched", "event", event, "err", why)
	return nil
}

// fetchAgain enqueues the job for the next retry.
func (s *Stripe) fetchAgain(ctx context.Context) error {
	return s.c.DB.Write(ctx, func(tx *db.Tx) error {
		var next db.Time
		row := tx.QueryRow(ctx, `SELECT COALESCE(MIN(retry_at), 0) FROM stripe_events WHERE done_at = 0 AND retry_at > 0`)
		if err := row.Scan(&next); err != nil || next == 0 {
			return err
		}
		_, err := job.Enqueue(ctx, tx, Fetch{}, job.Options{Unique: fmt.Sprintf("stripe.events/at/%d", next), At: next})
		return err
	})
}
