package publish

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"slipway/internal/build/release"
	"slipway/internal/platform/blob"
)

// Release makes a release based on a previous one; fill adds the files. It tries again if garbage collection deleted
// blobs that were about to be reused.
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
