package deployment

import (
	"context"

	"slipway/internal/deploy/journal"
	"slipway/internal/tenant/account"
)

// Logs returns at most limit lines after the given number, and the deployment's status. The status is read first, so
// that a deployment that has ended has no further lines.
func (d *Deployments) Logs(ctx context.Context, owner account.OwnerID, id ID, after int64, limit int) ([]journal.Line, Status, error) {
	x, err := d.OwnedTx(ctx, d.c.DB, owner, id)
	if err != nil {
		return nil, "", err
	}
	lines, err := journal.Read(ctx, d.c.DB, x.ID, after, limit)
	return lines, x.Status, err
}

// Listen returns a channel that receives when a deployment has new lines or a new state.
func (d *Deployments) Listen(id ID) (wake <-chan struct{}, stop func()) {
	return d.c.DB.Listen(journal.Topic(id))
}
