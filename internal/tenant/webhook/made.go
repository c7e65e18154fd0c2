package webhook

import (
	"context"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
)

// RemoveMadeTx deletes a webhook that an app created, when its access ends. Nothing that is queued for it is sent.
func (w *Webhooks) RemoveMadeTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id string) error {
	_, err := w.DeleteTx(ctx, tx, owner, ID(id))
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	return err
}
