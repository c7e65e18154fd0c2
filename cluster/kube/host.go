package kube

import (
	"context"

	"slipway/internal/platform/id"
	"slipway/internal/program/runtime"
)

var _ runtime.Host = (*Engine)(nil)

// Fence does nothing until ctx ends: a process that takes over a site ends the other process's pods and waits until the
// cluster confirms their end.
func (e *Engine) Fence(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// StorageDir reports whether a site has storage. dir is empty, since the storage isn't on this machine.
func (e *Engine) StorageDir(site id.Site) (dir string, ok bool) {
	ctx, cancel := context.WithTimeout(context.Background(), removal)
	defer cancel()
	all, err := e.claims(ctx, site)
	return "", err == nil && len(all) > 0
}
