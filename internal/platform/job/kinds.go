package job

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"slipway/internal/platform/db"
)

// kinds are those that this process has handlers for, in order.
func (j *Jobs) kinds() []string { return slices.Sorted(maps.Keys(j.handlers)) }

// forever is the lease of a process that can have no successor while it runs.
const forever db.Time = 1 << 60

// announce writes what this node can do, and forgets nodes that died. On SQLite there is
// no other node, and what is written at the start is true until the next one.
func (j *Jobs) announce(ctx context.Context) error {
	now := j.c.DB.Now()
	until, before := now.Add(j.c.Lease), now
	if j.c.DB.Single() {
		until, before = forever, forever+1
	}
	err := j.c.DB.Write(ctx, func(tx *db.Tx) error {
		for _, kind := range j.kinds() {
			if _, err := tx.Exec(ctx, `
				INSERT INTO job_kinds (node, kind, lease_until) VALUES ($1, $2, $3)
				ON CONFLICT (node, kind) DO UPDATE SET lease_until = excluded.lease_until`, j.node, kind, until); err != nil {
				return err
			}
		}
		_, err := tx.Exec(ctx, `DELETE FROM job_kinds WHERE node <> $1 AND lease_until < $2`, j.node, before)
		return err
	})
	if err != nil {
		return fmt.Errorf("announce kinds of jobs: %w", err)
	}
	return nil
}

// retire takes this node off the list. A node that can't is off it when its lease ends.
func (j *Jobs) retire(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	err := j.c.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `DELETE FROM job_kinds WHERE node = $1`, j.node)
		return err
	})
	if err != nil {
		j.c.Log.WarnContext(ctx, "node not deregistered", "err", err)
	}
}

// Waiting is a kind of which jobs wait although they are due.
type Waiting struct {
	Kind  string
	Jobs  int
	Since db.Time // when the first of them was due
}

// unknownAfter is how long a job is due before Unknown speaks of it: nodes that have
// just started may not have announced themselves yet.
const unknownAfter = time.Minute

// Unknown returns the kinds of jobs that wait because no running node knows them. While
// no node runs at all it returns none: then everything waits.
func Unknown(ctx context.Context, r db.Reader) ([]Waiting, error) {
	now := db.Now()
	rows, err := r.Query(ctx, `
		SELECT j.kind, count(*), min(j.run_at) FROM jobs j
		WHERE j.state = 'ready' AND j.run_at < $1
		  AND EXISTS (SELECT 1 FROM job_kinds WHERE lease_until > $2)
		  AND NOT EXISTS (SELECT 1 FROM job_kinds k WHERE k.kind = j.kind AND k.lease_until > $2)
		GROUP BY j.kind ORDER BY j.kind`, now.Add(-unknownAfter), now)
	all, err := db.Collect(rows, err, func(s db.Scanner) (w Waiting, err error) {
		return w, s.Scan(&w.Kind, &w.Jobs, &w.Since)
	})
	if err != nil {
		return nil, fmt.Errorf("find unknown kinds of jobs: %w", err)
	}
	return all, nil
}
