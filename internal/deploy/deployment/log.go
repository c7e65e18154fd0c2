package deployment

import (
	"context"

	"slipway/internal/deploy/journal"
	"slipway/internal/tenant/account"
)

// Logs returns the lines after the given number, at most limit, and the deployment's
// status as of then: read before the lines, so that one that has ended has no more.
func (d *Deployments) Logs(ctx context.Context, owner account.OwnerID, id ID, after int64, limit int) ([]journal.Line, Status, error) {
	x, err := d.OwnedTx(ctx, d.c.DB, owner, id)
	if err != nil {
		return nil, "", err
	}
	lines, err := journal.Read(ctx, d.c.DB, x.ID, after, limit)
	return lines, x.Status, err
}

// Listen returns a channel that receives when a deployment has more to say.
func (d *Deployments) Listen(id ID) (wake <-chan struct{}, stop func()) {
	return d.c.DB.Listen(journal.Topic(id))
}
