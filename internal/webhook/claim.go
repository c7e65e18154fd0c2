package webhook

import (
	"context"
	"fmt"
	"strconv"
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

// turn writes outcomes and claims up to free deliveries, in one transaction. next is when
// there may be more to do; never when nothing is queued.
func (w *Webhooks) turn(ctx context.Context, done []outcome, free int) (flights []flight, next db.Time, err error) {
	var q *quota
	err = w.c.DB.Write(ctx, func(tx *db.Tx) error {
		flights, q = nil, w.hosts.quota(time.Now())
		if err := w.save(ctx, tx, done); err != nil {
			return err
		}
		if free > 0 {
			if err := answerCalls(ctx, tx, db.Now()); err != nil {
				return err
			}
			if flights, err = w.claim(ctx, tx, free, q); err != nil {
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

// upcoming returns when the first endpoint has its turn whose host can take more: at once
// where one is called for.
func (w *Webhooks) upcoming(ctx context.Context, r db.Reader) (db.Time, error) {
	next := never
	but, args := w.notFull(int64(never))
	err := r.QueryRow(ctx, `
		SELECT CASE WHEN EXISTS (SELECT 1 FROM webhook_calls) THEN 0 ELSE COALESCE(min(turn_at), $1) END
		FROM webhooks WHERE active AND deleted_at = 0`+but, args...).Scan(&next)
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

// claimable is how many endpoints a turn looks at. It stands in the statement itself:
// SQLite prepares a statement whose LIMIT is a parameter anew each time it runs.
const claimable = 256

// endpoint is a webhook whose turn it is.
type endpoint struct {
	flight       // what its deliveries share
	most, leased int
	due          []flight      // as many as an endpoint may have in flight, the longest due first
	visited      bool          // it had its turn
	left         int           // of due, after it
	wait         time.Duration // until its host has room, or its owner's pace towards it; 0: they have
}

// claim takes deliveries that are due, endpoint by endpoint in the order of their turns:
// each gives at most what it and its host have room for, and then goes to the end of the line.
func (w *Webhooks) claim(ctx context.Context, tx *db.Tx, room int, q *quota) ([]flight, error) {
	now := db.Now()
	but, args := w.notFull(now)
	rows, err := tx.Query(ctx, `
		SELECT id, owner_id, url, host, secret, CASE WHEN prev_until > $1 THEN prev_secret ELSE '' END, failures > 0 OR succeeded_at = 0, `+window+`,
			`+underWay+`
		FROM webhooks WHERE active AND deleted_at = 0 AND turn_at <= $1`+but+`
		ORDER BY turn_at, id LIMIT `+strconv.Itoa(claimable)+tx.SkipLocked(), args...)
	endpoints, err := db.Collect(rows, err, func(r db.Scanner) (*endpoint, error) {
		e := &endpoint{}
		return e, r.Scan(&e.hook, &e.owner, &e.url, &e.host, &e.secret, &e.previous, &e.troubled, &e.most, &e.leased)
	})
	if err != nil {
		return nil, fmt.Errorf("find due webhooks: %w", err)
	}
	var out []flight
	err = inChunks(endpoints, func(part []*endpoint) error { // what is not reached is not looked for
		if room == len(out) {
			return nil
		}
		if err := findDue(ctx, tx, part, now); err != nil {
			return err
		}
		taken := take(part, room-len(out), q)
		out = append(out, taken...)
		if err := w.lease(ctx, tx, taken, now); err != nil {
			return err
		}
		return moveOn(ctx, tx, part, now)
	})
	if err != nil {
		return nil, err
	}
	return out, readEvents(ctx, tx, out)
}

// findDue looks for the deliveries that endpoints may have in flight.
func findDue(ctx context.Context, tx *db.Tx, part []*endpoint, now db.Time) error {
	var text strings.Builder
	args := db.Args{now}
	of := make(map[ID]*endpoint, len(part))
	for i, e := range part {
		of[e.hook] = e
		if i > 0 {
			text.WriteString(" UNION ALL ")
		}
		text.WriteString(`SELECT * FROM (SELECT hook_id, id, event_id, claims + 1, failures, created_at FROM webhook_deliveries
			WHERE hook_id = ` + args.Add(e.hook) + ` AND state = 'pending' AND next_at <= $1 ORDER BY next_at, id LIMIT ` + strconv.Itoa(maxInFlight) + `) AS e` + strconv.Itoa(i))
	}
	rows, err := tx.Query(ctx, text.String(), args...)
	_, err = db.Collect(rows, err, func(r db.Scanner) (_ struct{}, err error) {
		var hook ID
		var f flight
		err = r.Scan(&hook, &f.id, &f.event, &f.claims, &f.failures, &f.created)
		if e := of[hook]; e != nil {
			x := e.flight
			x.id, x.event, x.claims, x.failures, x.created = f.id, f.event, f.claims, f.failures, f.created
			e.due = append(e.due, x)
		}
		return struct{}{}, err
	})
	if err != nil {
		return fmt.Errorf("find due deliveries: %w", err)
	}
	return nil
}

// take chooses up to room of what is due, and notes what became of each endpoint's turn.
func take(part []*endpoint, room int, q *quota) (out []flight) {
	for _, e := range part {
		if room == len(out) {
			break // the others keep their turn
		}
		e.visited = true
		key, n := ownerHost{e.owner, e.host}, min(e.most-e.leased, room-len(out))
		if n > 0 {
			n, e.wait = q.allow(key, n)
		}
		if n = max(0, min(n, len(e.due))); n > 0 {
			out = append(out, e.due[:n]...)
			q.plan(key, n)
			e.leased += n
		}
		e.left = len(e.due) - n
	}
	return out
}

// moveOn sets the next turns of those that had one: after the leases, which count.
func moveOn(ctx context.Context, tx *db.Tx, part []*endpoint, now db.Time) error {
	var visited []*endpoint
	var drained []ID // nothing more is due: what is later decides
	for _, e := range part {
		if !e.visited {
			continue
		}
		visited = append(visited, e)
		if e.leased < e.most && e.left == 0 {
			drained = append(drained, e.hook)
		}
	}
	err := inChunks(visited, func(part []*endpoint) error {
		var args []any
		for _, e := range part {
			floor := now.Add(e.wait)
			turn := floor
			if e.leased >= e.most { // an outcome will give it its turn
				turn = never
			}
			args = append(args, e.hook, floor, turn)
		}
		_, err := tx.Exec(ctx, `
			UPDATE webhooks SET floor_at = v.column2, turn_at = v.column3
			FROM (VALUES `+values(len(part), "TEXT", "BIGINT", "BIGINT")+`) AS v WHERE webhooks.id = v.column1`, args...)
		return err
	})
	if err == nil {
		err = retimeAll(ctx, tx, drained)
	}
	if err != nil {
		return fmt.Errorf("move webhooks on: %w", err)
	}
	return nil
}

// lease marks deliveries as under way. The locks of their endpoints keep others from them.
func (w *Webhooks) lease(ctx context.Context, tx *db.Tx, list []flight, now db.Time) error {
	return inChunks(list, func(part []flight) error {
		args, marks := db.Args{now.Add(w.c.Lease)}, make([]string, len(part))
		for i, f := range part {
			marks[i] = args.Add(f.id)
		}
		n, err := tx.Exec(ctx, `
			UPDATE webhook_deliveries SET state = 'leased', claims = claims + 1, lease_until = $1
			WHERE id IN (`+strings.Join(marks, ", ")+`) AND `+stateIs("pending"), args...)
		if err == nil && n != int64(len(part)) {
			err = fmt.Errorf("%d of %d are pending", n, len(part))
		}
		if err != nil {
			return fmt.Errorf("claim deliveries: %w", err)
		}
		return nil
	})
}

// readEvents fills in what is sent.
func readEvents(ctx context.Context, tx *db.Tx, list []flight) error {
	of := map[string][]int{}
	var ids []string
	for i, f := range list {
		if of[f.event] == nil {
			ids = append(ids, f.event)
		}
		of[f.event] = append(of[f.event], i)
	}
	return inChunks(ids, func(part []string) error {
		var args db.Args
		rows, err := tx.Query(ctx, `SELECT id, name, body, hops FROM webhook_events WHERE id IN (`+db.AddList(&args, part)+`)`, args...)
		_, err = db.Collect(rows, err, func(r db.Scanner) (_ struct{}, err error) {
			var id, name string
			var body []byte
			var hops int
			err = r.Scan(&id, &name, &body, &hops)
			for _, i := range of[id] {
				list[i].name, list[i].body, list[i].hops = name, body, hops
			}
			return struct{}{}, err
		})
		if err != nil {
			return fmt.Errorf("read events: %w", err)
		}
		return nil
	})
}
