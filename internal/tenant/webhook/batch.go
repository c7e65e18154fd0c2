package webhook

import (
	"context"
	"strconv"
	"strings"
	"sync"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/webhook/delivery"
)

const maxChunk = 64 // rows in one statement

// chunkSizes are how many rows one statement carries: few different texts, so that each
// is prepared once.
var chunkSizes = []int{maxChunk, 48, 32, 24, 16, 12, 8, 6, 4, 3, 2, 1}

// inChunks calls fn for parts of the list whose lengths are among chunkSizes.
func inChunks[T any](list []T, fn func(part []T) error) error {
	for _, size := range chunkSizes {
		for len(list) >= size {
			if err := fn(list[:size]); err != nil {
				return err
			}
			list = list[size:]
		}
	}
	return nil
}

// perSize returns what makes the text of a statement for a number of rows, each once.
func perSize(text func(n int) string) func(n int) string {
	var once [maxChunk + 1]sync.Once
	var made [maxChunk + 1]string
	return func(n int) string {
		once[n].Do(func() { made[n] = text(n) })
		return made[n]
	}
}

// marks writes n placeholders from a number on.
func marks(from, n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = "$" + strconv.Itoa(from+i)
	}
	return strings.Join(list, ", ")
}

// values writes n rows of placeholders, each cast to its column's type.
func values(n int, types ...string) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteByte('(')
		for j, t := range types {
			if j > 0 {
				b.WriteString(", ")
			}
			b.WriteString("CAST($" + strconv.Itoa(i*len(types)+j+1) + " AS " + t + ")")
		}
		b.WriteByte(')')
	}
	return b.String()
}

// stateIs is a condition that no index serves, for statements that know the ids: the
// indices of what is pending and what is leased are empty most of the time, and
// PostgreSQL would go on reading them whole after they have filled.
func stateIs(state string) string { return `webhook_deliveries.state || '' = '` + state + `'` }

// settled is an outcome with the state in which it leaves the delivery.
type settled struct {
	outcome
	state          string
	failures       int
	next, finished db.Time
}

var settleText = perSize(func(n int) string {
	return `UPDATE webhook_deliveries SET state = v.column3, failures = v.column4, next_at = v.column5, finished_at = v.column6, lease_until = 0
		FROM (VALUES ` + values(
		n, "TEXT", "BIGINT", "TEXT", "BIGINT", "BIGINT", "BIGINT",
	) + `) AS v
		WHERE webhook_deliveries.id = v.column1 AND webhook_deliveries.claims = v.column2 AND ` + stateIs(
		"leased",
	) + `
		RETURNING webhook_deliveries.id`
})

// writeSettled writes the ends of attempts, and returns which deliveries were still this
// process's to write.
func writeSettled(ctx context.Context, tx *db.Tx, list []settled) (map[delivery.ID]bool, error) {
	mine := make(map[delivery.ID]bool, len(list))
	err := inChunks(list, func(part []settled) error {
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

var attemptText = perSize(func(n int) string {
	return `INSERT INTO webhook_attempts (delivery_id, n, started_at, duration, status, error, request, response, answer, late)
		VALUES ` + values(n, "TEXT", "BIGINT", "BIGINT", "BIGINT", "BIGINT", "TEXT", "TEXT", "TEXT", "TEXT", "BOOLEAN")
})

// writeAttempts keeps what was sent and what came back.
func writeAttempts(ctx context.Context, tx *db.Tx, list []settled, mine map[delivery.ID]bool) error {
	return inChunks(list, func(part []settled) error {
		args := make([]any, 0, 10*len(part))
		for _, s := range part {
			args = append(
				args,
				s.Id,
				s.Number,
				s.Started,
				s.Took.Milliseconds(),
				s.Status, s.Err, s.RequestHead, s.AnswerHead, s.Answer,
				!mine[s.Id],
			)
		}
		_, err := tx.Exec(ctx, attemptText(len(part)), args...)
		return err
	})
}

var hourText = perSize(func(n int) string {
	return `INSERT INTO webhook_hours (hook_id, hour, succeeded, failed) VALUES ` + values(n, "TEXT", "BIGINT", "BIGINT", "BIGINT") + `
		ON CONFLICT (hook_id, hour) DO UPDATE SET succeeded = webhook_hours.succeeded + excluded.succeeded, failed = webhook_hours.failed + excluded.failed`
})

// writeHours adds to the attempts of each endpoint in this hour.
func writeHours(ctx context.Context, tx *db.Tx, hooks []ID, of map[ID]*health, now db.Time) error {
	var counted []ID
	for _, id := range hooks {
		if of[id].succeeded+of[id].failed > 0 {
			counted = append(counted, id)
		}
	}
	return inChunks(counted, func(part []ID) error {
		var args []any
		for _, id := range part {
			args = append(args, id, now.Time().Unix()/3600, of[id].succeeded, of[id].failed)
		}
		_, err := tx.Exec(ctx, hourText(len(part)), args...)
		return err
	})
}
