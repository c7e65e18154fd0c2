package deploy

import (
	"context"
	"fmt"
	"strings"

	"slipway/internal/release"
	"slipway/internal/source"
)

// warnUnfetched names the files whose content could not be had: what is published in
// their place is three lines of text.
func warnUnfetched(tree *source.Tree, p *progress) {
	n := len(tree.Unfetched)
	if n == 0 {
		return
	}
	names := strings.Join(tree.Unfetched[:min(n, 10)], ", ")
	if n > 10 {
		names += fmt.Sprintf(" and %d more", n-10)
	}
	p.Printf("warn", "Git LFS files could not be fetched from the repository's host, so their pointers are published: %s", names)
}

// warnNoIndex says that a release has nothing to show at its address.
func (d *Deployments) warnNoIndex(ctx context.Context, rel release.Sealed, p *progress) error {
	tree, err := d.c.Releases.Load(ctx, rel.ID)
	if err != nil {
		return fmt.Errorf("read release: %w", err)
	}
	if _, ok := tree.Lookup("index.html"); !ok {
		p.Printf("warn", "The published files have no index.html at their root, so / answers 404 unless a redirect or rewrite covers it")
	}
	return nil
}
