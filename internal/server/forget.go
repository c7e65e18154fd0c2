package server

import (
	"context"

	"slipway/internal/platform/db"
	"slipway/internal/program/placement"
	"slipway/internal/tenant/site"
)

// forget removes what packages that know no deployments store of a deleted site, but for the backups that
// were taken for the deletion. Its programs end by themselves.
func (h *node) forget(ctx context.Context, id site.ID) error {
	if err := h.places.Here(ctx, id); err != nil { // what it stored is there
		return err
	}
	in := func(forget func(tx *db.Tx) error) func() error {
		return func() error { return h.db.Write(ctx, forget) }
	}
	for _, step := range []func() error{
		in(func(tx *db.Tx) error { return h.domains.DeleteSiteTx(ctx, tx, id) }),
		in(func(tx *db.Tx) error { return h.git.ForgetTx(ctx, tx, id) }),
		in(func(tx *db.Tx) error { return h.connections.ForgetTx(ctx, tx, id) }),
		in(func(tx *db.Tx) error { return h.notify.ForgetTx(ctx, tx, id) }),
		in(func(tx *db.Tx) error { return h.teams.ForgetSiteTx(ctx, tx, id) }),
		in(func(tx *db.Tx) error { return h.webhooks.ForgetSiteTx(ctx, tx, id) }),
		in(func(tx *db.Tx) error { return h.backups.SiteDeletedTx(ctx, tx, id) }),
		in(func(tx *db.Tx) error { return h.uploads.ForgetTx(ctx, tx, id) }),
		func() error { return h.traffic.Forget(ctx, id) },
		func() error { return h.databases.Forget(ctx, id) },
		in(func(tx *db.Tx) error { return h.wordpress.ForgetTx(ctx, tx, id) }),
		in(func(tx *db.Tx) error { return h.apps.PurgeTx(ctx, tx, id) }),
	} {
		if err := step(); err != nil {
			return err
		}
	}
	if h.engine != nil {
		if err := h.engine.ForgetStorage(id); err != nil {
			return err
		}
	}
	return in(func(tx *db.Tx) error { return placement.ForgetTx(ctx, tx, id) })()
}
