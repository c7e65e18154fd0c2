package job

import (
	"context"
	"fmt"

	"slipway/internal/platform/db"
)

// Stats holds the figures of one queue.
type Stats struct {
	Queue   string
	Running int     // now, on all nodes
	Waiting int     // due now
	Later   int     // due later: retries and schedules
	GivenUp int     // failed for good
	Oldest  db.Time // since when the one that is due longest waits; 0: none
}

// Queues returns what each queue that has jobs has to do.
func Queues(ctx context.Context, r db.Reader) ([]Stats, error) {
	rows, err := r.Query(ctx, `
		SELECT queue,
			count(*) FILTER (WHERE state = 'running'),
			count(*) FILTER (WHERE state = 'ready' AND run_at <= $1),
			count(*) FILTER (WHERE state = 'ready' AND run_at > $1),
			count(*) FILTER (WHERE state = 'dead'),
			COALESCE(MIN(CASE WHEN state = 'ready' AND run_at <= $1 THEN run_at END), 0)
		FROM jobs GROUP BY queue ORDER BY queue`, db.Now())
	all, err := db.Collect(rows, err, func(s db.Scanner) (q Stats, err error) {
		return q, s.Scan(&q.Queue, &q.Running, &q.Waiting, &q.Later, &q.GivenUp, &q.Oldest)
	})
	if err != nil {
		return nil, fmt.Errorf("count jobs: %w", err)
	}
	return all, nil
}

// Dead returns how many jobs were given up.
func Dead(ctx context.Context, r db.Reader) (n int, err error) {
	if err := r.QueryRow(ctx, `SELECT count(*) FROM jobs WHERE state = 'dead'`).Scan(&n); err != nil {
		return 0, fmt.Errorf("count jobs: %w", err)
	}
	return n, nil
}
