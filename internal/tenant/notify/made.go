package notify

import (
	"context"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
)

// RemoveMadeTx deletes a channel created by an app whose access ends.
func (n *Notifications) RemoveMadeTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id string) error {
	err := n.DeleteTx(ctx, tx, owner, ID(id))
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	return err
}
