package webhook

import (
	"context"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
)

// RemoveMadeTx deletes a webhook created by an app whose access ends. Its queued deliveries aren't sent.
func (w *Webhooks) RemoveMadeTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id string) error {
	_, err := w.DeleteTx(ctx, tx, owner, ID(id))
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	return err
}
