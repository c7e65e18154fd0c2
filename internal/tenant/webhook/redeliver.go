package webhook

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/job"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/operation"
	"slipway/internal/tenant/webhook/delivery"
	"slipway/internal/tenant/webhook/event"
)

// Filter selects deliveries of one webhook. Every field is optional.
type Filter struct {
	State  string   // pending, succeeded, or failed, which includes those skipped while the webhook was disabled
	Events []string // names
	Since  db.Time
	Until  db.Time // 0: now
}

// states maps each selectable state to a condition served by an index, so that a few pending deliveries among many are
// found quickly.
var states = map[string]string{
	"pending": `d.id IN (SELECT id FROM webhook_deliveries WHERE hook_id = $1 AND state = 'pending' 
		UNION ALL SELECT id FROM webhook_deliveries WHERE hook_id = $1 AND state = 'leased')`,
	"succeeded": `d.state = 'succeeded'`,
	"failed":    `d.state IN ('failed', 'skipped')`,
}

// Limits of searching a log.
const (
	searched = 10_000  // newest matches of the other conditions among which event names are searched
	counted  = 100_000 // maximum of a total
)

// where returns the condition for deliveries d without their events, and its arguments.
func (f Filter) where(hook ID) (string, db.Args, error) {
	text, args := `d.hook_id = $1`, db.Args{hook}
	if f.State != "" {
		is, ok := states[f.State]
		if !ok {
			return "", nil, fault.New(fault.Invalid, "invalid_state", "Invalid state",
				"state must be pending, succeeded or failed").Got(text30(f.State))
		}
		text += " AND " + is
	}
	for _, name := range f.Events {
		if !event.Known(name, true) && name != event.PingName {
			return "", nil, fault.New(fault.Invalid, "invalid_event", "Unknown event",
				"GET /webhooks/events lists the names of events").Got(text30(name))
		}
	}
	if f.Since != 0 {
		text += " AND d.id >= " + args.Add(db.FirstID("dlv", f.Since)) // an index has this order
		text += " AND d.created_at >= " + args.Add(f.Since)
	}
	if f.Until != 0 {
		text += " AND d.id < " + args.Add(db.FirstID("dlv", f.Until.Add(time.Minute))) // an ID is created slightly after its time
		text += " AND d.created_at < " + args.Add(f.Until)
	}
	return text, args, nil
}

// chosen returns a query for the IDs of matching deliveries, in no particular order.
func (f Filter) chosen(hook ID) (string, db.Args, error) {
	where, args, err := f.where(hook)
	if len(f.Events) == 0 {
		return `SELECT d.id AS found FROM webhook_deliveries d WHERE ` + where, args, err
	}
	return `SELECT newest.id AS found FROM (SELECT d.id, d.event_id FROM webhook_deliveries d WHERE ` + where + `
		ORDER BY d.id DESC LIMIT ` + strconv.Itoa(searched) + `) AS newest
		JOIN webhook_events e ON e.id = newest.event_id WHERE e.name IN (` + db.AddList(&args, f.Events) + `)`, args, err
}

func text30(s string) string { return strings.ToValidUTF8(s[:min(len(s), 30)], "\uFFFD") }

var errDisabled = fault.New(fault.Conflict, "webhook_inactive", "The webhook is disabled", "enable it first")

// RedeliverTx enqueues a delivery again: a new delivery with the same webhook-id and bytes, signed with the current
// secret.
func (w *Webhooks) RedeliverTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, hook ID, id delivery.ID) (delivery.ID, error) {
	h, err := get(ctx, tx, owner, hook)
	if err != nil {
		return "", err
	}
	if !h.Active {
		return "", errDisabled
	}
	var event string
	err = tx.QueryRow(ctx, `SELECT event_id FROM webhook_deliveries WHERE id = $1 AND hook_id = $2`, id, hook).Scan(&event)
	if errors.Is(err, sql.ErrNoRows) {
		return "", fault.Missing("delivery")
	}
	if err != nil {
		return "", fmt.Errorf("redeliver: %w", err)
	}
	ids, err := requeue(ctx, tx, hook, []repeat{{id, event}})
	if err != nil {
		return "", err
	}
	return ids[0], nil
}

// repeat is a delivery to make again.
type repeat struct {
	id    delivery.ID
	event string
}

// requeue inserts a pending delivery for each repeat and calls the webhook's turn.
func requeue(ctx context.Context, tx *db.Tx, hook ID, list []repeat) ([]delivery.ID, error) {
	now := tx.Now()
	var ids []delivery.ID
	for _, r := range list {
		id := db.ID[delivery.ID]("dlv")
		_, err := tx.Exec(ctx, `
			INSERT INTO webhook_deliveries (id, event_id, hook_id, state, claims, failures, next_at, lease_until, created_at, finished_at,
			redelivery_of)
			VALUES ($1, $2, $3, 'pending', 0, 0, $4, 0, $4, 0, $5)`, id, r.event, hook, now, r.id)
		if err != nil {
			return nil, fmt.Errorf("queue redelivery: %w", err)
		}
		ids = append(ids, id)
	}
	if err := requestTurn(ctx, tx, []ID{hook}); err != nil {
		return nil, fmt.Errorf("queue redelivery: %w", err)
	}
	tx.Notify(topic)
	return ids, nil
}

// RedeliverAllTx opens an operation that enqueues all matching deliveries again. An empty state means failed.
// Deliveries that succeeded meanwhile or are pending again are skipped.
func (w *Webhooks) RedeliverAllTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, hook ID, f Filter) (operation.Operation, error) {
	h, err := get(ctx, tx, owner, hook)
	if err != nil {
		return operation.Operation{}, err
	}
	if !h.Active {
		return operation.Operation{}, errDisabled
	}
	now := db.Now()
	switch {
	case f.Since == 0:
		return operation.Operation{}, fault.New(fault.Invalid, "missing_since", "Missing since",
			"since is the time from which events are redelivered")
	case f.Since > now:
		return operation.Operation{}, fault.New(fault.Invalid, "invalid_since", "Invalid since",
			"since is in the future").Got(f.Since.String())
	case f.Until != 0 && f.Until <= f.Since:
		return operation.Operation{}, fault.New(fault.Invalid, "invalid_until", "Invalid until",
			"until must be after since").Got(f.Until.String())
	case f.State == "pending":
		return operation.Operation{}, fault.New(fault.Invalid, "invalid_state", "Invalid state",
			"state must be failed or succeeded: pending deliveries are sent anyway").Got(f.State)
	}
	if f.State == "" {
		f.State = "failed"
	}
	if f.Until == 0 || f.Until > now {
		f.Until = now + 1 // exclude later deliveries
	}
	where, args, err := f.where(hook)
	if err != nil {
		return operation.Operation{}, err
	}
	op, err := w.c.Operations.OpenTx(ctx, tx, owner, operation.NewOperation{Kind: redeliverKind, Unique: redeliverKey(hook)})
	if err != nil {
		return operation.Operation{}, err
	}
	var total int
	if err := tx.QueryRow(ctx, `SELECT count(*) FROM (SELECT 1 AS one FROM webhook_deliveries d WHERE `+where+` LIMIT `+strconv.Itoa(counted)+`) AS n`, args...).Scan(&total); err != nil {
		return operation.Operation{}, fmt.Errorf("count deliveries: %w", err)
	}
	_, err = job.Enqueue(ctx, tx, Redeliver{
		Operation: op.ID,
		Hook:      hook,
		Filter:    f,
		Total:     total,
	}, job.Options{Unique: "redeliver/" + string(op.ID), Share: string(owner)})
	return op, err
}

// Redelivery returns the redelivery operation with the given ID or, if named is empty, the running one. It returns nil
// if none is running.
func (w *Webhooks) Redelivery(ctx context.Context, owner account.OwnerID, hook ID, named string) (*operation.Operation, error) {
	var op operation.Operation
	var err error
	if named != "" {
		op, err = w.c.Operations.Get(ctx, owner, operation.ID(named))
	} else {
		op, err = w.c.Operations.Open(ctx, owner, redeliverKey(hook))
	}
	switch {
	case fault.Is(err, fault.NotFound), err == nil && op.Kind != redeliverKind:
		return nil, nil
	case err != nil:
		return nil, err
	}
	return &op, nil
}

const redeliverKind = "webhook.redeliver"

func redeliverKey(hook ID) string { return redeliverKind + "/" + string(hook) }

// Redeliver is the job of a redelivery operation.
type Redeliver struct {
	Operation operation.ID
	Hook      ID
	Filter    Filter
	Total     int // deliveries to read regardless of event; exact or too high
}

// Kind implements [job.Args].
func (Redeliver) Kind() string { return redeliverKind }

// redelivered is the operation's result and its worker's checkpoint.
type redelivered struct {
	Count   int         `json:"count"`           // enqueued again
	Skipped int         `json:"skipped"`         // delivered meanwhile
	After   delivery.ID `json:"after,omitempty"` // done up to this delivery
	Seen    int         `json:"seen,omitempty"`  // deliveries read so far
}

// Work registers webhooks' jobs.
func (w *Webhooks) Work(j *job.Jobs) {
	job.Handle(j, job.Policy{Timeout: 30 * time.Minute, GivenUp: w.redeliverGivenUp}, w.redeliver)
}

// redeliver enqueues in batches. Each transaction includes the checkpoint, so that a crash repeats none.
func (w *Webhooks) redeliver(ctx context.Context, r Redeliver, _ int64) error {
	for done := false; !done; {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := w.c.DB.Write(ctx, func(tx *db.Tx) (err error) {
			done, err = w.redeliverBatch(ctx, tx, r)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *Webhooks) redeliverBatch(ctx context.Context, tx *db.Tx, r Redeliver) (done bool, err error) {
	op, err := w.c.Operations.GetTx(ctx, tx, r.Operation)
	if fault.Is(err, fault.NotFound) {
		return true, nil
	}
	if err != nil || op.CompletedAt != 0 {
		return true, err
	}
	var at redelivered
	if op.Step != "" {
		if err := json.Unmarshal([]byte(op.Step), &at); err != nil {
			return false, fmt.Errorf("read step of %s: %w", op.ID, err)
		}
	}
	h, err := get(ctx, tx, op.Owner, r.Hook)
	if fault.Is(err, fault.NotFound) {
		return true, w.c.Operations.EndTx(ctx, tx, op.ID, "", "The webhook was deleted meanwhile", nil)
	}
	if err != nil {
		return false, err
	}
	if !h.Active {
		return true, w.c.Operations.EndTx(ctx, tx, op.ID, "", "The webhook was disabled meanwhile", nil)
	}
	where, args, err := r.Filter.where(r.Hook)
	if err != nil {
		return false, err
	}
	args = append(args, at.After, batch)
	rows, err := tx.Query(ctx, `
		SELECT d.id, d.event_id, e.name,
		EXISTS (SELECT 1 FROM webhook_deliveries o WHERE o.event_id = d.event_id AND o.hook_id = d.hook_id AND o.id > d.id
			AND o.state IN ('pending', 'leased', 'succeeded'))
		FROM webhook_deliveries d JOIN webhook_events e ON e.id = d.event_id
		WHERE `+where+` AND d.id > $`+strconv.Itoa(len(args)-1)+` ORDER BY d.id LIMIT $`+strconv.Itoa(len(args)), args...)
	type found struct {
		repeat
		name    string
		settled bool
	}
	list, err := db.Collect(rows, err, func(s db.Scanner) (x found, err error) {
		return x, s.Scan(&x.id, &x.event, &x.name, &x.settled)
	})
	if err != nil {
		return false, fmt.Errorf("find deliveries: %w", err)
	}
	var todo []repeat
	for _, x := range list {
		at.After = x.id
		// Filtered here, since for a rare name the statement would have to read on and on.
		if len(r.Filter.Events) > 0 && !slices.Contains(r.Filter.Events, x.name) {
			continue
		}
		if x.settled || slices.ContainsFunc(todo, func(r repeat) bool { return r.event == x.event }) {
			at.Skipped++
			continue
		}
		todo = append(todo, x.repeat)
	}
	at.Count += len(todo)
	at.Seen += len(list)
	if len(todo) > 0 {
		if _, err := requeue(ctx, tx, r.Hook, todo); err != nil {
			return false, err
		}
	}
	message := fmt.Sprintf("%d deliveries queued", at.Count)
	if len(list) < batch {
		at.After, at.Seen = "", 0
		return true, w.c.Operations.EndTx(ctx, tx, op.ID, message, "", at)
	}
	step, err := json.Marshal(at)
	if err != nil {
		return false, err
	}
	progress := -1.0
	if r.Total > 0 && r.Total < counted {
		progress = min(1, float64(at.Seen)/float64(r.Total))
	}
	return false, w.c.Operations.AdvanceTx(ctx, tx, op.ID, progress, string(step), message)
}

func (w *Webhooks) redeliverGivenUp(ctx context.Context, args []byte, _ error) error {
	var r Redeliver
	if err := json.Unmarshal(args, &r); err != nil {
		return fmt.Errorf("read job arguments: %w", err)
	}
	return w.c.DB.Write(ctx, func(tx *db.Tx) error {
		return w.c.Operations.EndTx(ctx, tx, r.Operation, "", "Internal error; the operator's log has the details", nil)
	})
}

// EnableTx enables a webhook and resets its failures. With since, it also returns an operation that redelivers what
// failed or was skipped from then on.
func (w *Webhooks) EnableTx(
	ctx context.Context, tx *db.Tx, owner account.OwnerID, id ID, since db.Time,
) (Webhook, *operation.Operation, error) {
	on := true
	h, err := w.UpdateTx(ctx, tx, owner, id, Change{Active: &on})
	if err != nil || since == 0 {
		return h, nil, err
	}
	op, err := w.RedeliverAllTx(ctx, tx, owner, id, Filter{Since: since})
	return h, &op, err
}
