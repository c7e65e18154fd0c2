package webhook

import (
	"context"
	"fmt"

	"slipway/internal/db"
)

// batch is how many rows a purge removes per transaction: others write in between, and
// the write-ahead log stays small.
const batch = 500

// purge removes what is older than Keep, and the log of deleted webhooks.
func (w *Webhooks) purge(ctx context.Context) error {
	before := db.Now().Add(-w.c.Keep)
	const old = `(SELECT id FROM webhook_deliveries WHERE finished_at > 0 AND finished_at < $1 ORDER BY finished_at LIMIT $2)`
	const dead = `(SELECT d.id FROM webhooks h JOIN webhook_deliveries d ON d.hook_id = h.id
		WHERE h.deleted_at > 0 AND h.deleted_at <= $1 LIMIT $2)`
	for _, step := range []struct {
		which  string
		before db.Time
	}{{old, before}, {dead, db.Now()}} {
		for more := true; more; {
			err := w.c.DB.Write(ctx, func(tx *db.Tx) error {
				// Attempts first: they are found by their deliveries.
				rows, err := tx.Query(ctx, `SELECT id FROM webhook_deliveries WHERE id IN `+step.which, step.before, batch)
				ids, err := db.Collect(rows, err, func(r db.Scanner) (id DeliveryID, err error) { return id, r.Scan(&id) })
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
		if _, err := tx.Exec(ctx, `DELETE FROM webhook_hours WHERE hour < $1 OR hook_id IN (SELECT id FROM webhooks WHERE deleted_at > 0)`, before.Time().Unix()/3600); err != nil {
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

// repairTurns gives a turn to endpoints that wait for one although they have work and a free slot: no
// code path leaves one so, and a bug must not cost a delivery.
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

// nameHosts fills in the destination of webhooks that are older than that column.
func (w *Webhooks) nameHosts(ctx context.Context) error {
	return w.c.DB.Write(ctx, func(tx *db.Tx) error {
		rows, err := tx.Query(ctx, `SELECT id, url FROM webhooks WHERE host = '' AND expires_at = 0`)
		type row struct{ id, url string }
		list, err := db.Collect(rows, err, func(r db.Scanner) (x row, err error) { return x, r.Scan(&x.id, &x.url) })
		if err != nil {
			return fmt.Errorf("find webhooks without a host: %w", err)
		}
		for _, x := range list {
			if _, err := tx.Exec(ctx, `UPDATE webhooks SET host = $2 WHERE id = $1`, x.id, hostOf(x.url)); err != nil {
				return fmt.Errorf("name host of webhook: %w", err)
			}
		}
		return nil
	})
}
