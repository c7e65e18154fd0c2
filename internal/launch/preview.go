package launch

import (
	"context"

	"slipway/internal/deploy/preview"
)

// TidyPreviews deletes the storage of ended previews.
func (l *Launch) TidyPreviews(ctx context.Context) error {
	stores, err := l.c.Engine.PreviewStores() // list stores before previews, so that a new preview's store isn't deleted
	if err != nil {
		return err
	}
	for of, names := range stores {
		keys, err := l.c.Previews.Keys(ctx, of)
		if err != nil {
			return err
		}
		kept := map[string]bool{}
		for _, key := range keys {
			kept[preview.Store(key)] = true
		}
		for _, name := range names {
			if !kept[name] {
				if err := l.c.Engine.ForgetPreview(of, name); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
