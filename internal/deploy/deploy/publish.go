package deploy

import (
	"context"

	"slipway/internal/build/framework"
	"slipway/internal/build/publish"
	"slipway/internal/build/release"
	"slipway/internal/deploy/deployment"
	"slipway/internal/deploy/hold"
	"slipway/internal/platform/blob"
	"slipway/internal/tenant/limits"
	"slipway/internal/tenant/site"
)

// Roots marks the blobs of every release that a deployment may still need, and of releases that are held for one. It is
// registered with garbage collection.
func (d *Deployments) Roots(ctx context.Context, mark func(blob.Digest)) error {
	if err := hold.Roots(ctx, d.c.DB, d.c.Releases, mark); err != nil {
		return err
	}
	return d.Deployments.Roots(ctx, d.c.Releases, d.c.Bundles, mark)
}

// publish makes a release based on the live one. fill adds its files.
func (d *Deployments) publish(ctx context.Context, s site.Site, fill func(w *release.Writer) error) (release.Sealed, error) {
	previous := s.LiveRelease
	use, err := d.c.Limits.UseOf(ctx, d.c.DB, s.Owner, limits.Storage)
	if err != nil {
		return release.Sealed{}, err
	}
	if err := hold.Release(ctx, d.c.DB, previous); err != nil {
		return release.Sealed{}, err
	}
	rel, err := publish.Release(ctx, d.c.Releases, previous, d.c.Log, func(w *release.Writer) error {
		w.Allow(use.Left(), use.Reached)
		return fill(w)
	})
	if err != nil {
		return rel, err
	}
	return rel, hold.Release(ctx, d.c.DB, rel.ID)
}

// publishCommit makes a release from a folder of a commit.
func (d *Deployments) publishCommit(
	ctx context.Context,
	s site.Site,
	tree sourceTree,
	plan framework.Plan,
	p *progress,
) (release.Sealed, error) {
	p.enter("publish", deployment.Deploying)
	c, err := publish.Open(ctx, tree, plan, p.Printf)
	if err != nil {
		return release.Sealed{}, err
	}
	rel, err := d.publish(ctx, s, func(w *release.Writer) error {
		if err := d.serving(ctx, w, s, tree, plan); err != nil {
			return err
		}
		return c.Fill(ctx, w)
	})
	return publish.Report(rel, err, c.Folder(), p.Printf)
}

// serving passes the commit's redirect, header and other rules to a release's writer.
func (d *Deployments) serving(ctx context.Context, w *release.Writer, s site.Site, tree sourceTree, plan framework.Plan) error {
	settings, err := d.c.Sites.ServingOf(ctx, d.c.DB, s.ID)
	if err != nil {
		return err
	}
	return publish.Rules(ctx, w, publish.Serving{ProxyHosts: settings.ProxyHosts, Countries: d.c.Countries}, tree, plan)
}
