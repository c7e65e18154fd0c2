package server

import (
	"context"
	"time"

	"slipway/internal/platform/db"
	fleet "slipway/internal/platform/node"
	"slipway/internal/program/placement"
)

// giveAway moves this node's programs to other nodes before the process ends. Until then this node answers.
func (h *node) giveAway(ctx context.Context) {
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer done()
	if err := h.self.Drain(ctx); err != nil {
		h.s.Log.WarnContext(ctx, "programs not given to other nodes before they end", "err", err)
	}
}

// forget removes a stopped temporary node from the list if it holds no data of its own. Its id isn't reused, so it
// would be listed as down forever. A killed node stays on the list.
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
