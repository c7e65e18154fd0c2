package publish

import (
	"context"
	"fmt"
	"strings"

	"slipway/internal/build/release"
)

// WarnUnfetched warns about LFS files that couldn't be fetched: their pointers are published instead.
func WarnUnfetched(unfetched []string, say Log) {
	n := len(unfetched)
	if n == 0 {
		return
	}
	names := strings.Join(unfetched[:min(n, 10)], ", ")
	if n > 10 {
		names += fmt.Sprintf(" and %d more", n-10)
	}
	say("warn",
		"Git LFS files could not be fetched from the repository's host, or .gitattributes doesn't name them, so their pointers are published: %s",
		names)
}

// WarnNoIndex warns if a release has no page for "/".
func WarnNoIndex(ctx context.Context, releases *release.Releases, rel release.Sealed, say Log) error {
	tree, err := releases.Load(ctx, rel.ID)
	if err != nil {
		return fmt.Errorf("read release: %w", err)
	}
	if _, ok := tree.Lookup("index.html"); !ok {
		say("warn", "The published files have no index.html at their root, so / answers 404 unless a redirect or rewrite covers it")
	}
	return nil
}
