package webhook

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"slipway/internal/account"
	"slipway/internal/db"
)

// flight is a delivery that this process holds the lease of.
type flight struct {
	id       DeliveryID
	hook     ID
	owner    account.OwnerID
	url      string
	host     string
	secret   string // sealed
	previous string // sealed: signs too, while the secret is being rotated; empty: none
	hops     int    // of the event
	event    string
	name     string
	body     []byte
	claims   int64 // the fencing token, and the number of this attempt
	failures int
	troubled bool // the endpoint's last attempt failed
	created  db.Time
}

// outcome tells how an attempt ended.
type outcome struct {
	flight
	started   db.Time
	took      time.Duration
	status    int
	err       string
	request   string // head of the request
	response  string // head of the answer
	answer    string
	wait      time.Duration // Retry-After; 0: none
	abandoned bool          // we stopped before it ended: it counts as not made
}

func (o outcome) ok() bool { return o.err == "" && o.status >= 200 && o.status <= 299 }

// turn writes outcomes and claims up to room deliveries, in one transaction. next is when
// there may be more to do; never when nothing is queued.
func (w *Webhooks) turn(ctx context.Context, done []outcome, room int) (flights []flight, next db.Time, err error) {
	var q *quota
	err = w.c.DB.Write(ctx, func(tx *db.Tx) error {
		flights, q = nil, w.hosts.quota(time.Now())
		if err := w.save(ctx, tx, done); err != nil {
			return err
		}
		if room > 0 {
			if flights, err = w.claim(ctx, tx, room, q); err != nil {
				return err
			}
		}
		next, err = w.upcoming(ctx, tx)
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	q.settle(done)
	return flights, next, nil
}

// upcoming returns when the first endpoint has its turn whose host has room.
func (w *Webhooks) upcoming(ctx context.Context, r db.Reader) (db.Time, error) {
	next := never
	but, args := w.notFull(int64(never))
	err := r.QueryRow(ctx, `SELECT COALESCE(min(turn_at), $1) FROM webhooks WHERE active AND deleted_at = 0`+but, args...).Scan(&next)
	if err != nil {
		return 0, fmt.Errorf("find next turn: %w", err)
	}
	return next, nil
}

// notFull returns a condition that leaves out endpoints of hosts without a free slot, and the
// arguments of a statement that it ends.
func (w *Webhooks) notFull(args ...any) (string, db.Args) {
	list, full := db.Args(args), w.hosts.full()
	if len(full) == 0 {
		return "", list
	}
	return ` AND host NOT IN (` + db.AddList(&list, full) + `)`, list
}

// window is how many requests an endpoint may have in flight: one until it has answered
// well, and again after a failure until it does.
const window = `CASE WHEN failures > 0 OR succeeded_at = 0 THEN 1 ELSE 4 END`

// claim takes deliveries that are due, endpoint by endpoint in the order of their turns:
// each gives at most what it and its host have room for, and then goes to the end of the line.
func (w *Webhooks) claim(ctx context.Context, tx *db.Tx, room int, q *quota) ([]flight, error) {
	type endpoint struct {
		flight
		most, leased int
	}
	now := db.Now()
	but, args := w.notFull(now, min(room, 256))
	rows, err := tx.Query(ctx, `
		SELECT id, owner_id, url, host, secret, CASE WHEN prev_until > $1 THEN prev_secret ELSE '' END, failures > 0 OR succeeded_at = 0, `+window+`,
			(SELECT count(*) FROM webhook_deliveries d WHERE d.hook_id = webhooks.id AND d.state = 'leased')
		FROM webhooks WHERE active AND deleted_at = 0 AND turn_at <= $1`+but+`
		ORDER BY turn_at, id LIMIT $2`+tx.SkipLocked(), args...)
	endpoints, err := db.Collect(rows, err, func(r db.Scanner) (e endpoint, err error) {
		return e, r.Scan(&e.hook, &e.owner, &e.url, &e.host, &e.secret, &e.previous, &e.troubled, &e.most, &e.leased)
	})
	if err != nil {
		return nil, fmt.Errorf("find due webhooks: %w", err)
	}
	var out []flight
	var visited []ID
	for _, e := range endpoints {
		if room == len(out) {
			break
		}
		floor, key := now, ownerHost{e.owner, e.host}
		n := min(e.most-e.leased, room-len(out))
		if n > 0 {
			var wait time.Duration
			n, wait = q.room(key, n)
			floor = now.Add(wait)
		}
		if n > 0 {
			rows, err := tx.Query(ctx, `
				UPDATE webhook_deliveries SET state = 'leased', claims = claims + 1, lease_until = $3
				WHERE id IN (SELECT id FROM webhook_deliveries WHERE hook_id = $1 AND state = 'pending' AND next_at <= $2
					ORDER BY next_at, id LIMIT $4)
				RETURNING id, event_id, claims, failures, created_at,
					(SELECT name FROM webhook_events e WHERE e.id = event_id),
					(SELECT body FROM webhook_events e WHERE e.id = event_id),
					(SELECT hops FROM webhook_events e WHERE e.id = event_id)`,
				e.hook, now, now.Add(w.c.Lease), n)
			taken, err := db.Collect(rows, err, func(r db.Scanner) (flight, error) {
				f := e.flight
				return f, r.Scan(&f.id, &f.event, &f.claims, &f.failures, &f.created, &f.name, &f.body, &f.hops)
			})
			if err != nil {
				return nil, fmt.Errorf("claim deliveries: %w", err)
			}
			out = append(out, taken...)
			q.plan(key, len(taken))
		}
		if _, err := tx.Exec(ctx, `UPDATE webhooks SET floor_at = $2 WHERE id = $1`, e.hook, floor); err != nil {
			return nil, fmt.Errorf("move webhook on: %w", err)
		}
		visited = append(visited, e.hook)
	}
	if err := retimeAll(ctx, tx, visited); err != nil {
		return nil, fmt.Errorf("set turns of webhooks: %w", err)
	}
	return out, nil
}

// retime works out when an endpoint has its next turn: not before its floor, never while
// it has no room or nothing is queued. The caller holds the row's lock from an earlier
// statement, so that this one sees what others queued meanwhile (PostgreSQL).
func retime(ctx context.Context, tx *db.Tx, hook ID) error {
	if err := retimeAll(ctx, tx, []ID{hook}); err != nil {
		return fmt.Errorf("set turn of webhook: %w", err)
	}
	return nil
}

const (
	firstDue = `(SELECT min(next_at) FROM webhook_deliveries d WHERE d.hook_id = webhooks.id AND d.state = 'pending')`
	setTurn  = `
		UPDATE webhooks SET turn_at = CASE
			WHEN (SELECT count(*) FROM webhook_deliveries d WHERE d.hook_id = webhooks.id AND d.state = 'leased')
				>= ` + window + ` THEN 1152921504606846976
			WHEN ` + firstDue + ` IS NULL THEN 1152921504606846976
			WHEN ` + firstDue + ` > floor_at THEN ` + firstDue + `
			ELSE floor_at END`
)

// health holds what a batch of outcomes says of one endpoint.
type health struct {
	succeeded, failed int // attempts
	failures          int // since the last success among them
	timeouts          int // likewise, those without connection or answer
	answered          bool
	ok                bool
	gone              bool
	troubled          bool
	cool              db.Time
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
	var all, attempts []settled
	for _, o := range done {
		h := hooks[o.hook]
		if h == nil {
			h = &health{}
			hooks[o.hook] = h
			order = append(order, o.hook)
		}
		h.troubled = h.troubled || o.troubled
		x := settled{outcome: o, state: "pending", failures: o.failures}
		switch {
		case o.abandoned:
			x.next = now
		case o.ok():
			x.state, x.finished = "succeeded", now
		default:
			x.failures++
			if x.failures > len(w.c.Schedule) || o.status == 410 {
				x.state, x.finished = "failed", now
				break
			}
			delay := jitter(w.c.Schedule[x.failures-1])
			if o.wait > 0 {
				delay = min(max(o.wait, delay), 24*time.Hour)
			}
			x.next = now.Add(delay)
		}
		all = append(all, x)
		if !o.abandoned {
			attempts = append(attempts, x)
		}
	}
	mine, err := writeSettled(ctx, tx, all)
	if err != nil {
		return fmt.Errorf("write outcomes: %w", err)
	}
	if err := writeAttempts(ctx, tx, attempts, mine); err != nil {
		return fmt.Errorf("write attempts: %w", err)
	}
	for _, o := range attempts {
		if !mine[o.id] {
			continue
		}
		h := hooks[o.hook]
		if o.ok() {
			h.ok, h.answered, h.failures, h.timeouts = true, true, 0, 0
			h.succeeded++
			continue
		}
		h.failures++
		h.failed++
		if silent(o.outcome) {
			h.timeouts++
		} else {
			h.answered, h.timeouts = true, 0
		}
		h.gone = h.gone || o.status == 410
		if o.wait > 0 && (o.status == 429 || o.status == 503) {
			h.cool = max(h.cool, now.Add(min(o.wait, 24*time.Hour)))
		}
	}
	if err := writeHours(ctx, tx, order, hooks, now); err != nil {
		return fmt.Errorf("count attempts: %w", err)
	}
	for _, id := range order {
		if err := w.updateHealth(ctx, tx, id, *hooks[id], now); err != nil {
			return err
		}
	}
	if err := retimeAll(ctx, tx, order); err != nil {
		return fmt.Errorf("set turns of webhooks: %w", err)
	}
	return nil
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
