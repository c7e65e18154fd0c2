package publish

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"slipway/internal/build/release"
	"slipway/internal/platform/blob"
)

// Release makes a release, to which fill adds the files, on top of a previous one. When a
// sweep deleted at the same moment what was there to be used again, it does so anew.
func Release(
	ctx context.Context,
	releases *release.Releases,
	previous release.ID,
	log *slog.Logger,
	fill func(w *release.Writer) error,
) (release.Sealed, error) {
	for try := 1; ; try++ {
		rel, err := once(ctx, releases, previous, fill)
		if err == nil || !errors.Is(err, blob.ErrSwept) || try == 3 {
			return rel, err
		}
		log.InfoContext(ctx, "release recreated", "err", err)
	}
}

func once(
	ctx context.Context,
	releases *release.Releases,
	previous release.ID,
	fill func(w *release.Writer) error,
) (release.Sealed, error) {
	w, err := releases.Begin(ctx, previous)
	if err != nil {
		return release.Sealed{}, fmt.Errorf("begin release: %w", err)
	}
	defer w.Abort()
	if err := fill(w); err != nil {
		return release.Sealed{}, err
	}
	rel, err := w.Seal(ctx)
	if err != nil {
		return release.Sealed{}, fmt.Errorf("seal release: %w", err)
	}
	return rel, nil
}
