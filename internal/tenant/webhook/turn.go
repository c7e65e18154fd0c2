package webhook

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"slipway/internal/platform/chunk"
	"slipway/internal/platform/db"
)

// retime computes an endpoint's next turn: not before its floor, and never while it has no free slot or nothing queued.
// The caller holds the row's lock. Concurrent enqueues make a call of their own.
func retime(ctx context.Context, tx *db.Tx, hook ID) error {
	if err := retimeAll(ctx, tx, []ID{hook}); err != nil {
		return fmt.Errorf("set turn of webhook: %w", err)
	}
	return nil
}

const neverTurn = `1152921504606846976` // the constant never

const firstDue = `(SELECT min(next_at) FROM webhook_deliveries d WHERE d.hook_id = webhooks.id AND d.state = 'pending')`

// underWay counts an endpoint's requests in flight, up to the maximum. The ORDER BY makes PostgreSQL walk the index and
// clean up ended leases; a bitmap scan would read every lease since the last vacuum.
var underWay = `(SELECT count(*) FROM (SELECT 1 FROM webhook_deliveries d WHERE d.hook_id = webhooks.id AND d.state = 'leased'
	ORDER BY d.lease_until LIMIT ` + strconv.Itoa(maxInFlight) + `) AS l)`

// retimeAll is retime for many endpoints. An endpoint whose turn is due keeps its place, and unchanged rows aren't
// written.
func retimeAll(ctx context.Context, tx *db.Tx, hooks []ID) error {
	return chunk.Each(hooks, func(part []ID) error {
		args := db.Args{tx.Now()}
		_, err := tx.Exec(ctx, `
			UPDATE webhooks SET turn_at = v.turn
			FROM (SELECT hook, CASE WHEN busy OR due IS NULL THEN `+neverTurn+`
					WHEN due > $1 OR floor_at > $1 THEN CASE WHEN due > floor_at THEN due ELSE floor_at END
					WHEN turn_at <= $1 THEN turn_at ELSE CAST($1 AS BIGINT) END AS turn
				FROM (SELECT id AS hook, turn_at, floor_at, `+underWay+` >= `+window+` AS busy, `+firstDue+` AS due FROM webhooks
					WHERE id IN (`+db.AddList(&args, part)+`)) AS u) AS v
			WHERE webhooks.id = v.hook AND webhooks.turn_at <> v.turn`, args...)
		return err
	})
}

// requestTurn requests a turn for webhooks with new deliveries.
func requestTurn(ctx context.Context, tx *db.Tx, hooks []ID) error {
	if len(hooks) == 0 {
		return nil
	}
	ids := make([]string, len(hooks))
	for i, id := range hooks {
		ids[i] = string(id)
	}
	_, err := tx.Exec(ctx, `INSERT INTO webhook_calls (id, hooks) VALUES ($1, $2)`, db.NewID("call"), strings.Join(ids, " "))
	return err
}

// takeCalls consumes the requested turns and returns their webhooks, which the caller must visit. Deliveries enqueued
// later make calls of their own.
func takeCalls(ctx context.Context, tx *db.Tx) (hooks []ID, err error) {
	rows, err := tx.Query(ctx, `
		DELETE FROM webhook_calls WHERE id IN (SELECT id FROM webhook_calls ORDER BY id LIMIT 256`+tx.SkipLocked()+`) RETURNING hooks`)
	calls, err := db.Collect(rows, err, func(r db.Scanner) (hooks string, err error) { return hooks, r.Scan(&hooks) })
	if err != nil {
		return nil, fmt.Errorf("find calls: %w", err)
	}
	for _, list := range calls {
		for id := range strings.FieldsSeq(list) {
			hooks = append(hooks, ID(id))
		}
	}
	return hooks, nil
}
