package server

import (
	"context"

	"slipway/internal/account"
	"slipway/internal/app"
	"slipway/internal/db"
	"slipway/internal/php"
	"slipway/internal/preview"
	"slipway/internal/site"
)

// mostPrograms is how many programs and commands an owner may run at once.
func (h *node) mostPrograms(limits *account.Limits) func(ctx context.Context, owner string) (int64, error) {
	return func(ctx context.Context, owner string) (int64, error) {
		return limits.LimitOf(ctx, h.db, account.OwnerID(owner), account.LimitPrograms)
	}
}

// appStorage is the way to what programs store, where they run here.
func (h *node) appStorage(limits *account.Limits) app.Storage {
	if h.engine == nil {
		return app.Storage{}
	}
	return app.Storage{Sites: h.engine.StorageSites, Size: h.engine.StorageSize, Tidy: h.tidyPreviews,
		Left: func(ctx context.Context, owner string) (int64, error) {
			u, err := limits.UseOf(ctx, h.db, account.OwnerID(owner), account.LimitStorage)
			return u.Left(), err
		}}
}

// tidyPreviews deletes the storage of previews that have ended.
func (h *node) tidyPreviews(ctx context.Context) error {
	stores, err := h.engine.PreviewStores() // before the previews: one that begins meanwhile is not among them
	if err != nil {
		return err
	}
	for of, names := range stores {
		keys, err := h.deployments.Previews.Keys(ctx, site.ID(of))
		if err != nil {
			return err
		}
		kept := map[string]bool{}
		for _, key := range keys {
			kept[preview.Store(key)] = true
		}
		for _, name := range names {
			if !kept[name] {
				if err := h.engine.ForgetPreview(of, name); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// forgetPrograms forgets what a deleted site's programs printed, and drops its databases;
// they end by themselves.
func (h *node) forgetPrograms(ctx context.Context, id site.ID) error {
	if err := h.databases.Forget(ctx, id); err != nil {
		return err
	}
	if err := h.forgetWordPress(ctx, id); err != nil {
		return err
	}
	return h.db.Write(ctx, func(tx *db.Tx) error { return h.apps.PurgeTx(ctx, tx, string(id)) })
}

// phpVersion returns the version of PHP that a constraint of composer.json gets.
func phpVersion(ctx context.Context, constraint string) (string, error) {
	v, err := php.Choose(ctx, constraint)
	return v.Number, err
}

// forgetStorage deletes what a deleted site's programs have stored.
func (h *node) forgetStorage(_ context.Context, id site.ID) error {
	if h.engine == nil {
		return nil
	}
	return h.engine.ForgetStorage(string(id))
}
