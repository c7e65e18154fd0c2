package deploy

import (
	"context"
	"fmt"

	"slipway/internal/deploy/deployment"
	"slipway/internal/deploy/journal"
	"slipway/internal/platform/db"
)

// progress is the journal and the clock of one run.
type progress struct {
	*journal.Journal
	attempt int64
	clock   *journal.Clock

	stored, added int64 // bytes of the bundle that this run stored: in total, and those that the live one lacks
}

func (d *Deployments) progress(ctx context.Context, x deployment.Deployment, attempt int64) (*progress, error) {
	j, err := journal.Open(ctx, journal.Config{
		DB:         d.c.DB,
		Log:        d.c.Log,
		Deployment: x.ID,
		Status:     string(deployment.Building),
		Save: func(ctx context.Context, tx *db.Tx, s journal.State) error {
			n, err := tx.Exec(ctx, `
				UPDATE deployments SET status = $3, stages = $4, place = $5 WHERE id = $1 AND attempt = $2 AND status IN `+open,
				x.ID, attempt, s.Status, s.Stages, s.Place)
			if err != nil {
				return fmt.Errorf("write progress: %w", err)
			}
			if n == 0 {
				return journal.ErrFenced
			}
			return nil
		},
	})
	return &progress{Journal: j, attempt: attempt}, err
}

// enter ends the running stage as successful and starts the next.
func (p *progress) enter(name string, status deployment.Status) { p.Enter(name, string(status)) }
