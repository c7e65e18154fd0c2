package webhook

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"slipway/internal/platform/chunk"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/webhook/delivery"
	"slipway/internal/tenant/webhook/event"
)

// EmitTx enqueues an event for every subscribed webhook of the owner, in the caller's transaction. A webhook that
// subscribes to both names of an event gets it under each, with different IDs. For a webhook that the service disabled,
// the delivery is stored as skipped, so that it can be made after the webhook is enabled again.
func (w *Webhooks) EmitTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, e event.Event) error {
	type subscriber struct {
		id            ID
		events, sites []string
		active        bool
		expires       db.Time // only for a listener
	}
	now := tx.Now()
	rows, err := tx.Query(ctx, `
		SELECT id, events, site_ids, active, expires_at FROM webhooks
		WHERE owner_id = $1 AND deleted_at = 0 AND (active OR reason <> '') AND (expires_at = 0 OR expires_at > $2) ORDER BY id`, owner, now)
	hooks, err := db.Collect(rows, err, func(r db.Scanner) (s subscriber, err error) {
		var events, sites string
		err = r.Scan(&s.id, &events, &sites, &s.active, &s.expires)
		s.events, s.sites = strings.Fields(events), strings.Fields(sites)
		return s, err
	})
	if err != nil {
		return fmt.Errorf("find webhooks: %w", err)
	}
	for _, name := range e.Names() {
		var to recipients
		for _, h := range hooks {
			if slices.Contains(h.events, name) && (len(h.sites) == 0 || slices.Contains(h.sites, string(e.Site()))) {
				switch {
				case h.expires > 0:
					to.listening = append(to.listening, h.id)
				case h.active:
					to.active = append(to.active, h.id)
				default:
					to.disabled = append(to.disabled, h.id)
				}
			}
		}
		if err := w.queue(ctx, tx, owner, name, e, to); err != nil {
			return err
		}
	}
	return nil
}

// PingTx enqueues a "ping" for one webhook regardless of its subscriptions, and returns the delivery. It returns a
// Conflict fault for a disabled webhook.
func (w *Webhooks) PingTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id ID) (delivery.ID, error) {
	h, err := get(ctx, tx, owner, id)
	if err != nil {
		return "", err
	}
	if !h.Active {
		return "", errDisabled
	}
	if err := w.queue(ctx, tx, owner, event.PingName, event.Ping(id), recipients{active: []ID{id}}); err != nil {
		return "", err
	}
	var d delivery.ID
	err = tx.QueryRow(ctx, `SELECT id FROM webhook_deliveries WHERE hook_id = $1 ORDER BY id DESC LIMIT 1`, id).Scan(&d)
	if errors.Is(err, sql.ErrNoRows) {
		return "", fault.Missing("webhook")
	}
	return d, err
}

// Ping is [Webhooks.PingTx] in its own transaction.
func (w *Webhooks) Ping(ctx context.Context, owner account.OwnerID, id ID) (d delivery.ID, err error) {
	err = w.c.DB.Write(ctx, func(tx *db.Tx) error {
		d, err = w.PingTx(ctx, tx, owner, id)
		return err
	})
	return d, err
}

// recipients are the webhooks subscribed to one name of an event.
type recipients struct {
	active    []ID // receive it
	disabled  []ID // disabled by the service; miss it, and may have it redelivered
	listening []ID // fetch it
}

// queue stores one body and inserts a delivery of it per webhook: pending, skipped for disabled ones, or offered for
// listeners.
func (w *Webhooks) queue(ctx context.Context, tx *db.Tx, owner account.OwnerID, name string, e event.Event, to recipients) error {
	if len(to.active)+len(to.disabled)+len(to.listening) == 0 {
		return nil
	}
	now := tx.Now()
	id := db.NewID("evt")
	body, err := e.Body(id, name, now)
	if err != nil {
		return fmt.Errorf("write event: %w", err)
	}
	if _, err := tx.Exec(ctx,
		`INSERT INTO webhook_events (id, owner_id, name, site_id, body, hops, created_at) VALUES ($1, $2, $3, $4, $5, $6, $7)`,
		id, owner, name, e.Site(), string(body), e.Hops(), now); err != nil {
		return fmt.Errorf("write event: %w", err)
	}
	for _, x := range []struct {
		hooks []ID
		state string
	}{{to.active, "pending"}, {to.disabled, "skipped"}, {to.listening, "offered"}} {
		if err := addDeliveries(ctx, tx, id, x.hooks, x.state, now); err != nil {
			return fmt.Errorf("queue deliveries: %w", err)
		}
	}
	if err := requestTurn(ctx, tx, to.active); err != nil {
		return fmt.Errorf("queue deliveries: %w", err)
	}
	for _, hook := range to.listening {
		tx.Notify(listenerTopic(hook))
	}
	if len(to.active) > 0 {
		tx.Notify(topic)
	}
	return nil
}

// addDeliveries inserts a delivery of an event for each webhook, with the given state.
func addDeliveries(ctx context.Context, tx *db.Tx, event string, hooks []ID, state string, now db.Time) error {
	finished := db.Time(0)
	if state == "skipped" {
		finished = now
	}
	return chunk.Each(hooks, func(part []ID) error {
		args, rows := db.Args{event, state, now, finished}, make([]string, len(part))
		for i, hook := range part {
			rows[i] = `(` + args.Add(db.NewID("dlv")) + `, $1, ` + args.Add(hook) + `, $2, 0, 0, $3, 0, $3, $4, '')`
		}
		_, err := tx.Exec(ctx, `
			INSERT INTO webhook_deliveries (id, event_id, hook_id, state, claims, failures, next_at, lease_until, created_at, finished_at,
			redelivery_of)
			VALUES `+strings.Join(rows, ", "), args...)
		return err
	})
}
