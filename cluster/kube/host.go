package kube

import (
	"context"

	"slipway/internal/platform/id"
	"slipway/internal/program/runtime"
)

var _ runtime.Host = (*Engine)(nil)

// Fence ends nothing: whoever takes a site over ends what other processes left of it, and waits until the cluster has seen that end.
func (e *Engine) Fence(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// StorageDir reports whether a site has storage, which has no directory here.
func (e *Engine) StorageDir(site id.Site) (dir string, ok bool) {
	ctx, cancel := context.WithTimeout(context.Background(), removal)
	defer cancel()
	all, err := e.claims(ctx, site)
	return "", err == nil && len(all) > 0
}
