package app

import (
	"context"

	"slipway/internal/platform/db"
	"slipway/internal/platform/id"
	"slipway/internal/program/storage"
	"slipway/internal/tenant/account"
)

// countStorage measures what programs store until ctx ends. A site that fills up its owner's room starts again with what it has.
func (a *Apps) countStorage(ctx context.Context) {
	a.storage.Run(ctx, func(ctx context.Context) error { return a.c.Launch.TidyPreviews(ctx) }, a.full)
}

// full says in the log of a site that its owner's room is used up, and ends what of it runs.
func (a *Apps) full(site id.Site) {
	a.logs.System(site, "", "Storage is full: this account has used up what it can store. "+
		"Its programs are restarted and can't add to it; delete files or sites, or ask the operator for more")
	a.Renew(site)
}

// StorageUse returns what a site's storage held when it was last measured.
func (a *Apps) StorageUse(ctx context.Context, site id.Site) (storage.Use, error) {
	return a.storage.Use(ctx, site)
}

// StorageOf returns what the sites of an owner store.
func (a *Apps) StorageOf(ctx context.Context, r db.Reader, owner account.OwnerID) (int64, error) {
	return a.storage.Of(ctx, r, owner)
}

// boundStorage holds a program's storage to what its owner may store yet.
func (a *Apps) boundStorage(ctx context.Context, w *Wanted) (err error) {
	if a.c.Storage == nil || w.Spec.Limits.Storage <= 0 {
		return nil
	}
	w.Stored = w.Spec.Limits.Storage
	w.Spec.Limits.Storage, err = a.storage.Bound(ctx, w.Owner, w.Site, w.Stored)
	return err
}
