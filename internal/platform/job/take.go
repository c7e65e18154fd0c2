package job

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"

	"slipway/internal/platform/db"
)

// lease takes the next due job of the queue that this process can do, or returns nil
// when there is none. A job of a group waits for the ones before it; among the rest the
// share with the fewest running goes first, then the one that waits longest. A share runs
// as many jobs of a queue at once as shareOf says, whatever else is free: the next one who
// comes does not wait for the end of what may take hours.
func (j *Jobs) lease(ctx context.Context, queue string) (*leased, error) {
	var c *leased
	err := j.c.DB.Write(ctx, func(tx *db.Tx) error {
		c = nil
		counts, err := running(ctx, tx, queue)
		if err != nil {
			return err
		}
		for _, t := range turns(counts, shareOf(j.c.Queues[queue])) {
			if c, err = j.leaseTx(ctx, tx, queue, t); c != nil || err != nil {
				return err
			}
		}
		return nil
	})
	switch {
	case db.Duplicate(err):
		// Another node took a job of the same group at the same moment: its end wakes us.
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("lease job: %w", err)
	}
	return c, nil
}

// turn is the shares whose jobs are looked for next: some, or all but some.
type turn struct {
	but    bool
	shares []string
}

// turns returns in which order shares are looked at, by how many jobs each has running: those with none first, which may be any, then
// those with the fewest. Shares that run as many as they may have no turn; the service's own always have one.
func turns(running map[string]int, most int) []turn {
	all := []turn{{but: true}}
	by := map[int][]string{}
	for _, share := range slices.Sorted(maps.Keys(running)) {
		all[0].shares = append(all[0].shares, share)
		if n := running[share]; n < most || share == "" {
			by[n] = append(by[n], share)
		}
	}
	for _, n := range slices.Sorted(maps.Keys(by)) {
		all = append(all, turn{shares: by[n]})
	}
	return all
}

// running returns how many jobs of a queue each share has running, which are few: every one has a place somewhere.
func running(ctx context.Context, tx *db.Tx, queue string) (map[string]int, error) {
	rows, err := tx.Query(ctx, `SELECT share, count(*) FROM jobs WHERE queue = $1 AND state = 'running' GROUP BY share`, queue)
	out := map[string]int{}
	_, err = db.Collect(rows, err, func(s db.Scanner) (share string, err error) {
		var n int
		err = s.Scan(&share, &n)
		out[share] = n
		return share, err
	})
	if err != nil {
		return nil, fmt.Errorf("count running jobs: %w", err)
	}
	return out, nil
}

// next selects the job of a turn that waits longest. It reads the index jobs_next in its order, to the first that may run: thousands of
// jobs may wait.
func (j *Jobs) next(tx *db.Tx, queue string, t turn, now db.Time) (query string, args db.Args) {
	args = db.Args{queue, now, j.c.Node}
	kinds, shares := db.AddList(&args, j.kinds()), ""
	switch {
	case !t.but:
		shares = ` AND share IN (` + db.AddList(&args, t.shares) + `)`
	case len(t.shares) > 0:
		shares = ` AND share NOT IN (` + db.AddList(&args, t.shares) + `)`
	}
	return `SELECT id FROM jobs j
		WHERE queue = $1 AND state = 'ready' AND run_at <= $2 AND node IN ('', $3) AND kind IN (` + kinds + `)` + shares + `
		AND NOT EXISTS (
			SELECT 1 FROM jobs r
			WHERE r.grp = j.grp AND (r.state = 'running' OR r.state = 'ready' AND r.id < j.id))
		ORDER BY run_at, id LIMIT 1` + tx.SkipLocked(), args
}

// leaseTx takes the next job of a turn, or returns nil when there is none.
func (j *Jobs) leaseTx(ctx context.Context, tx *db.Tx, queue string, t turn) (*leased, error) {
	var c leased
	now := tx.Now()
	query, args := j.next(tx, queue, t, now)
	err := tx.QueryRow(ctx, `
		UPDATE jobs SET state = 'running', attempt = attempt + 1, lease_until = `+args.Add(now.Add(j.c.Lease))+`
		WHERE id = (`+query+`)
		RETURNING id, kind, queue, args, attempt, failures`,
		args...).
		Scan(&c.id, &c.kind, &c.queue, &c.args, &c.attempt, &c.failures)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return &c, err
}

// shareOf returns how many jobs of a queue with so many places one share may run at once.
func shareOf(places int) int { return max(1, places/2) }

// settle writes how a leased job ended. A worker whose token is no longer the job's
// changes nothing.
func (j *Jobs) settle(ctx context.Context, c *leased, end error) error {
	p := j.handlers[c.kind].policy
	return j.c.DB.Write(ctx, func(tx *db.Tx) error {
		var l later
		var on *elsewhere
		var err error
		now := j.c.DB.Now()
		switch {
		case end == nil, errors.Is(end, ErrCanceled):
			_, err = tx.Exec(ctx, `DELETE FROM jobs WHERE id = $1 AND attempt = $2`, c.id, c.attempt)
		case errors.Is(end, ErrLost):
			return nil
		case errors.Is(end, ErrStopping):
			_, err = tx.Exec(ctx, `UPDATE jobs SET state = 'ready' WHERE id = $1 AND attempt = $2`, c.id, c.attempt)
		case errors.As(end, &on):
			// The first attempt stays the first: nothing was begun. A later one keeps its number, which fences one that was lost.
			_, err = tx.Exec(ctx, `
				UPDATE jobs SET state = 'ready', node = $3, run_at = $4, attempt = CASE WHEN attempt = 1 THEN 0 ELSE attempt END
				WHERE id = $1 AND attempt = $2`, c.id, c.attempt, on.node, now.Add(on.after))
		case errors.As(end, &l):
			_, err = tx.Exec(
				ctx,
				`UPDATE jobs SET state = 'ready', run_at = $3 WHERE id = $1 AND attempt = $2`,
				c.id,
				c.attempt,
				now+db.Time(l/1e6),
			)
		case errors.Is(end, errGivenUp), p.Attempts == 0:
			_, err = tx.Exec(ctx, `UPDATE jobs SET state = 'dead', error = $3 WHERE id = $1 AND attempt = $2`, c.id, c.attempt, end.Error())
		default:
			_, err = tx.Exec(
				ctx,
				`UPDATE jobs SET state = 'ready', failures = failures + 1, run_at = $3, error = $4 WHERE id = $1 AND attempt = $2`,
				c.id,
				c.attempt,
				now.Add(p.Backoff(c.failures+1)),
				end.Error(),
			)
		}
		// The end of one job may be the turn of the next of its group.
		tx.Notify(topic(c.queue))
		return err
	})
}

// renew renews the lease of one job.
func renew(ctx context.Context, tx *db.Tx, id string, attempt int64, until db.Time) error {
	var canceled bool
	err := tx.QueryRow(ctx, `
		UPDATE jobs SET lease_until = $3 WHERE id = $1 AND attempt = $2 AND state = 'running'
		RETURNING canceled`, id, attempt, until).Scan(&canceled)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return ErrLost
	case err == nil && canceled:
		return ErrCanceled
	}
	return err
}

// rescue makes jobs ready again whose lease ended before a moment: their worker is gone, or couldn't write their end. What runs in the
// only process stays even if its lease couldn't be renewed.
func (j *Jobs) rescue(ctx context.Context, before db.Time) error {
	args, held := db.Args{before, j.c.DB.Now()}, ""
	if here := j.leases.keys(); j.c.DB.Single() && len(here) > 0 {
		held = ` AND id NOT IN (` + db.AddList(&args, here) + `)`
	}
	return j.c.DB.Write(ctx, func(tx *db.Tx) error {
		rows, err := tx.Query(ctx, `
			UPDATE jobs SET state = 'ready', failures = failures + 1, run_at = $2, canceled = FALSE
			WHERE state = 'running' AND lease_until < $1`+held+`
			RETURNING queue`, args...)
		queues, err := db.Collect(rows, err, func(s db.Scanner) (q string, err error) { return q, s.Scan(&q) })
		if err != nil {
			return fmt.Errorf("rescue jobs: %w", err)
		}
		for _, q := range queues {
			tx.Notify(topic(q))
		}
		if j.c.DB.Single() {
			return nil
		}
		// What waits for a node that is gone is looked at by the others, who say so.
		_, err = tx.Exec(ctx, `
			UPDATE jobs SET node = '' WHERE node <> '' AND state = 'ready'
				AND NOT EXISTS (SELECT 1 FROM live_nodes n WHERE n.id = jobs.node AND n.lease_until > $1)`, j.c.DB.Now())
		if err != nil {
			return fmt.Errorf("free jobs of dead nodes: %w", err)
		}
		return nil
	})
}
