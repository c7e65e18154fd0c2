package traffic

import (
	"context"
	"fmt"
	"slices"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/job"
)

// Sum is the hourly job that sums up ended intervals and deletes old ones. There is one. Running it twice writes the
// same sums.
type Sum struct{}

// Kind implements [job.Args].
func (Sum) Kind() string { return "traffic.sum" }

func (t *Traffic) Work(j *job.Jobs) {
	job.Handle(j, job.Policy{Timeout: 30 * time.Minute, Attempts: 1 << 30}, func(ctx context.Context, _ Sum, _ int64) error {
		if err := t.tidy(ctx); err != nil {
			return err
		}
		// By two minutes after the hour, every node has stored its counts.
		now := t.c.Now()
		return job.Later(floor(now, hour).Add(hour + 2*time.Minute).Sub(now))
	})
}

// Schedule enqueues the job unless it exists.
func (t *Traffic) Schedule(ctx context.Context) error {
	return t.c.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := job.Enqueue(ctx, tx, Sum{}, job.Options{Unique: "traffic.sum"})
		return err
	})
}

// tidy sums up first, so that nothing still needed is deleted.
func (t *Traffic) tidy(ctx context.Context) error {
	for _, s := range []struct{ from, to time.Duration }{{fine, hour}, {hour, day}} {
		if err := t.sum(ctx, s.from, s.to); err != nil {
			return fmt.Errorf("sum up traffic: %w", err)
		}
	}
	// Only whole hours and days are deleted, since the sum of a partial one would be wrong.
	for _, k := range []struct{ span, keep, whole time.Duration }{{fine, keepFine, hour}, {hour, keepHour, day}, {day, keepDay, day}} {
		if err := t.forget(ctx, k.span, floor(t.c.Now().Add(-k.keep), k.whole)); err != nil {
			return fmt.Errorf("forget traffic: %w", err)
		}
	}
	if err := t.forgetBatches(ctx); err != nil {
		return fmt.Errorf("forget batches of traffic: %w", err)
	}
	if err := t.forgetNames(ctx); err != nil {
		return fmt.Errorf("forget names of traffic: %w", err)
	}
	if err := t.forgetLogs(ctx); err != nil {
		return fmt.Errorf("forget access logs: %w", err)
	}
	return nil
}

// sum writes the sums of ended long intervals. It repeats the last one, since a node may have been late.
func (t *Traffic) sum(ctx context.Context, from, to time.Duration) error {
	end := floor(t.c.Now(), to)
	var at db.Time
	err := t.c.DB.QueryRow(ctx, `
		SELECT COALESCE((SELECT MAX(at) FROM traffic WHERE span = $1), (SELECT MIN(at) FROM traffic WHERE span = $2), $3)`,
		to.Milliseconds(), from.Milliseconds(), end).Scan(&at)
	if err != nil {
		return err
	}
	for at = floor(at, to); at < end; {
		next := at.Add(to)
		rows, err := t.c.DB.Query(ctx, `
			SELECT site_id, `+sums+` FROM traffic WHERE span = $1 AND at >= $2 AND at < $3 GROUP BY site_id ORDER BY site_id`,
			from.Milliseconds(), at, next)
		sum, err := db.Collect(rows, err, func(s db.Scanner) (row, error) {
			r := row{at: at}
			return r, s.Scan(append([]any{&r.site}, r.fields()...)...)
		})
		if err != nil {
			return err
		}
		for some := range slices.Chunk(sum, 1000) {
			if err := t.c.DB.Write(ctx, func(tx *db.Tx) error { return put(ctx, tx, to, some, "excluded.%s") }); err != nil {
				return err
			}
		}
		// Skip to the next interval with counts.
		err = t.c.DB.QueryRow(ctx, `SELECT COALESCE(MIN(at), $3) FROM traffic WHERE span = $1 AND at >= $2`,
			from.Milliseconds(), next, end).Scan(&at)
		if err != nil {
			return err
		}
		at = floor(at, to)
	}
	return nil
}

// sums adds up the columns of Counts. PostgreSQL's sum of a BIGINT is NUMERIC.
const sums = `CAST(SUM(ok) AS BIGINT) AS ok, CAST(SUM(redirected) AS BIGINT) AS redirected,
	CAST(SUM(client_errors) AS BIGINT) AS client_errors,
	CAST(SUM(server_errors) AS BIGINT) AS server_errors, CAST(SUM(pages) AS BIGINT) AS pages, CAST(SUM(bytes) AS BIGINT) AS bytes`

// forget deletes intervals older than before, one per transaction: deleting an interval is as much work as writing it.
func (t *Traffic) forget(ctx context.Context, span time.Duration, before db.Time) error {
	for {
		var n int64
		err := t.c.DB.Write(ctx, func(tx *db.Tx) (err error) {
			n, err = tx.Exec(ctx, `
				DELETE FROM traffic WHERE span = $1 AND at = (SELECT MIN(at) FROM traffic WHERE span = $1 AND at < $2)`,
				span.Milliseconds(), before)
			return err
		})
		if err != nil || n == 0 {
			return err
		}
	}
}

// forgetBatches deletes the batch numbers of processes that added none for a month.
func (t *Traffic) forgetBatches(ctx context.Context) error {
	return t.c.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `DELETE FROM traffic_batches WHERE at < $1`, t.c.Now().Add(-30*day))
		return err
	})
}
