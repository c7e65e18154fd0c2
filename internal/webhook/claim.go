package webhook

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"slipway/internal/db"
)

// flight is a delivery that this process holds the lease of.
type flight struct {
	id       DeliveryID
	hook     ID
	url      string
	secret   string // sealed
	event    string
	name     string
	body     []byte
	claims   int64 // the fencing token, and the number of this attempt
	failures int
	troubled bool // the endpoint's last attempt failed
	created  db.Time
}

// outcome is what became of an attempt.
type outcome struct {
	flight
	started   db.Time
	took      time.Duration
	status    int
	err       string
	answer    string
	wait      time.Duration // Retry-After; 0: none
	abandoned bool          // we stopped before it ended: it counts as not made
}

func (o outcome) ok() bool { return o.err == "" && o.status >= 200 && o.status <= 299 }

// turn writes outcomes and claims up to room deliveries, in one transaction. next is when
// there may be more to do; never when nothing is queued.
func (w *Webhooks) turn(ctx context.Context, done []outcome, room int) (flights []flight, next db.Time, err error) {
	err = w.c.DB.Write(ctx, func(tx *db.Tx) error {
		flights = nil
		if err := w.save(ctx, tx, done); err != nil {
			return err
		}
		if room > 0 {
			if flights, err = w.claim(ctx, tx, room); err != nil {
				return err
			}
		}
		next, err = upcoming(ctx, tx)
		return err
	})
	return flights, next, err
}

// upcoming is when the first endpoint has its turn.
func upcoming(ctx context.Context, r db.Reader) (db.Time, error) {
	next := never
	err := r.QueryRow(ctx, `SELECT COALESCE(min(turn_at), $1) FROM webhooks WHERE active AND deleted_at = 0`, int64(never)).Scan(&next)
	if err != nil {
		return 0, fmt.Errorf("find next turn: %w", err)
	}
	return next, nil
}

// claim takes deliveries that are due, endpoint by endpoint in the order of their turns:
// each gives at most what it has room for, and then goes to the end of the line.
func (w *Webhooks) claim(ctx context.Context, tx *db.Tx, room int) ([]flight, error) {
	type endpoint struct {
		id          ID
		url, secret string
		failures    int64
		leased      int
	}
	now := db.Now()
	rows, err := tx.Query(ctx, `
		SELECT id, url, secret, failures,
			(SELECT count(*) FROM webhook_deliveries d WHERE d.hook_id = webhooks.id AND d.state = 'leased')
		FROM webhooks WHERE active AND deleted_at = 0 AND turn_at <= $1
		ORDER BY turn_at, id LIMIT $2`+tx.SkipLocked(), now, min(room, 256))
	endpoints, err := db.Collect(rows, err, func(r db.Scanner) (e endpoint, err error) {
		return e, r.Scan(&e.id, &e.url, &e.secret, &e.failures, &e.leased)
	})
	if err != nil {
		return nil, fmt.Errorf("find due webhooks: %w", err)
	}
	var out []flight
	for _, e := range endpoints {
		if room == len(out) {
			break
		}
		most := maxInFlight
		if e.failures > 0 {
			most = 1 // one probe at a time until it answers well again
		}
		if n := min(most-e.leased, room-len(out)); n > 0 {
			rows, err := tx.Query(ctx, `
				UPDATE webhook_deliveries SET state = 'leased', claims = claims + 1, lease_until = $3
				WHERE id IN (SELECT id FROM webhook_deliveries WHERE hook_id = $1 AND state = 'pending' AND next_at <= $2
					ORDER BY next_at, id LIMIT $4)
				RETURNING id, event_id, claims, failures, created_at,
					(SELECT name FROM webhook_events e WHERE e.id = event_id),
					(SELECT body FROM webhook_events e WHERE e.id = event_id)`,
				e.id, now, now.Add(w.c.Lease), n)
			taken, err := db.Collect(rows, err, func(r db.Scanner) (flight, error) {
				f := flight{hook: e.id, url: e.url, secret: e.secret, troubled: e.failures > 0}
				return f, r.Scan(&f.id, &f.event, &f.claims, &f.failures, &f.created, &f.name, &f.body)
			})
			if err != nil {
				return nil, fmt.Errorf("claim deliveries: %w", err)
			}
			out = append(out, taken...)
		}
		if _, err := tx.Exec(ctx, `UPDATE webhooks SET floor_at = $2 WHERE id = $1`, e.id, now); err != nil {
			return nil, fmt.Errorf("move webhook on: %w", err)
		}
		if err := retime(ctx, tx, e.id); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// retime works out when an endpoint has its next turn: not before its floor, never while
// it has no room or nothing is queued. The caller holds the row's lock from an earlier
// statement, so that this one sees what others queued meanwhile (PostgreSQL).
func retime(ctx context.Context, tx *db.Tx, hook ID) error {
	const first = `(SELECT min(next_at) FROM webhook_deliveries d WHERE d.hook_id = webhooks.id AND d.state = 'pending')`
	_, err := tx.Exec(ctx, `
		UPDATE webhooks SET turn_at = CASE
			WHEN (SELECT count(*) FROM webhook_deliveries d WHERE d.hook_id = webhooks.id AND d.state = 'leased')
				>= CASE WHEN failures > 0 THEN 1 ELSE 4 END THEN 1152921504606846976
			WHEN `+first+` IS NULL THEN 1152921504606846976
			WHEN `+first+` > floor_at THEN `+first+`
			ELSE floor_at END
		WHERE id = $1`, hook)
	if err != nil {
		return fmt.Errorf("set turn of webhook: %w", err)
	}
	return nil
}

// health is what a batch of outcomes says of one endpoint.
type health struct {
	failures int
	ok       bool
	gone     bool
	troubled bool
	cool     db.Time
}

// save writes outcomes. One whose lease somebody else has taken over leaves a trace in
// the log and changes nothing else.
func (w *Webhooks) save(ctx context.Context, tx *db.Tx, done []outcome) error {
	if len(done) == 0 {
		return nil
	}
	slices.SortStableFunc(done, func(a, b outcome) int { return strings.Compare(string(a.hook), string(b.hook)) })
	now := db.Now()
	hooks := map[ID]*health{}
	var order []ID
	for _, o := range done {
		h := hooks[o.hook]
		if h == nil {
			h = &health{}
			hooks[o.hook] = h
			order = append(order, o.hook)
		}
		h.troubled = h.troubled || o.troubled
		state, next, finished := "pending", db.Time(0), db.Time(0)
		failures := o.failures
		switch {
		case o.abandoned:
			next = now
		case o.ok():
			state, finished = "succeeded", now
		default:
			failures++
			if failures > len(w.c.Schedule) || o.status == 410 {
				state, finished = "failed", now
				break
			}
			delay := jitter(w.c.Schedule[failures-1])
			if o.wait > 0 {
				delay = min(max(o.wait, delay), 24*time.Hour)
			}
			next = now.Add(delay)
		}
		n, err := tx.Exec(ctx, `
			UPDATE webhook_deliveries SET state = $3, failures = $4, next_at = $5, finished_at = $6, lease_until = 0
			WHERE id = $1 AND claims = $2 AND state = 'leased'`, o.id, o.claims, state, failures, next, finished)
		if err != nil {
			return fmt.Errorf("write outcome: %w", err)
		}
		if o.abandoned {
			continue
		}
		if _, err := tx.Exec(ctx, `
			INSERT INTO webhook_attempts (delivery_id, n, started_at, duration, status, error, answer, late)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
			o.id, o.claims, o.started, o.took.Milliseconds(), o.status, o.err, o.answer, n == 0); err != nil {
			return fmt.Errorf("write attempt: %w", err)
		}
		if n == 0 {
			continue
		}
		if o.ok() {
			h.ok, h.failures = true, 0
			continue
		}
		h.failures++
		h.gone = h.gone || o.status == 410
		if o.wait > 0 && (o.status == 429 || o.status == 503) {
			h.cool = max(h.cool, now.Add(min(o.wait, 24*time.Hour)))
		}
	}
	for _, id := range order {
		if err := w.heal(ctx, tx, id, *hooks[id], now); err != nil {
			return err
		}
	}
	return nil
}

// heal writes what outcomes say of an endpoint, and gives it its next turn.
func (w *Webhooks) heal(ctx context.Context, tx *db.Tx, id ID, h health, now db.Time) error {
	if h.ok || h.failures > 0 {
		// On one node this matters only when something changes; on several it takes the lock.
		if h.failures > 0 || h.troubled || !w.c.DB.Single() {
			if _, err := tx.Exec(ctx, `
				UPDATE webhooks SET
					failures = CASE WHEN $2 THEN 0 ELSE failures END + $3,
					failing_since = CASE WHEN $3 = 0 THEN CASE WHEN $2 THEN 0 ELSE failing_since END
						WHEN failing_since = 0 OR $2 THEN $4 ELSE failing_since END,
					floor_at = CASE WHEN floor_at < $5 THEN $5 ELSE floor_at END
				WHERE id = $1`, id, h.ok, h.failures, now, h.cool); err != nil {
				return fmt.Errorf("write health of webhook: %w", err)
			}
		}
	} else if !w.c.DB.Single() {
		if _, err := tx.Exec(ctx, `UPDATE webhooks SET id = id WHERE id = $1`, id); err != nil {
			return fmt.Errorf("lock webhook: %w", err)
		}
	}
	if h.gone {
		n, err := tx.Exec(ctx, `UPDATE webhooks SET active = FALSE, reason = $2, updated_at = $3 WHERE id = $1 AND active AND deleted_at = 0`, id, goneReason, now)
		if err == nil && n > 0 {
			w.c.Log.InfoContext(ctx, "webhook turned off", "webhook", id, "reason", goneReason)
		}
		if err != nil {
			return fmt.Errorf("turn webhook off: %w", err)
		}
	}
	if h.failures > 0 { // what came back to a webhook that was turned off meanwhile stays unsent
		if _, err := tx.Exec(ctx, skipPending+` AND EXISTS (SELECT 1 FROM webhooks WHERE id = $1 AND NOT active)`, id, now); err != nil {
			return fmt.Errorf("skip deliveries: %w", err)
		}
	}
	return retime(ctx, tx, id)
}

// jitter spreads a delay by ±10 %.
func jitter(d time.Duration) time.Duration {
	return d + time.Duration((rand.Float64()*2-1)*0.1*float64(d))
}

// takeOver gives back what dead workers hold: all of it where this process is the only
// one (its predecessor is gone), else what no worker has finished within its lease.
func (w *Webhooks) takeOver(ctx context.Context, all bool) error {
	now := db.Now()
	before := now
	if all {
		before = never
	}
	return w.c.DB.Write(ctx, func(tx *db.Tx) error {
		rows, err := tx.Query(ctx, `SELECT DISTINCT hook_id FROM webhook_deliveries WHERE state = 'leased' AND lease_until < $1 ORDER BY hook_id`, before)
		hooks, err := db.Collect(rows, err, func(r db.Scanner) (id ID, err error) { return id, r.Scan(&id) })
		if err != nil {
			return fmt.Errorf("find expired leases: %w", err)
		}
		for _, id := range hooks {
			_, err := tx.Exec(ctx, `UPDATE webhooks SET id = id WHERE id = $1`, id) // the lock first
			var n int64
			if err == nil {
				n, err = tx.Exec(ctx, `UPDATE webhook_deliveries SET state = 'pending', lease_until = 0 WHERE hook_id = $1 AND state = 'leased' AND lease_until < $2`, id, before)
			}
			if err == nil {
				err = retime(ctx, tx, id)
			}
			if err != nil {
				return fmt.Errorf("take deliveries over: %w", err)
			}
			w.c.Log.InfoContext(ctx, "deliveries taken over", "webhook", id, "count", n)
		}
		if len(hooks) > 0 {
			tx.Notify(topic)
		}
		return nil
	})
}

var errNoClient = errors.New("webhooks: Run needs Config.Out")

// soonest is how long to wait for a moment: poll at most, and at least a little when
// nothing could be claimed although something is due (another node holds it).
func soonest(next db.Time, poll time.Duration) time.Duration {
	now := db.Now()
	if next >= now.Add(poll) {
		return poll
	}
	return max(next.Sub(now), 5*time.Millisecond)
}
