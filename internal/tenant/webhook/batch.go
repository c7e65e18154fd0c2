package webhook

import (
	"context"

	"slipway/internal/platform/chunk"
	"slipway/internal/platform/db"
	"slipway/internal/tenant/webhook/delivery"
)

// stateIs returns a condition that can't use an index, for statements that select by ID. The indexes of pending and
// leased deliveries are usually empty, and PostgreSQL would keep scanning them in full after they have grown.
func stateIs(state string) string { return `webhook_deliveries.state || '' = '` + state + `'` }

// settled is an outcome and the delivery's resulting state.
type settled struct {
	outcome
	state          string
	failures       int
	next, finished db.Time
}

var settleText = chunk.Text(func(n int) string {
	return `UPDATE webhook_deliveries
		SET state = v.column3, failures = v.column4, next_at = v.column5, finished_at = v.column6, lease_until = 0
		FROM (VALUES ` + chunk.Values(n, "TEXT", "BIGINT", "TEXT", "BIGINT", "BIGINT", "BIGINT") + `) AS v
		WHERE webhook_deliveries.id = v.column1 AND webhook_deliveries.claims = v.column2 AND ` + stateIs("leased") + `
		RETURNING webhook_deliveries.id`
})

// writeSettled stores the ends of attempts and returns the deliveries whose lease this process still held.
func writeSettled(ctx context.Context, tx *db.Tx, list []settled) (map[delivery.ID]bool, error) {
	mine := make(map[delivery.ID]bool, len(list))
	err := chunk.Each(list, func(part []settled) error {
		args := make([]any, 0, 6*len(part))
		for _, s := range part {
			args = append(args, s.Id, s.Number, s.state, s.failures, s.next, s.finished)
		}
		rows, err := tx.Query(ctx, settleText(len(part)), args...)
		ids, err := db.Collect(rows, err, func(r db.Scanner) (id delivery.ID, err error) { return id, r.Scan(&id) })
		for _, id := range ids {
			mine[id] = true
		}
		return err
	})
	return mine, err
}

var attemptText = chunk.Text(func(n int) string {
	return `INSERT INTO webhook_attempts (delivery_id, n, started_at, duration, status, error, request, response, answer, late)
		VALUES ` + chunk.Values(n, "TEXT", "BIGINT", "BIGINT", "BIGINT", "BIGINT", "TEXT", "TEXT", "TEXT", "TEXT", "BOOLEAN") + `
		ON CONFLICT (delivery_id, n) DO NOTHING`
})

// writeAttempts stores requests and responses. It keeps attempts that are already stored, since an earlier turn may have
// committed without learning of it.
func writeAttempts(ctx context.Context, tx *db.Tx, list []settled, mine map[delivery.ID]bool) error {
	return chunk.Each(list, func(part []settled) error {
		args := make([]any, 0, 10*len(part))
		for _, s := range part {
			args = append(
				args, s.Id, s.Number, s.Started, s.Took.Milliseconds(), s.Status, s.Err, s.RequestHead,
				s.AnswerHead, s.Answer, !mine[s.Id],
			)
		}
		_, err := tx.Exec(ctx, attemptText(len(part)), args...)
		return err
	})
}

var hourText = chunk.Text(func(n int) string {
	return `INSERT INTO webhook_hours (hook_id, hour, succeeded, failed) VALUES ` + chunk.Values(n, "TEXT", "BIGINT", "BIGINT", "BIGINT") + `
		ON CONFLICT (hook_id, hour) DO UPDATE
		SET succeeded = webhook_hours.succeeded + excluded.succeeded, failed = webhook_hours.failed + excluded.failed`
})

// writeHours adds the attempts to each endpoint's counts for this hour.
func writeHours(ctx context.Context, tx *db.Tx, hooks []ID, of map[ID]*health, now db.Time) error {
	var counted []ID
	for _, id := range hooks {
		if of[id].succeeded+of[id].failed > 0 {
			counted = append(counted, id)
		}
	}
	return chunk.Each(counted, func(part []ID) error {
		var args []any
		for _, id := range part {
			args = append(args, id, now.Time().Unix()/3600, of[id].succeeded, of[id].failed)
		}
		_, err := tx.Exec(ctx, hourText(len(part)), args...)
		return err
	})
}
