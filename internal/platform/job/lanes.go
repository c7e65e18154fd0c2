package job

import (
	"context"
	"fmt"

	"slipway/internal/platform/db"
)

// FreestTx returns the group with the fewest unfinished jobs, the first of equals. Jobs that share several groups run as many at a
// time as there are groups.
func FreestTx(ctx context.Context, tx *db.Tx, groups []string) (freest string, err error) {
	least := -1
	for _, g := range groups {
		var n int
		if err := tx.QueryRow(ctx, `SELECT COUNT(*) FROM jobs WHERE grp = $1 AND state IN ('ready', 'running')`, g).Scan(&n); err != nil {
			return "", fmt.Errorf("count jobs of a group: %w", err)
		}
		if least < 0 || n < least {
			freest, least = g, n
		}
	}
	return freest, nil
}

// RelieveTx gives a group whose job ends the job that waits longest behind one that runs in another of the groups, unless jobs wait in
// its own.
func RelieveTx(ctx context.Context, tx *db.Tx, queue, group string, groups []string) error {
	args := db.Args{group}
	others := db.AddList(&args, groups)
	n, err := tx.Exec(ctx, `
		UPDATE jobs SET grp = $1 WHERE id = (
			SELECT MIN(w.id) FROM jobs w WHERE w.grp IN (`+others+`) AND w.grp <> $1 AND w.state = 'ready'
				AND EXISTS (SELECT 1 FROM jobs r WHERE r.grp = w.grp AND r.state = 'running'))
		AND NOT EXISTS (SELECT 1 FROM jobs o WHERE o.grp = $1 AND o.state = 'ready')`, args...)
	if err != nil {
		return fmt.Errorf("give a group a job: %w", err)
	}
	if n > 0 {
		tx.Notify(topic(queue))
	}
	return nil
}
