package webhook

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"slipway/internal/platform/chunk"
	"slipway/internal/platform/db"
	"slipway/internal/tenant/webhook/delivery"
)

// flight is a delivery leased by this process. Its attempt's number is the fencing token.
type flight struct {
	delivery.Request
	hook     ID
	secret   string // sealed
	previous string // sealed; also signs during a rotation; empty: none
	failures int
	troubled bool // the endpoint's last attempt failed
	created  db.Time
}

// outcome is a flight and the result of its attempt.
type outcome struct {
	flight
	delivery.Result
}

// turn stores outcomes and claims up to free deliveries in one transaction. next is when more work may be due, or never
// if nothing is queued.
//
// Endpoints with outcomes or calls are visited after those whose turn is due, in the same transaction, so that a
// constantly busy endpoint needs no separate writes.
func (w *Webhooks) turn(ctx context.Context, done []outcome, free int) (flights []flight, next db.Time, err error) {
	var q *delivery.Quota
	err = w.c.DB.Write(ctx, func(tx *db.Tx) error {
		flights, q = nil, w.hosts.Quota(time.Now())
		if err := tx.IndexesOnly(ctx); err != nil {
			return err
		}
		var touched []ID
		if free > 0 {
			if touched, err = takeCalls(ctx, tx); err != nil {
				return err
			}
		}
		for _, o := range done {
			touched = append(touched, o.hook)
		}
		slices.Sort(touched)
		touched = slices.Compact(touched)
		if err := w.save(ctx, tx, done, touched); err != nil {
			return err
		}
		if free > 0 {
			if flights, err = w.claim(ctx, tx, free, q, touched); err != nil {
				return err
			}
		} else if err := retimeAll(ctx, tx, touched); err != nil {
			return fmt.Errorf("set turns of webhooks: %w", err)
		}
		next, err = w.upcoming(ctx, tx)
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	q.Settle()
	return flights, next, nil
}

// upcoming returns the earliest turn of endpoints whose host has a free slot, or now if an endpoint was called.
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

// notFull returns a condition that excludes endpoints of hosts without a free slot, and the statement's arguments
// including its own.
func (w *Webhooks) notFull(args ...any) (string, db.Args) {
	list, full := db.Args(args), w.hosts.Full()
	if len(full) == 0 {
		return "", list
	}
	return ` AND host NOT IN (` + db.AddList(&list, full) + `)`, list
}

// window is the number of an endpoint's concurrent requests: one before its first success and after a failure,
// otherwise four.
const window = `CASE WHEN failures > 0 OR succeeded_at = 0 THEN 1 ELSE 4 END`

// maxClaimable caps the endpoints visited in a turn besides those touched.
const maxClaimable = 256

// claimable returns the number of endpoints to visit for room deliveries. It is one of a few constants, since SQLite
// prepares a statement with a LIMIT parameter again on each run.
func claimable(room int) string {
	for _, n := range []int{16, 64} {
		if room <= n {
			return strconv.Itoa(n)
		}
	}
	return strconv.Itoa(maxClaimable)
}

// endpoint is a webhook visited in a turn.
type endpoint struct {
	flight       // the fields its deliveries share
	most, leased int
	turn, floor  db.Time       // the row's current values
	due          []flight      // deliveries that may be sent, longest due first; at most one more than may be in flight
	later        db.Time       // when the next of the others is due; never: none found
	visited      bool          // whether it got its turn
	left         int           // how many of due remain
	wait         time.Duration // until its host or its owner's rate limit has room; 0: they have
}

// waiting selects an endpoint's first deliveries, each as space-separated fields, so that all of them fit in one row.
var waiting = `(SELECT string_agg(q.next_at || ' ' || q.id || ' ' || q.event_id || ' ' || q.claims || ' ' || q.failures || ' '
		|| q.created_at, ';')
	FROM (SELECT * FROM webhook_deliveries d WHERE d.hook_id = webhooks.id AND d.state = 'pending' ORDER BY d.next_at, d.id
	LIMIT ` + strconv.Itoa(maxInFlight+1) + `) AS q)`

// selectEndpoints begins the query for endpoints with due turns; $1 is now.
var selectEndpoints = `
	SELECT id, owner_id, url, host, secret, CASE WHEN prev_until > $1 THEN prev_secret ELSE '' END, failures > 0 OR succeeded_at = 0, ` + window + `,
		` + underWay + `, turn_at, floor_at, ` + waiting + `
	FROM webhooks WHERE active AND deleted_at = 0 AND floor_at <= $1`

var endpointText = chunk.Text(func(n int) string { return selectEndpoints + ` AND id IN (` + chunk.Marks(2, n) + `)` })

// scanEndpoint returns a function that scans rows of selectEndpoints.
func scanEndpoint(now db.Time) func(r db.Scanner) (*endpoint, error) {
	return func(r db.Scanner) (*endpoint, error) {
		e := &endpoint{later: never}
		var list sql.NullString
		if err := r.Scan(&e.hook, &e.Owner, &e.Url, &e.Host, &e.secret, &e.previous, &e.troubled, &e.most, &e.leased,
			&e.turn, &e.floor, &list); err != nil || !list.Valid {
			return e, err
		}
		var at []db.Time // times of due
		for text := range strings.SplitSeq(list.String, ";") {
			f := e.flight
			var next db.Time
			if err := readWaiting(text, &f, &next); err != nil {
				return nil, err
			}
			if next > now {
				e.later = min(e.later, next)
				continue
			}
			i, _ := slices.BinarySearch(at, next+1) // after equal times
			at, e.due = slices.Insert(at, i, next), slices.Insert(e.due, i, f)
		}
		return e, nil
	}
}

// readWaiting parses one entry of waiting.
func readWaiting(text string, f *flight, next *db.Time) error {
	fields := strings.Split(text, " ")
	if len(fields) != 6 {
		return fmt.Errorf("read due deliveries: %d fields", len(fields))
	}
	var numbers [4]int64
	for i, at := range []int{0, 3, 4, 5} {
		n, err := strconv.ParseInt(fields[at], 10, 64)
		if err != nil {
			return fmt.Errorf("read due deliveries: %w", err)
		}
		numbers[i] = n
	}
	*next = db.Time(numbers[0])
	f.Id, f.Event = delivery.ID(fields[1]), fields[2]
	f.Number, f.failures, f.created = numbers[1]+1, int(numbers[2]), db.Time(numbers[3])
	return nil
}

// claim leases due deliveries: first of endpoints in the order of their turns, then of the touched ones. Each endpoint
// gives at most as many as it and its host have room for, and then goes to the end of the queue. The caller holds the
// locks of the touched endpoints.
func (w *Webhooks) claim(ctx context.Context, tx *db.Tx, room int, q *delivery.Quota, touched []ID) ([]flight, error) {
	now := tx.Now()
	but, args := w.notFull(now)
	rows, err := tx.Query(ctx,
		`SELECT id FROM webhooks WHERE active AND deleted_at = 0 AND turn_at <= $1`+but+
			` ORDER BY turn_at, id LIMIT `+claimable(room)+tx.SkipLocked(),
		args...)
	line, err := db.Collect(rows, err, func(r db.Scanner) (id ID, err error) { return id, r.Scan(&id) })
	if err != nil {
		return nil, fmt.Errorf("find due webhooks: %w", err)
	}
	place := make(map[ID]int, len(line)+len(touched))
	for i, id := range line {
		place[id] = i
	}
	for _, id := range touched {
		if _, ok := place[id]; !ok {
			place[id] = len(line)
			line = append(line, id)
		}
	}
	share := max(1, min(maxInFlight, room/max(1, len(line)))) // divide scarce room among the endpoints
	var out []flight
	var visited []*endpoint
	missed := touched[:0:0]
	err = chunk.Each(line, func(part []ID) error { // stop once the room is used up
		if room == len(out) {
			return nil
		}
		// A separate statement, which sees what others committed before this one got the locks.
		args := append(make(db.Args, 0, 1+len(part)), now)
		for _, id := range part {
			args = append(args, id)
		}
		text := endpointText(len(part))
		if full := w.hosts.Full(); len(full) > 0 {
			text += ` AND host NOT IN (` + db.AddList(&args, full) + `)`
		}
		rows, err := tx.Query(ctx, text, args...)
		list, err := db.Collect(rows, err, scanEndpoint(now))
		if err != nil {
			return fmt.Errorf("find due deliveries: %w", err)
		}
		slices.SortFunc(list, func(a, b *endpoint) int { return place[a.hook] - place[b.hook] })
		taken := take(list, room-len(out), share, q)
		seen := make(map[ID]bool, len(list))
		for _, e := range list {
			seen[e.hook] = true
			if e.visited {
				visited = append(visited, e)
				delete(place, e.hook)
			}
		}
		for _, id := range part {
			if !seen[id] { // disabled, or not allowed by its floor or host
				missed = append(missed, id)
				delete(place, id)
			}
		}
		out = append(out, taken...)
		return w.lease(ctx, tx, taken, now)
	})
	if err != nil {
		return nil, err
	}
	if err := moveOn(ctx, tx, visited, now); err != nil {
		return nil, err
	}
	for _, id := range touched {
		if _, waits := place[id]; waits {
			missed = append(missed, id)
		}
	}
	if err := retimeAll(ctx, tx, missed); err != nil {
		return nil, fmt.Errorf("set turns of webhooks: %w", err)
	}
	return out, nil
}

// take selects up to room due deliveries, at most share per endpoint, and records how far each endpoint's turn got.
func take(part []*endpoint, room, share int, q *delivery.Quota) (out []flight) {
	for _, e := range part {
		if room == len(out) {
			break // the others keep their turn
		}
		e.visited = true
		key, n := delivery.OwnerHost{Owner: e.Owner, Host: e.Host}, max(0, min(e.most-e.leased, room-len(out), len(e.due), share))
		if n > 0 {
			n, e.wait = q.Allow(key, n)
			network := q.Plan(key, n)
			for i := range n {
				e.due[i].Network = network
			}
			out = append(out, e.due[:n]...)
			e.leased += n
		}
		e.left = len(e.due) - n
	}
	return out
}

var moveText = chunk.Text(func(n int) string {
	return `UPDATE webhooks SET floor_at = v.column2, turn_at = v.column3
		FROM (VALUES ` + chunk.Values(n, "TEXT", "BIGINT", "BIGINT") + `) AS v WHERE webhooks.id = v.column1`
})

// moveOn updates changed turns of the visited endpoints.
func moveOn(ctx context.Context, tx *db.Tx, part []*endpoint, now db.Time) error {
	var moved []*endpoint
	for _, e := range part {
		turn, floor := max(e.later, e.floor), e.floor
		switch {
		case e.leased >= e.most:
			turn = never // its outcome will set the turn
		case e.left > 0:
			floor = now.Add(e.wait)
			turn = floor
		}
		if turn != e.turn || floor != e.floor {
			e.turn, e.floor = turn, floor
			moved = append(moved, e)
		}
	}
	err := chunk.Each(moved, func(part []*endpoint) error {
		var args []any
		for _, e := range part {
			args = append(args, e.hook, e.floor, e.turn)
		}
		_, err := tx.Exec(ctx, moveText(len(part)), args...)
		return err
	})
	if err != nil {
		return fmt.Errorf("move webhooks on: %w", err)
	}
	return nil
}

var leaseText = chunk.Text(func(n int) string {
	return `UPDATE webhook_deliveries SET state = 'leased', claims = claims + 1, lease_until = $1 WHERE id IN (` + chunk.Marks(
		2,
		n,
	) + `) AND ` + stateIs("pending")
})

// lease marks deliveries as leased. The endpoints' locks exclude other nodes.
func (w *Webhooks) lease(ctx context.Context, tx *db.Tx, list []flight, now db.Time) error {
	return chunk.Each(list, func(part []flight) error {
		args := append(make([]any, 0, 1+len(part)), now.Add(w.c.Lease))
		for _, f := range part {
			args = append(args, f.Id)
		}
		n, err := tx.Exec(ctx, leaseText(len(part)), args...)
		if err == nil && n != int64(len(part)) {
			err = fmt.Errorf("%d of %d are pending", n, len(part))
		}
		if err != nil {
			return fmt.Errorf("claim deliveries: %w", err)
		}
		return nil
	})
}
