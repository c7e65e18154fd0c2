package deploy

import (
	"context"
	"fmt"
	"time"

	"slipway/internal/deploy/deployment"
	"slipway/internal/platform/db"
	"slipway/internal/platform/job"
)

// maxCrashes is how often the process may crash during one deployment before the deployment fails. Without it, a
// repository that crashes the process would do so after every restart.
const maxCrashes = 2

// suspect waits for its turn if the process has crashed during the deployment. Such deployments run one at a time, so
// that the next crash counts only against the one that runs, and a deployment that happened to run beside the cause can
// succeed. done lets the next one in; it is never nil.
func (d *Deployments) suspect(ctx context.Context, id deployment.ID) (done func(), err error) {
	var crashes int
	err = d.c.DB.QueryRow(ctx, `SELECT COALESCE(MAX(crashes), 0) FROM deployments WHERE id = $1`, id).Scan(&crashes)
	if err != nil {
		return func() {}, fmt.Errorf("count crashes: %w", err)
	}
	if crashes == 0 {
		return func() {}, nil
	}
	if !d.alone.TryLock() {
		return func() {}, job.Later(200 * time.Millisecond)
	}
	return d.alone.Unlock, nil
}

// countTx records that the process is about to work on the deployment, before it reads the repository. It reports
// whether the process has crashed too often during it.
func countTx(ctx context.Context, tx *db.Tx, id deployment.ID) (tooOften bool, err error) {
	var crashes int
	err = tx.QueryRow(ctx, `UPDATE deployments SET crashes = crashes + 1 WHERE id = $1 RETURNING crashes`, id).Scan(&crashes)
	if err != nil {
		return false, fmt.Errorf("count crashes: %w", err)
	}
	return crashes > maxCrashes, nil
}

// working is like countTx, for a deployment that continues after waiting.
func (d *Deployments) working(ctx context.Context, id deployment.ID) {
	err := d.c.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := countTx(ctx, tx, id)
		return err
	})
	if err != nil {
		d.c.Log.WarnContext(ctx, "start of work not recorded; a crash would not be counted", "deployment", id, "err", err)
	}
}

// survivedTime is how long a deployment waits for an unreachable database: longer than a failover takes.
const survivedTime = time.Minute

// survived undoes countTx: the process didn't crash, and the deployment will be retried.
func (d *Deployments) survived(ctx context.Context, id deployment.ID) {
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), survivedTime)
	defer done()
	mark := db.NewMark()
	var err error
	for again := true; again; again = db.Lost(err) && ctx.Err() == nil {
		err = d.c.DB.Write(ctx, func(tx *db.Tx) error {
			if first, err := tx.MarkTx(ctx, mark); err != nil || !first {
				return err
			}
			_, err := tx.Exec(ctx, `UPDATE deployments SET crashes = crashes - 1 WHERE id = $1 AND crashes > 0`, id)
			return err
		})
	}
	if err != nil {
		d.c.Log.WarnContext(ctx, "interruption counted as a crash", "deployment", id, "err", err)
	}
}
