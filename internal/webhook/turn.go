package webhook

import (
	"context"
	"fmt"

	"slipway/internal/db"
)

// retime works out when an endpoint has its next turn: not before its floor, never while
// it has no room or nothing is queued. The caller holds the row's lock from an earlier
// statement, so that this one sees what others queued meanwhile (PostgreSQL).
func retime(ctx context.Context, tx *db.Tx, hook ID) error {
	if err := retimeAll(ctx, tx, []ID{hook}); err != nil {
		return fmt.Errorf("set turn of webhook: %w", err)
	}
	return nil
}

const neverTurn = `1152921504606846976` // never

const firstDue = `(SELECT min(next_at) FROM webhook_deliveries d WHERE d.hook_id = webhooks.id AND d.state = 'pending')`

// turnAfter works out turn_at: floor or what is first due, whichever is later.
func turnAfter(floor string) string {
	return `CASE
		WHEN (SELECT count(*) FROM webhook_deliveries d WHERE d.hook_id = webhooks.id AND d.state = 'leased')
			>= ` + window + ` THEN ` + neverTurn + `
		WHEN ` + firstDue + ` IS NULL THEN ` + neverTurn + `
		WHEN ` + firstDue + ` > ` + floor + ` THEN ` + firstDue + `
		ELSE ` + floor + ` END`
}

var setTurn = `UPDATE webhooks SET turn_at = ` + turnAfter("floor_at")
