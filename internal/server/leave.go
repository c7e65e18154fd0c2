package server

import (
	"context"
	"time"

	"slipway/internal/platform/db"
	fleet "slipway/internal/platform/node"
	"slipway/internal/program/placement"
)

// giveAway has other nodes take over what runs here, before it ends with this process: until then it answers.
func (h *node) giveAway(ctx context.Context) {
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer done()
	if err := h.self.Drain(ctx); err != nil {
		h.s.Log.WarnContext(ctx, "programs not given to other nodes before they end", "err", err)
	}
}

// forget takes a temporary node that has stopped off the list, where nothing is on it that only it has. Its id is never seen
// again: others would be shown a node that is down for good. One that is killed stays on the list, and is down.
func (h *node) forget(ctx context.Context) error {
	if !h.s.NodeTemporary || h.DB.Single() {
		return nil
	}
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer done()
	return h.DB.Write(ctx, func(tx *db.Tx) error {
		_, pinned, err := placement.Counts(ctx, tx)
		if err != nil || pinned[h.self.ID()] > 0 {
			return err
		}
		if _, _, err := placement.ForgetNodeTx(ctx, tx, h.self.ID()); err != nil {
			return err
		}
		return fleet.DeleteTx(ctx, tx, h.self.ID())
	})
}
