package webhook

import (
	"context"
	"fmt"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/webhook/delivery"
)

// batch is the number of rows deleted per transaction, which lets others write in between and keeps the write-ahead log
// small.
const batch = 500

// purge deletes deliveries older than Keep, those of deleted webhooks, and an owner's deliveries over MaxLog.
func (w *Webhooks) purge(ctx context.Context) error {
	before := db.Now().Add(-w.c.Keep)
	if err := w.forgetDeliveries(ctx,
		`SELECT id FROM webhook_deliveries WHERE finished_at > 0 AND finished_at < $2 ORDER BY finished_at LIMIT $1`,
		before); err != nil {
		return err
	}
	if err := w.forgetDeliveries(ctx, `SELECT d.id FROM webhooks h JOIN webhook_deliveries d ON d.hook_id = h.id
		WHERE h.deleted_at > 0 AND h.deleted_at <= $2 LIMIT $1`, db.Now()); err != nil {
		return err
	}
	if err := w.trim(ctx); err != nil {
		return err
	}
	for more := true; more; {
		err := w.c.DB.Write(ctx, func(tx *db.Tx) error {
			n, err := tx.Exec(ctx, `
				DELETE FROM webhook_events WHERE id IN (SELECT id FROM webhook_events e
					WHERE created_at < $1 AND NOT EXISTS (SELECT 1 FROM webhook_deliveries d WHERE d.event_id = e.id)
					ORDER BY created_at LIMIT $2)`, before, batch)
			more = n == batch
			return err
		})
		if err != nil {
			return fmt.Errorf("purge events: %w", err)
		}
	}
	return w.c.DB.Write(ctx, func(tx *db.Tx) error {
		if _, err := tx.Exec(ctx,
			`DELETE FROM webhook_hours WHERE hour < $1 OR hook_id IN (SELECT id FROM webhooks WHERE deleted_at > 0)`,
			before.Time().Unix()/3600); err != nil {
			return fmt.Errorf("purge counts: %w", err)
		}
		if _, err := tx.Exec(ctx, `
			DELETE FROM webhooks WHERE deleted_at > 0
				AND NOT EXISTS (SELECT 1 FROM webhook_deliveries d WHERE d.hook_id = webhooks.id)`); err != nil {
			return fmt.Errorf("purge webhooks: %w", err)
		}
		return nil
	})
}

// forgetDeliveries deletes the deliveries selected by a query until it selects none. The query's $1 is its limit.
func (w *Webhooks) forgetDeliveries(ctx context.Context, which string, args ...any) error {
	for more := true; more; {
		err := w.c.DB.Write(ctx, func(tx *db.Tx) error {
			// Attempts first, since they are found by their deliveries.
			rows, err := tx.Query(ctx, which, append([]any{batch}, args...)...)
			ids, err := db.Collect(rows, err, func(r db.Scanner) (id delivery.ID, err error) { return id, r.Scan(&id) })
			if err != nil {
				return err
			}
			for _, id := range ids {
				if _, err := tx.Exec(ctx, `DELETE FROM webhook_attempts WHERE delivery_id = $1`, id); err != nil {
					return err
				}
				if _, err := tx.Exec(ctx, `DELETE FROM webhook_deliveries WHERE id = $1`, id); err != nil {
					return err
				}
			}
			more = len(ids) == batch
			return nil
		})
		if err != nil {
			return fmt.Errorf("purge deliveries: %w", err)
		}
	}
	return nil
}

// trim deletes the oldest ended deliveries of owners with more than MaxLog. An attempt takes up to 12 KiB and an event
// has up to a hundred of them, so one key could otherwise fill a disk within a month. The owner's webhooks get equal
// shares, so that a busy one doesn't evict a quiet one's log.
func (w *Webhooks) trim(ctx context.Context) error {
	rows, err := w.c.DB.Query(ctx, `SELECT owner_id, id FROM webhooks WHERE deleted_at = 0`)
	type hook struct {
		owner account.OwnerID
		id    ID
	}
	hooks, err := db.Collect(rows, err, func(r db.Scanner) (h hook, err error) { return h, r.Scan(&h.owner, &h.id) })
	if err != nil {
		return fmt.Errorf("find webhooks: %w", err)
	}
	of := map[account.OwnerID]int{}
	for _, h := range hooks {
		of[h.owner]++
	}
	for _, h := range hooks {
		rows, err := w.c.DB.Query(ctx,
			`SELECT id FROM webhook_deliveries WHERE hook_id = $1 ORDER BY id DESC LIMIT 1 OFFSET $2`, h.id,
			w.c.MaxLog/of[h.owner])
		last, err := db.Collect(rows, err, func(r db.Scanner) (id delivery.ID, err error) { return id, r.Scan(&id) })
		if err != nil {
			return fmt.Errorf("find the end of a webhook's log: %w", err)
		}
		if len(last) == 0 {
			continue
		}
		if err := w.forgetDeliveries(ctx,
			`SELECT id FROM webhook_deliveries WHERE hook_id = $2 AND id <= $3 AND finished_at > 0 ORDER BY id LIMIT $1`,
			h.id, last[0]); err != nil {
			return err
		}
	}
	return nil
}

// repairTurns sets the turn of endpoints that have work and a free slot but no turn. No code path leaves an endpoint
// that way; this keeps a bug from losing deliveries.
func (w *Webhooks) repairTurns(ctx context.Context) error {
	return w.c.DB.Write(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, `
			UPDATE webhooks SET turn_at = CASE WHEN floor_at > $1 THEN floor_at ELSE $1 END WHERE active AND deleted_at = 0 AND turn_at > $2
				AND EXISTS (SELECT 1 FROM webhook_deliveries d WHERE d.hook_id = webhooks.id AND d.state = 'pending')
				AND NOT EXISTS (SELECT 1 FROM webhook_deliveries d WHERE d.hook_id = webhooks.id AND d.state = 'leased')`,
			db.Now(), int64(never)-1)
		if err != nil {
			return fmt.Errorf("repair turns: %w", err)
		}
		if n > 0 {
			w.c.Log.ErrorContext(ctx, "webhooks missing from the schedule", "count", n)
			tx.Notify(topic)
		}
		return nil
	})
}

// nameHosts sets the host column of webhooks created before it existed.
func (w *Webhooks) nameHosts(ctx context.Context) error {
	return w.c.DB.Write(ctx, func(tx *db.Tx) error {
		rows, err := tx.Query(ctx, `SELECT id, url FROM webhooks WHERE host = '' AND expires_at = 0`)
		type row struct{ id, url string }
		list, err := db.Collect(rows, err, func(r db.Scanner) (x row, err error) { return x, r.Scan(&x.id, &x.url) })
		if err != nil {
			return fmt.Errorf("find webhooks without a host: %w", err)
		}
		for _, x := range list {
			if _, err := tx.Exec(ctx, `UPDATE webhooks SET host = $2 WHERE id = $1`, x.id, delivery.HostOf(x.url)); err != nil {
				return fmt.Errorf("name host of webhook: %w", err)
			}
		}
		return nil
	})
}
