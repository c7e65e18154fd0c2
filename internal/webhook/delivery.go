package webhook

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"slipway/internal/account"
	"slipway/internal/db"
	"slipway/internal/fault"
)

// Delivery returns one delivery to the owner's webhook with every attempt, or a NotFound
// fault.
func (w *Webhooks) Delivery(ctx context.Context, owner account.ID, hook ID, id DeliveryID) (d Delivery, err error) {
	// One moment for both: a delivery and its attempts must agree.
	err = w.c.DB.Snapshot(ctx, func(r db.Reader) error {
		err := r.QueryRow(ctx, `
			SELECT d.id, d.event_id, e.name, d.state, e.body, d.created_at, d.next_at, d.finished_at
			FROM webhook_deliveries d JOIN webhook_events e ON e.id = d.event_id JOIN webhooks w ON w.id = d.hook_id
			WHERE d.id = $1 AND d.hook_id = $2 AND w.owner_id = $3 AND w.deleted_at = 0`, id, hook, owner).
			Scan(&d.ID, &d.EventID, &d.Event, &d.State, &d.Body, &d.CreatedAt, &d.NextAt, &d.FinishedAt)
		if errors.Is(err, sql.ErrNoRows) {
			return fault.Missing("delivery")
		}
		if err != nil {
			return fmt.Errorf("read delivery: %w", err)
		}
		rows, err := r.Query(ctx, `
			SELECT n, started_at, duration, status, error, answer, late FROM webhook_attempts
			WHERE delivery_id = $1 ORDER BY n`, id)
		d.Attempts, err = db.Collect(rows, err, func(s db.Scanner) (a Attempt, err error) {
			return a, s.Scan(&a.N, &a.StartedAt, &a.Duration, &a.Status, &a.Error, &a.Answer, &a.Late)
		})
		if err != nil {
			return fmt.Errorf("list attempts: %w", err)
		}
		return nil
	})
	switch d.State {
	case "leased":
		d.State, d.NextAt = "sending", 0
	case "succeeded", "failed", "skipped":
		d.NextAt = 0
	}
	return d, err
}
