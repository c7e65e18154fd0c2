package webhook

import (
	"context"
	"errors"
	"fmt"
	"time"

	"slipway/internal/platform/db"
)

// takeOver releases the deliveries of dead workers: all leased ones if this is the only process, otherwise those whose
// lease expired.
func (w *Webhooks) takeOver(ctx context.Context, all bool) error {
	now := w.c.DB.Now()
	before := now
	if all {
		before = never
	}
	return w.c.DB.Write(ctx, func(tx *db.Tx) error {
		rows, err := tx.Query(ctx,
			`SELECT DISTINCT hook_id FROM webhook_deliveries WHERE state = 'leased' AND lease_until < $1 ORDER BY hook_id`,
			before)
		hooks, err := db.Collect(rows, err, func(r db.Scanner) (id ID, err error) { return id, r.Scan(&id) })
		if err != nil {
			return fmt.Errorf("find expired leases: %w", err)
		}
		for _, id := range hooks {
			_, err := tx.Exec(ctx, `UPDATE webhooks SET id = id WHERE id = $1`, id) // take the row's lock first
			var n int64
			if err == nil {
				n, err = tx.Exec(ctx,
					`UPDATE webhook_deliveries SET state = 'pending', lease_until = 0 WHERE hook_id = $1 AND state = 'leased' AND lease_until < $2`,
					id, before)
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

var errNoClient = errors.New("webhooks: Run needs Config.Out with a transport")

// soonest returns how long to wait until next: at most poll, and at least a little if something is due but another node
// holds it.
func soonest(now, next db.Time, poll time.Duration) time.Duration {
	if next >= now.Add(poll) {
		return poll
	}
	return max(next.Sub(now), 5*time.Millisecond)
}
